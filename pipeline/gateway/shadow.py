"""Repeats a sample of a business's requests on a candidate that no user sees yet.

A request is copied when its user has the whole answer, waits in a short queue of its business, and is sent, one at a
time, only while nobody could feel it: no request waits for its turn, the business is below its limits, the replica has
few requests of users, and the token budget has room for the longest answer there can be. Otherwise it is dropped and
counted. What comes is written to the event log as a `ShadowAnswer` and goes nowhere else.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from time import perf_counter_ns

import msgspec
from msgspec import Raw

from pipeline.config import ShadowConfig
from pipeline.events.segment import SegmentWriter
from pipeline.gateway import steps
from pipeline.gateway.answer import Answer, read_json_answer
from pipeline.gateway.budget import TokenBudget
from pipeline.gateway.exchange import Headers
from pipeline.gateway.limits import Admission
from pipeline.gateway.line import ShadowLine, encode_shadow
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.recorder import judge_end
from pipeline.gateway.request import copy_body, engine_fields
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.routing import assignment_hash, pick_replica
from pipeline.gateway.turn import Turn
from pipeline.gateway.upstream import Engines, Expired, NoConnection, UpstreamError
from pipeline.records import Route, StreamEnd, Target

log = logging.getLogger(__name__)

_MOST_COPIES = 32
_MOST_BYTES = 8 * 1024 * 1024
"""Of one business's requests that wait to be repeated."""
_NOT_HELD = 404
"""What an engine says that does not know the candidate."""


class Fate(StrEnum):
    """What became of a request that was drawn to be repeated."""

    ANSWERED = "answered"
    FAILED = "failed"  # the candidate gave an error, nothing, or no whole answer; recorded like an answer
    NO_PAIR = "no_pair"  # several answers, or an answer of unknown size: nothing to compare with, nothing to budget by
    QUEUE_FULL = "queue_full"
    BUSY = "busy"  # requests of users wait, or run on every replica of the candidate in too great a number
    LIMITS = "limits"  # the business has reached one of its limits
    BUDGET = "budget"
    AWAY = "away"  # no engine took it: it is down, or was started again and does not hold the candidate yet
    OVER = "over"  # the candidate is no longer in shadow
    BARRED = "barred"  # it failed in a burst, or was rolled back by command
    STOPPED = "stopped"  # the gateway stopped first
    ERROR = "error"  # the gateway itself failed


class Copy(msgspec.Struct, frozen=True):
    """A request to repeat."""

    interaction_id: str
    business: str
    session: str
    user_key: str | None
    salt: str
    affinity: int
    path: bytes
    fields: dict[str, Raw]
    prompt_tokens: int
    size: int
    """Bytes of the request."""


