"""Takes one request to a replica and the answer's bytes back, as they come.

Status and headers go to the client with the first byte of the body. Until then nothing has been said, so a broken
replica can still be replaced by another one, or reported with a status of its own.
"""

from time import perf_counter_ns

import msgspec

from pipeline.gateway.errors import JSON, error_body
from pipeline.gateway.exchange import ClientGone, Exchange, Headers
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.routing import pick_replica
from pipeline.gateway.sse import UsageFilter
from pipeline.gateway.turn import Turn
from pipeline.gateway.upstream import Aborted, Call, Cut, Engines, Expired, NoConnection, Unreachable, UpstreamError
from pipeline.records import StreamEnd

_TRY_ELSEWHERE = (502, 503)
_NOT_HELD = 404
"""An engine that was started again does not know the adapter until the controller has loaded it."""
_BUDGET = 10.0
_BUDGET_PER_REQUEST = 0.1


class Dispatch(msgspec.Struct, frozen=True):
    """What is sent to an engine, and what is added to its answer."""

    path: bytes
    headers: Headers
    body: bytes
    hide_usage: bool
    own: Headers
    """Of the gateway, for the client."""


class Relay:
    """Knows how busy each replica is, and how many retries may still be spent: at most one in ten requests, so that
    retries cannot double the load on engines that fail because of it. Passing over one that did no work costs nothing:
    the controller, which takes dead engines out of the routes, may be down itself."""

    def __init__(self, engines: Engines, metrics: Metrics) -> None:
        self._engines = engines
        self._metrics = metrics
        self._budget = _BUDGET
        self.in_flight: dict[str, int] = {}

    async def serve(self, exchange: Exchange, turn: Turn, dispatch: Dispatch) -> StreamEnd:
        """Answer a request from one of the turn's replicas; says how that ended as far as connections tell."""
        self._budget = min(_BUDGET, self._budget + _BUDGET_PER_REQUEST)
        replicas, own = turn.served.replicas, dispatch.own
        while True:
            if not replicas:
                return _fail(exchange, turn, own, 503, "no_replica", "no engine serves this model now; try again later")
            replica = pick_replica(replicas, self.in_flight, turn.conversation.affinity)
            call = self._engines.call(replica, b"POST", dispatch.path, dispatch.headers, dispatch.body)
            may_retry = len(replicas) > 1 and self._budget >= 1.0
            cost = 1.0
            self.in_flight[replica] = self.in_flight.get(replica, 0) + 1
            try:
                exchange.when_gone(call.abort)
                turn.sent = perf_counter_ns()
                first = await call.first()
                if call.status == _NOT_HELD:
                    cost = 0.0
                elif not (may_retry and call.status in _TRY_ELSEWHERE):
                    return await _send_answer(exchange, turn, call, first, dispatch)
            except NoConnection as error:
                if len(replicas) == 1:
                    return _report(exchange, turn, own, error)
                cost = 0.0
            except UpstreamError as error:
                if exchange.started or not (may_retry and isinstance(error, Unreachable | Cut)):
                    return _report(exchange, turn, own, error)
            except ClientGone:
                return StreamEnd.CLIENT_ABORT
            finally:
                call.abort()
                self.in_flight[replica] -= 1
            replicas = tuple(other for other in replicas if other != replica)
            self._budget -= cost
            self._metrics.retries += 1


async def _send_answer(exchange: Exchange, turn: Turn, call: Call, first: bytes, dispatch: Dispatch) -> StreamEnd:
    turn.status = call.status
    turn.is_stream = call.content_type.startswith(b"text/event-stream")
    headers, piece = call.headers + dispatch.own, first
    if call.done and call.length and not turn.is_stream:
        turn.take(piece, perf_counter_ns())
        exchange.respond(call.status, headers, piece)
        return StreamEnd.COMPLETE
    usage_filter = UsageFilter() if turn.is_stream and dispatch.hide_usage else None
    exchange.start(call.status, headers, None if usage_filter else call.length)
    try:
        while True:
            if piece:
                turn.take(piece, perf_counter_ns())
            if usage_filter:
                piece = usage_filter.feed(piece)
            if call.done:  # so the last piece and the end go out in one packet
                exchange.finish(piece + usage_filter.rest() if usage_filter else piece)
                return StreamEnd.COMPLETE
            slow = exchange.write(piece)
            if slow is not None:
                await slow
            piece = await call.read()
    except (Cut, Expired) as error:
        if usage_filter:
            exchange.write(usage_filter.rest())
        exchange.cut()
        return StreamEnd.TIMEOUT if isinstance(error, Expired) else StreamEnd.UPSTREAM_CUT


def _report(exchange: Exchange, turn: Turn, own: Headers, error: UpstreamError) -> StreamEnd:
    """Nothing of an answer has gone out: say what happened with a status."""
    if isinstance(error, Aborted) or exchange.gone:
        return StreamEnd.CLIENT_ABORT
    if isinstance(error, Expired):
        _fail(exchange, turn, own, 504, "engine_timeout", "the engine did not answer in time")
        return StreamEnd.TIMEOUT
    if isinstance(error, Cut):
        _fail(exchange, turn, own, 502, "engine_cut", "the engine ended the connection before its answer")
        return StreamEnd.UPSTREAM_CUT
    return _fail(exchange, turn, own, 502, "engine_unreachable", "the engine is not reachable")


def _fail(exchange: Exchange, turn: Turn, own: Headers, status: int, code: str, message: str) -> StreamEnd:
    turn.status = status
    exchange.respond(status, JSON + own, error_body(status, code, message))
    return StreamEnd.UPSTREAM_ERROR
