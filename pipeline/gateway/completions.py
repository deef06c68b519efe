"""`/v1/chat/completions` and `/v1/completions`: from a request to a recorded turn."""

import asyncio
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING

from pipeline.gateway.answer import Answer
from pipeline.gateway.arms import SessionArm, SessionArms
from pipeline.gateway.auth import ApiKey
from pipeline.gateway.claims import Claims
from pipeline.gateway.conversation import Conversation, Conversations
from pipeline.gateway.errors import Refused
from pipeline.gateway.exchange import ClientGone, Exchange, Headers
from pipeline.gateway.ids import Ids
from pipeline.gateway.limits import Admission, too_many
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.recorder import Recorder
from pipeline.gateway.relay import Dispatch, Relay
from pipeline.gateway.request import Asked, dispatch_body, read_request
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.routing import assign
from pipeline.gateway.served import ServedRoute
from pipeline.gateway.shadow import Shadows
from pipeline.gateway.turn import Turn
from pipeline.records import Arm, StreamEnd

if TYPE_CHECKING:  # OpenTelemetry is loaded only where it is configured
    from pipeline.gateway.tracing import Tracing

_TRACED = frozenset((b"traceparent", b"tracestate"))
_HARD_ENDS = (StreamEnd.UPSTREAM_CUT, StreamEnd.ENGINE_ABORT, StreamEnd.TIMEOUT)