class Shadows:
    """Copies of all businesses, each in a line of its own, so that a candidate that hangs holds up nobody else's.

    Args:
        businesses: those that may have a version in shadow.
        in_flight: requests of users by replica, kept by the relay.
        headers: for engines.
        busy_at: so many requests in flight make a replica busy.
        cache_salt: of a business.
        clock: aware.
    """

    def __init__(
        self,
        businesses: Mapping[str, ShadowConfig],
        engines: Engines,
        table: RouteTable,
        admission: Admission,
        in_flight: dict[str, int],
        budget: TokenBudget,
        writer: SegmentWriter,
        metrics: Metrics,
        *,
        headers: Headers,
        busy_at: int,
        cache_salt: Callable[[str], str],
        clock: Callable[[], datetime],
    ) -> None:
        self._businesses = businesses
        self._engines = engines
        self._table = table
        self._admission = admission
        self._in_flight = in_flight
        self._budget = budget
        self._writer = writer
        self._metrics = metrics
        self._headers = headers
        self._busy_at = busy_at
        self._cache_salt = cache_salt
        self._clock = clock
        self._waiting: dict[str, deque[Copy]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def offer(self, route: Route, turn: Turn, answer: Answer, path: bytes, size: int) -> None:
        """Copy a request that was answered, if it is drawn. Never waits.

        Args:
            answer: what the user got.
            size: bytes of the request.
        """
        if route.business not in self._businesses or not is_drawn(route, turn.interaction_id):
            return
        if answer.prompt_tokens is None or len(answer.choices) != 1:
            self._count(route.business, Fate.NO_PAIR)
            return
        if self._closed:
            self._count(route.business, Fate.STOPPED)
            return
        waiting = self._waiting.setdefault(route.business, deque())
        if len(waiting) >= _MOST_COPIES or sum(copy.size for copy in waiting) + size > _MOST_BYTES:
            self._count(route.business, Fate.QUEUE_FULL)
            return
        conversation = turn.conversation
        waiting.append(
            Copy(
                turn.interaction_id,
                route.business,
                conversation.session,
                conversation.user_key,
                route.salt,
                conversation.affinity,
                path,
                turn.fields,
                answer.prompt_tokens,
                size,
            )
        )
        if route.business not in self._running:
            self._running[route.business] = asyncio.get_running_loop().create_task(self._repeat_all(route.business))

    async def close(self) -> None:
        """Give up what runs and what waits, and take nothing more."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for business, waiting in self._waiting.items():
            self._count(business, Fate.STOPPED, len(waiting))
            waiting.clear()

    async def _repeat_all(self, business: str) -> None:
        """Until nothing waits any more."""
        waiting = self._waiting[business]
        try:
            while waiting:
                fate = Fate.STOPPED
                copy = waiting.popleft()
                try:
                    fate = await self._repeat(copy)
                except Exception as error:  # whatever it is, users are served and must stay so
                    fate = Fate.ERROR
                    log.error("copy of interaction %s: %s", copy.interaction_id, type(error).__name__)
                finally:
                    self._count(business, fate)
        finally:
            del self._running[business]

    async def _repeat(self, copy: Copy) -> Fate:
        """Send one copy if nobody can feel it, and record what comes."""
        target = self._candidate(copy)
        if isinstance(target, Fate):
            return target
        replicas = tuple(one for one in target.replicas if self._in_flight.get(one, 0) < self._busy_at)
        if not replicas or self._admission.someone_waits:
            return Fate.BUSY
        if not self._admission.has_room(copy.business, perf_counter_ns() / 1e9):
            return Fate.LIMITS
        ours = engine_fields(target.model, self._cache_salt(copy.business))
        most = self._businesses[copy.business].max_answer_tokens
        body, most = copy_body(copy.fields, ours, most, chat=copy.path.endswith(b"chat/completions"))
        reserved = self._budget.reserve(copy.business, copy.prompt_tokens + most, self._clock())
        if reserved is None:
            return Fate.BUDGET
        await asyncio.to_thread(self._budget.keep)
        replica = pick_replica(replicas, self._in_flight, copy.affinity)
        answer, fate = await self._ask(copy, target, replica, body)
        if fate is Fate.AWAY or answer.prompt_tokens is not None:  # else it may have taken all that was reserved
            self._budget.settle(reserved, answer.tokens)
            tokens = self._metrics.shadow_tokens
            tokens[copy.business] = tokens.get(copy.business, 0) + answer.tokens
        return fate

    def _candidate(self, copy: Copy) -> Target | Fate:
        """What is in shadow now, if it is the rollout that the copy was made for."""
        route = self._table.route(copy.business)
        if route is None or route.candidate is None or not route.shadow or route.salt != copy.salt:
            return Fate.OVER
        if self._table.guard.is_barred(copy.business, route.candidate.model):
            return Fate.BARRED
        return route.candidate

    async def _ask(self, copy: Copy, target: Target, replica: str, body: bytes) -> tuple[Answer, Fate]:
        headers = b"%bx-request-id: shadow-%b\r\n" % (self._headers, copy.interaction_id.encode())
        call = self._engines.call(replica, b"POST", copy.path, headers, body)
        started_at, sent = self._clock(), perf_counter_ns()
        answer = Answer()
        try:
            said = await steps.start(call.whole())
            if call.status == _NOT_HELD:
                return answer, Fate.AWAY
            answer = read_json_answer(said)
            end = judge_end(StreamEnd.COMPLETE, call.status, answer, is_stream=False)
        except NoConnection:
            return answer, Fate.AWAY
        except UpstreamError as error:
            end = StreamEnd.TIMEOUT if isinstance(error, Expired) else StreamEnd.UPSTREAM_CUT
        finally:
            call.abort()
        total_ms = (perf_counter_ns() - sent) // 1000 / 1000
        self._record(copy, target.model, answer, end, call.status or None, total_ms, started_at)
        if end is StreamEnd.COMPLETE and answer.has_token:
            return answer, Fate.ANSWERED
        if self._table.failed(copy.business, target.model, self._clock()):
            self._metrics.trips += 1
        return answer, Fate.FAILED

    def _record(
        self,
        copy: Copy,
        model: str,
        answer: Answer,
        end: StreamEnd,
        status: int | None,
        total_ms: float,
        started_at: datetime,
    ) -> None:
        usage = None
        if answer.prompt_tokens is not None:
            usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
        line = ShadowLine(
            interaction_id=copy.interaction_id,
            business=copy.business,
            session=copy.session,
            user_key=copy.user_key,
            rollout_salt=copy.salt,
            model_version=model,
            choices=answer.choices,
            usage=usage,
            total_ms=total_ms,
            status=status,
            stream_end=end,
            started_at=started_at,
        )
        self._writer.append(encode_shadow(line))

    def _count(self, business: str, fate: Fate, number: int = 1) -> None:
        key = (business, fate.value)
        self._metrics.shadows[key] = self._metrics.shadows.get(key, 0) + number


def is_drawn(route: Route, interaction_id: str) -> bool:
    """Whether a request is among those that are repeated: by a hash of its id, the same on every gateway."""
    return assignment_hash(f"shadow {route.salt}", interaction_id) < route.shadow
