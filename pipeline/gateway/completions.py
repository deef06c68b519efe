"""`/v1/chat/completions` and `/v1/completions`: from a request to a recorded turn."""

import asyncio
import logging
from datetime import UTC, datetime
from time import perf_counter_ns
from typing import TYPE_CHECKING

from pipeline.gateway.answer import Answer
from pipeline.gateway.arms import ArmStore, SessionArm, SessionArms
from pipeline.gateway.auth import ApiKey
from pipeline.gateway.errors import Refused
from pipeline.gateway.exchange import ClientGone, Exchange, Header
from pipeline.gateway.ids import Ids
from pipeline.gateway.limits import Admission, too_many
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.recorder import Recorder
from pipeline.gateway.relay import Dispatch, Relay
from pipeline.gateway.request import Asked, conversation_start, dispatch_body, read_request
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.routing import Assignment, arm_now, assign, assignment_hash, target_of, user_group
from pipeline.gateway.turn import Line, Turn
from pipeline.records import Arm, Route, StreamEnd

if TYPE_CHECKING:  # OpenTelemetry is loaded only where it is configured
    from pipeline.gateway.tracing import Tracing

log = logging.getLogger(__name__)

_TRACED = (b"traceparent", b"tracestate")
_HARD_ENDS = (StreamEnd.UPSTREAM_CUT, StreamEnd.ENGINE_ABORT, StreamEnd.TIMEOUT)