class Completions:
    """Everything that serving a completion takes."""

    def __init__(
        self,
        ids: Ids,
        table: RouteTable,
        arms: SessionArms,
        claims: Claims,
        admission: Admission,
        queue_timeout_s: float,
        relay: Relay,
        recorder: Recorder,
        shadows: Shadows,
        metrics: Metrics,
        tracing: "Tracing | None",
        engine_headers: Headers,
    ) -> None:
        self._ids = ids
        self._table = table
        self._arms = arms
        self._claims = claims
        self._admission = admission
        self._queue_timeout_s = queue_timeout_s
        self._relay = relay
        self._recorder = recorder
        self._shadows = shadows
        self._metrics = metrics
        self._tracing = tracing
        self._conversations = Conversations(ids)
        self._served: dict[str, ServedRoute] = {}
        self._engine_headers = engine_headers

    async def serve(self, exchange: Exchange, key: ApiKey) -> None:
        """Answer one request and record it.

        Raises:
            Refused: the request cannot be dispatched; nothing was sent.
            ClientGone: the client left before its turn came.
        """
        arrived = perf_counter_ns()
        asked = read_request(exchange.body)
        served = self._served_route(business_of(asked.model, key))
        waiter = self._admission.enter(served.business, arrived / 1e9)
        if waiter is not None:
            await self._wait(exchange, served.business, waiter)
        answer, end = Answer(), StreamEnd.UPSTREAM_CUT
        try:
            conversation = self._conversations.of(served, key, exchange.headers, asked)
            if self._arms.overflowed or served.salt:
                await self._claim(served, conversation)
            turn = self._begin(exchange, asked, served, conversation, arrived)
            end, answer = await self._answer(exchange, asked, turn)
        finally:
            self._admission.leave(served.business, answer.tokens, perf_counter_ns() / 1e9)
        if served.has_shadow and end is StreamEnd.COMPLETE:
            self._shadows.offer(served.route, turn, answer, exchange.path, len(exchange.body))

    def _served_route(self, business: str) -> ServedRoute:
        route = self._table.route(business)
        if route is None:
            raise _no_model(business)
        served = self._served.get(business)
        if served is None or served.route is not route:
            cache_salt = self._ids.cache_salt(business)
            served = self._served[business] = ServedRoute(route, cache_salt, self._metrics)
        return served

    async def _wait(self, exchange: Exchange, business: str, waiter: asyncio.Future[None]) -> None:
        """Wait for a turn, for as long as the client does and no longer than is allowed."""
        exchange.when_gone(waiter.cancel)
        try:
            await asyncio.wait_for(waiter, self._queue_timeout_s)
        except BaseException as error:
            self._admission.give_up(business, waiter, perf_counter_ns() / 1e9)
            if exchange.gone:
                raise ClientGone from error
            if isinstance(error, TimeoutError):
                message = f"no turn within {self._queue_timeout_s:g} s"
                raise too_many(business, "queue_timeout", message, self._queue_timeout_s) from error
            raise

    async def _claim(self, route: ServedRoute, conversation: Conversation) -> None:
        """See to it that memory knows the conversation as all gateways know it."""
        now = datetime.now(UTC)
        if self._arms.find(route.business, conversation.session, now) is None:
            await self._claims.claim(self._draw(route, conversation, now))

    def _draw(self, route: ServedRoute, conversation: Conversation, now: datetime) -> SessionArm:
        settled = self._table.is_settled(route.business, now)
        assignment = assign(route.route, conversation.position, settled=settled)
        return SessionArm(route.business, conversation.session, assignment, conversation.user_key is not None, now)

    def _begin(
        self, exchange: Exchange, asked: Asked, route: ServedRoute, conversation: Conversation, arrived: int
    ) -> Turn:
        now, business = datetime.now(UTC), route.business
        assignment = self._arms.find(business, conversation.session, now)
        if assignment is None:
            drawn = self._draw(route, conversation, now)
            self._arms.remember(drawn)
            assignment = drawn.assignment
        if assignment.salt != route.salt:
            conversation = conversation.under(assignment.salt)
        return Turn(
            self._ids.new_interaction(business),
            business,
            conversation,
            assignment,
            route.arm(assignment, self._table.guard),
            asked.fields,
            exchange.headers,
            now,
            arrived,
        )

    async def _answer(self, exchange: Exchange, asked: Asked, turn: Turn) -> tuple[StreamEnd, Answer]:
        """Returns how it ended and what the user got."""
        served = turn.served
        interaction_id = turn.interaction_id.encode()
        tracing, span = self._tracing, None
        if tracing:
            span = tracing.begin(exchange.headers, turn, exchange.path, stream=asked.stream)
            traced = tracing.passed_on(span)
        else:
            traced = _traced(exchange.headers)
        dispatch = Dispatch(
            path=exchange.path,
            headers=b"%bx-request-id: %b\r\n%b" % (self._engine_headers, interaction_id, traced),
            body=dispatch_body(asked, served.fields),
            hide_usage=asked.hide_usage,
            own=b"x-interaction-id: %b\r\n%b" % (interaction_id, served.headers),
        )
        served.stats.in_flight += 1
        end = StreamEnd.UPSTREAM_CUT  # should the gateway itself have to stop
        try:
            end = await self._relay.serve(exchange, turn, dispatch)
        finally:
            served.stats.in_flight -= 1
            judged, answer = self._recorder.record(turn, end, perf_counter_ns())
            if served.arm is Arm.CANDIDATE:
                self._watch(turn, judged, answer)
            if tracing and span:
                tracing.end(span, turn, judged, answer)
        return judged, answer

    def _watch(self, turn: Turn, end: StreamEnd, answer: Answer) -> None:
        """Tell the guard about a candidate's hard failure."""
        empty = end is StreamEnd.COMPLETE and not answer.has_token
        engine_error = end is StreamEnd.UPSTREAM_ERROR and (turn.status >= 500 or turn.status in (200, 404))
        if not (empty or engine_error or end in _HARD_ENDS):
            return
        if self._table.failed(turn.business, turn.served.model, datetime.now(UTC)):
            self._metrics.trips += 1


def business_of(model: str | None, key: ApiKey) -> str:
    """The business that a request is for: what `model` names exactly, or the key's only one.

    Raises:
        Refused: the key may not use it, or does not say which of several is meant.
    """
    if model is None:
        if len(key.businesses) == 1:
            return key.businesses[0]
        raise Refused(400, "model_required", f"'model' must name one of {', '.join(key.businesses)}", param="model")
    if model not in key.businesses:
        raise _no_model(model)
    return model


def _no_model(model: str) -> Refused:
    message = f"the model '{model[:80]}' does not exist or this key may not use it"
    return Refused(404, "model_not_found", message, param="model")


def _traced(headers: dict[bytes, bytes]) -> Headers:
    """The client's own trace, for the engine."""
    if _TRACED.isdisjoint(headers):
        return b""
    return b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in sorted(_TRACED & headers.keys()))
