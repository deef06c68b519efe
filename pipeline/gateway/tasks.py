"""What a gateway does beside serving: it follows the key table, the controller's routes and the session arms.

Each of them may fail for as long as it likes; the gateway serves on with what it has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError
from sqlalchemy import Engine

from pipeline.errors import DataError
from pipeline.gateway import steps
from pipeline.gateway.arms import LIFE, ArmStore, SessionArms
from pipeline.gateway.auth import KeyRing, list_keys
from pipeline.gateway.limits import Admission, Usage, UsageStore
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.upstream import Engines, UpstreamError
from pipeline.records import Routes

log = logging.getLogger(__name__)

Clock = Callable[[], datetime]
KEYS_EVERY_S = 2.0
ROUTES_EVERY_S = 2.0
ARMS_EVERY_S = 0.5
USAGE_EVERY_S = 1.0
PURGE_EVERY_S = 3600.0
_POLL_TIMEOUT_S = 5.0


def utc_now() -> datetime:
    """The clock of a running gateway."""
    return datetime.now(UTC)


async def repeat(every_s: float, what: str, step: Callable[[], Awaitable[None]]) -> None:
    """Do `step` for ever; a failure is logged once, until it works again."""
    failing = False
    while True:
        try:
            await step()
            if failing:
                log.info("%s: works again", what)
            failing = False
        except Exception as error:
            if not failing:
                log.warning("%s: %s; served on with what is known", what, " ".join(str(error).split())[:300])
            failing = True
        await asyncio.sleep(every_s)


async def follow_keys(keys: KeyRing, database: Engine) -> None:
    """Read the key table once."""
    keys.replace(await asyncio.to_thread(list_keys, database))


async def poll_routes(table: RouteTable, engines: Engines, controller: str, admin_key: str) -> None:
    """Ask the controller for its routes once.

    Raises:
        DataError: it answered something else than routes.
        UpstreamError: it did not answer.
    """
    call = engines.call(controller, b"GET", b"/routes", b"authorization: Bearer %b\r\n" % admin_key.encode(), b"")
    try:
        body = await asyncio.wait_for(steps.start(call.whole()), _POLL_TIMEOUT_S)
    except TimeoutError as error:
        raise UpstreamError(f"{controller}/routes: no answer within {_POLL_TIMEOUT_S} s") from error
    finally:
        call.abort()
    if call.status != 200:
        raise DataError(f"{controller}/routes answered {call.status}")
    try:
        routes = Routes.model_validate_json(body)
    except ValidationError as error:
        raise DataError(f"{controller}/routes: no routes ({error.error_count()} mistakes)") from error
    if table.put(routes, utc_now()):
        log.info("routes of generation %d taken from the controller", routes.generation)


class ArmSync:
    """Carries session arms between memory and the store."""

    def __init__(self, arms: SessionArms, store: ArmStore, clock: Clock) -> None:
        self._arms = arms
        self._store = store
        self._clock = clock
        self._cursor: str | None = None

    async def once(self) -> None:
        """Write what is new here, learn what is new elsewhere. The first time, all that lives is read."""
        rows, most = self._arms.take_unwritten(), self._arms.capacity
        try:
            known, cursor = await asyncio.to_thread(self._store.exchange, rows, self._cursor, self._clock(), most)
        except BaseException:
            self._arms.give_back(rows)
            raise
        if len(known) == most:
            self._arms.overflowed = True
        for arm in known:
            self._arms.learn(arm)
        self._cursor = cursor

    async def purge(self) -> None:
        """Delete conversations that are long over."""
        await asyncio.to_thread(self._store.purge, self._clock() - LIFE - timedelta(days=1))


class UsageSync:
    """Lets the gateways of several hosts share one limit: each charges its buckets with what the others used, about a
    second late. A burst can so exceed a limit by what all gateways admit within that second, and no request waits for
    another host."""

    def __init__(self, admission: Admission, store: UsageStore, seconds: Callable[[], float]) -> None:
        self._admission = admission
        self._store = store
        self._seconds = seconds
        self._totals: dict[str, Usage] | None = None
        self._unsent: dict[str, Usage] = {}

    async def once(self) -> None:
        """Tell what was used here, charge what was used elsewhere."""
        for business, used in self._admission.take_used().items():
            self._unsent[business] = self._unsent.get(business, Usage()) + used
        sent, self._unsent = self._unsent, {}
        try:
            totals = await asyncio.to_thread(self._store.add, sent)
        except BaseException:
            self._unsent = sent
            raise
        if self._totals is not None:
            for business, total in totals.items():
                before = self._totals.get(business, Usage()) + sent.get(business, Usage())
                self._admission.charge(business, total - before, self._seconds())
        self._totals = totals