class Completions:
    """Everything that serving a completion takes."""

    def __init__(
        self,
        ids: Ids,
        table: RouteTable,
        arms: SessionArms,
        store: ArmStore,
        admission: Admission,
        queue_timeout_s: float,
        relay: Relay,
        recorder: Recorder,
        metrics: Metrics,
        tracing: "Tracing | None",
        base_model: str,
        engine_key: str,
    ) -> None:
        self._ids = ids
        self._table = table
        self._arms = arms
        self._store = store
        self._admission = admission
        self._queue_timeout_s = queue_timeout_s
        self._relay = relay
        self._recorder = recorder
        self._metrics = metrics
        self._tracing = tracing
        self._base_model = base_model
        self._cache_salts: dict[str, str] = {}
        headers: list[Header] = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        if engine_key:
            headers.append((b"authorization", b"Bearer " + engine_key.encode()))
        self._engine_headers = tuple(headers)

    async def serve(self, exchange: Exchange, path: str, key: ApiKey) -> None:
        """Answer one request and record it.

        Raises:
            Refused: the request cannot be dispatched; nothing was sent.
            ClientGone: the client left before its turn came.
        """
        arrived = perf_counter_ns()
        asked = read_request(exchange.body)
        business = business_of(asked.model, key)
        route = self._table.route(business)
        if route is None:
            raise _no_model(business)
        waiter = self._admission.enter(business, arrived / 1e9)
        if waiter is not None:
            await self._wait(exchange, business, waiter)
        answer = Answer()
        try:
            turn = await self._begin(exchange, asked, business, route, key, arrived)
            answer = await self._answer(exchange, asked, turn, path)
        finally:
            self._admission.leave(business, answer.tokens, perf_counter_ns() / 1e9)

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

    async def _answer(self, exchange: Exchange, asked: Asked, turn: Turn, path: str) -> Answer:
        line = turn.line
        own: tuple[Header, ...] = (
            (b"x-interaction-id", line.interaction_id.encode()),
            (b"x-model-version", line.model_version.encode()),
            (b"x-arm", line.arm.encode()),
        )
        tracing, span = self._tracing, None
        if tracing:
            span = tracing.begin(exchange.headers, turn, path, stream=asked.stream)
            traced = tracing.passed_on(span)
        else:
            traced = tuple([(name, exchange.headers[name]) for name in _TRACED if name in exchange.headers])
        dispatch = self._dispatch(asked, line, path, traced)
        stats = self._metrics.arm(line.business, line.arm, line.model_version)
        stats.in_flight += 1
        end = StreamEnd.UPSTREAM_CUT  # should the gateway itself have to stop
        try:
            end = await self._relay.serve(exchange, turn, dispatch, own)
        finally:
            stats.in_flight -= 1
            judged, answer = self._recorder.record(turn, end, stats, perf_counter_ns())
            if line.arm is Arm.CANDIDATE:
                self._watch(line, judged, answer)
            if tracing and span:
                tracing.end(span, turn, judged, answer)
        return answer

    async def _begin(
        self, exchange: Exchange, asked: Asked, business: str, route: Route, key: ApiKey, arrived: int
    ) -> Turn:
        headers = exchange.headers
        now = datetime.now(UTC)
        user = _header_text(headers, b"x-user-id") or asked.user
        session_id = _header_text(headers, b"x-session-id")
        if session_id:
            session = self._ids.session(business, "named", session_id)
        else:
            session = self._ids.session(business, "derived", key.key_hash, user or "", *conversation_start(asked))
        user_key = self._ids.user_key(business, user) if user else None
        position = assignment_hash(route.salt, user_key or session)
        assignment = self._arms.find(business, session, now)
        if assignment is None and self._arms.overflowed:
            assignment = await self._look_up(business, session, now)
        if assignment is None:
            assignment = assign(route, position)
            self._arms.remember(SessionArm(business, session, assignment, user_key is not None, now))
        elif assignment.salt != route.salt:
            position = assignment_hash(assignment.salt, user_key or session)
        barred = route.candidate is not None and self._table.guard.is_barred(business, route.candidate.model)
        arm = arm_now(assignment, route, candidate_barred=barred)
        target = target_of(route, arm)
        line = Line(
            interaction_id=self._ids.new_interaction(business),
            business=business,
            session=session,
            session_known=bool(session_id or user),
            user_key=user_key,
            user_group=user_group(position),
            arm=arm,
            share=assignment.share,
            rollout_salt=assignment.salt,
            model_version=target.model,
            adapter=None if target.version is None else target.model,
            base_model=self._base_model,
            request=asked.fields,
            client=_header_text(headers, b"user-agent")[:200],
            regenerates=_header_text(headers, b"x-regenerates")[:64] or None,
            started_at=now,
        )
        return Turn(line, target, arrived)

    async def _look_up(self, business: str, session: str, now: datetime) -> Assignment | None:
        try:
            row = await asyncio.to_thread(self._store.find_living, business, session, now)
        except Exception as error:  # the hash gives the same arm in all but a step-up's first moments
            log.warning("control database: %s; a conversation is assigned anew", type(error).__name__)
            return None
        if row is None:
            return None
        self._arms.learn(row)
        return row.assignment

    def _dispatch(self, asked: Asked, line: Line, path: str, traced: tuple[Header, ...]) -> Dispatch:
        salt = self._cache_salts.get(line.business)
        if salt is None:
            salt = self._cache_salts[line.business] = self._ids.cache_salt(line.business)
        return Dispatch(
            path=path,
            headers=(*self._engine_headers, (b"x-request-id", line.interaction_id.encode()), *traced),
            body=dispatch_body(asked, line.model_version, salt),
            hide_usage=asked.hide_usage,
            affinity=int(line.session[:8], 16),
        )

    def _watch(self, line: Line, end: StreamEnd, answer: Answer) -> None:
        """Tell the guard about a candidate's hard failure."""
        empty = end is StreamEnd.COMPLETE and not answer.has_token
        engine_error = end is StreamEnd.UPSTREAM_ERROR and (line.status >= 500 or line.status in (200, 404))
        if not (empty or engine_error or end in _HARD_ENDS):
            return
        trip = self._table.guard.failed(line.business, line.model_version, datetime.now(UTC))
        if trip is not None:
            self._metrics.trips += 1
            log.error("candidate %s stopped: %d hard failures in a burst", trip.model, trip.failures)
            self._table.keep_barred()


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


def _header_text(headers: dict[bytes, bytes], name: bytes) -> str:
    value = headers.get(name)
    return "" if value is None else value.decode("utf-8", "replace")
