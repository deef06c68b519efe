"""The engines that serve adapters: what each holds, what it is proven to serve, and how it gets what it lacks.

An engine answers `200` to a load and may serve the base model all the same, so only what was proven here counts. Proofs
live in memory: a controller that starts anew proves anew, while gateways go on with the routes they have.

Every call to an engine is an errand that the caller leaves behind after a while, so that an engine that hangs delays
neither a rollback nor the other engines' looks. Errands that change an engine go one at a time over the whole fleet.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from flows.controller.errand import Errand
from pipeline.config import EngineConfig
from pipeline.errors import EngineUnavailable, PipelineError, ServingError, Transient
from pipeline.records import ModelVersion
from pipeline.registry.base import ModelRegistry
from pipeline.serving.base import AdapterServer
from pipeline.serving.proof import prove

log = logging.getLogger(__name__)

UNLOAD_AFTER = timedelta(seconds=60)
"""How long an adapter must have been unneeded: gateways with an older table may still send requests to it."""
PATIENCE_S = 5.0
"""How long a tick waits for looks at engines, and again for what is loaded."""
GRACE_S = 0.5
"""How long it waits all the same when something urgent has come: most loads are done by then."""
SPARE = 8
"""How many adapters an engine keeps beyond `max_adapters`, for what the gate tries and what is about to go; as
`infra/launch/engine.sh` starts it (`--max-cpu-loras`)."""


@dataclass
class _Replica:
    server: AdapterServer
    serves: str
    room: int
    """How many adapters it can hold."""
    answers: bool = True
    observed: bool = False
    listed: frozenset[str] = frozenset()
    proven: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    """Name to why this engine would not take it or did not prove it."""
    unneeded_since: dict[str, datetime] = field(default_factory=dict)
    """Names that it holds and nobody needs."""
    look: Errand[frozenset[str]] | None = None
    """The newest look at what it holds."""


class Fleet:
    """All engines of the configuration."""

    def __init__(
        self,
        engines: Sequence[EngineConfig],
        servers: Mapping[str, AdapterServer],
        registry: ModelRegistry,
        adapters_dir: Path,
        may_act: Callable[[], bool],
    ) -> None:
        """
        Args:
            may_act: whether this controller still leads; asked before each change of an engine.
        """
        self._replicas = [
            _Replica(servers[engine.name], engine.serves, engine.max_adapters + SPARE) for engine in engines
        ]
        self._registry = registry
        self.adapters_dir = adapters_dir
        self._may_act = may_act
        self._needed: frozenset[str] = frozenset()
        self._work: tuple[_Replica, Errand[None]] | None = None
        """What is being loaded or unloaded."""

    @property
    def _for_adapters(self) -> list[_Replica]:
        return [replica for replica in self._replicas if replica.serves != "base"]

    def observe(self, needed: Iterable[str], interrupted: Callable[[], bool]) -> None:
        """See which engines answer and what they hold; a name that an engine lost is no longer proven there.

        Args:
            needed: serving names that an engine must hold before it counts as whole.
            interrupted: whether something urgent has come; engines that have not answered by then stay as they were.
        """
        self._needed = frozenset(needed)
        idle = [replica for replica in self._replicas if self._work is None or self._work[0] is not replica]
        for replica in idle:
            if replica.look is None or replica.look.is_done(0):  # what an old look saw may be long gone
                replica.look = Errand(partial(_look, replica))
        deadline = time.monotonic() + PATIENCE_S
        for replica in idle:
            assert replica.look is not None
            try:
                patience = deadline - time.monotonic()
                if not (replica.look.is_done(GRACE_S) or replica.look.is_done(patience, interrupted)):
                    if interrupted():
                        continue
                    raise EngineUnavailable(f"engine {replica.server.url} does not answer within {PATIENCE_S:g} s")
                replica.listed = replica.look.result()
                replica.proven &= replica.listed
                replica.answers = replica.observed = True
            except ServingError as error:
                if replica.answers:
                    log.warning("engine %s: out of service: %s", replica.server.url, error)
                replica.answers = False

    def make_ready(self, versions: Iterable[ModelVersion], interrupted: Callable[[], bool]) -> None:
        """Load and prove what engines lack, one engine and one adapter at a time.

        Args:
            versions: in order of urgency.
            interrupted: whether something urgent has come; what is not done yet then waits for the next call.
        """
        if not self._is_idle(interrupted):
            return
        begun = False  # At least one is done: what interrupts all the time must not keep engines from ever being ready.
        deadline = time.monotonic() + PATIENCE_S
        for version in versions:
            for replica in self._for_adapters:
                if not replica.answers or version.serving_name in replica.proven:
                    continue
                if begun and (interrupted() or time.monotonic() > deadline):
                    return
                begun = True
                if not self._is_done(replica, partial(self._load, replica, version), interrupted):
                    return

    def _is_done(self, replica: _Replica, call: Callable[[], None], interrupted: Callable[[], bool]) -> bool:
        """Begin a change of an engine; tell whether it has ended already."""
        self._work = replica, Errand(call)
        return self._is_idle(interrupted)

    def _is_idle(self, interrupted: Callable[[], bool]) -> bool:
        """Whether the last change of an engine has ended, after waiting a little for it."""
        if self._work is not None:
            _, errand = self._work
            if not (errand.is_done(GRACE_S) or errand.is_done(PATIENCE_S, interrupted)):
                return False
            self._work = None
            errand.result()
        return True

    def _load(self, replica: _Replica, version: ModelVersion) -> None:
        if not self._may_act():
            return
        name = version.serving_name
        try:
            if version.fingerprint is None:
                raise ServingError(f"{name} has no fingerprint; without one no engine can be proven to serve it")
            folder = self._registry.fetch(version, self.adapters_dir)
            if name not in replica.listed:
                self._make_room(replica)
                replica.server.load(name, folder)
                replica.listed |= {name}
                log.info("engine %s: loaded %s", replica.server.url, name)
            prove(replica.server, name, version.fingerprint)
        except Transient as error:
            log.warning("engine %s: %s is not ready yet: %s", replica.server.url, name, error)
        except PipelineError as error:
            if replica.refused.get(name) != str(error):
                log.error("engine %s: %s gets no traffic: %s", replica.server.url, name, error)
            replica.refused[name] = str(error)
            self._forget(replica, name)
        else:
            replica.proven.add(name)
            replica.refused.pop(name, None)
            log.info("engine %s: proven to serve %s", replica.server.url, name)

    def _make_room(self, replica: _Replica) -> None:
        """Unload from a full engine what has been unneeded for the longest. What is needed is never unloaded."""
        waiting = dict(replica.unneeded_since)
        for name in sorted(waiting.keys() & replica.listed - self._needed, key=lambda name: waiting[name]):
            if len(replica.listed) < replica.room:
                return
            self._unload(replica, name)

    def _unload(self, replica: _Replica, name: str) -> None:
        self._forget(replica, name)
        replica.unneeded_since.pop(name, None)  # whoever loads it again needs it
        replica.proven.discard(name)
        replica.refused.pop(name, None)
        log.info("engine %s: unloaded %s", replica.server.url, name)

    def _forget(self, replica: _Replica, name: str) -> None:
        """Take a name off an engine; a failure is logged, and the next look tells."""
        if not self._may_act():
            return
        try:
            replica.server.unload(name)
            replica.listed -= {name}
        except ServingError as error:
            log.warning("engine %s: cannot unload %s: %s", replica.server.url, name, error)

    def ready(self, name: str) -> bool:
        """Whether every engine that answers, and at least one, is proven to serve it."""
        answering = [replica for replica in self._for_adapters if replica.answers]
        return bool(answering) and all(name in replica.proven for replica in answering)

    def refused(self, name: str) -> str | None:
        """Why an engine would not take it; None when none refused."""
        return next((replica.refused[name] for replica in self._for_adapters if name in replica.refused), None)

    def lacking(self, name: str) -> tuple[str, ...]:
        """Engines that are not proven to serve it, each with the reason."""
        return tuple(
            f"{replica.server.url}: {self._why_not(replica, name)}"
            for replica in self._for_adapters
            if name not in replica.proven
        )

    @staticmethod
    def _why_not(replica: _Replica, name: str) -> str:
        if not replica.answers:
            return "it does not answer"
        return replica.refused.get(name, "it is not loaded and proven yet")

    def replicas(self, name: str) -> tuple[str, ...]:
        """Engines to send an adapter's requests to.

        Those that are proven and whole; if no engine is whole, those that are proven and answer; if none answers, those
        that were proven when they last did. Empty when nobody ever was.
        """
        proven = [replica for replica in self._for_adapters if name in replica.proven]
        answering = [replica for replica in proven if replica.answers]
        whole = [replica for replica in answering if replica.proven >= self._needed]
        return tuple(replica.server.url for replica in whole or answering or proven)

    def may_still_serve(self, name: str, urls: Iterable[str]) -> tuple[str, ...]:
        """Those of the engines that were proven by an earlier controller and of which nothing contrary is known: not
        looked at yet, silent at the moment, or still holding the adapter."""
        fallen = {
            replica.server.url
            for replica in self._for_adapters
            if name in replica.refused or (replica.observed and replica.answers and name not in replica.listed)
        }
        return tuple(url for url in urls if url not in fallen)

    def base_replicas(self) -> tuple[str, ...]:
        """Engines to send requests for the base model to: those that answer, else all."""
        serving = [replica for replica in self._replicas if replica.serves != "adapters"]
        return tuple(r.server.url for r in [r for r in serving if r.answers] or serving)

    def tidy(self, wanted: frozenset[str], ours: frozenset[str], now: datetime) -> None:
        """Unload what nobody has needed for a while. Folders stay: engines die when an adapter's folder is gone.

        Args:
            wanted: names to keep.
            ours: names that may be unloaded; others (a version at the gate, if for the second time) belong to somebody
                else.
        """
        for replica in self._for_adapters:
            unneeded, known = replica.listed & ours - wanted, replica.unneeded_since
            replica.unneeded_since = {name: known.get(name, now) for name in unneeded}
        for replica in self._for_adapters:
            for name, since in dict(replica.unneeded_since).items():
                if not self._is_idle(_never):
                    return
                if replica.answers and now - since >= UNLOAD_AFTER:
                    self._is_done(replica, partial(self._unload, replica, name), _never)

    def describe(self) -> list[dict[str, object]]:
        """For the status page."""
        return [
            {
                "url": replica.server.url,
                "serves": replica.serves,
                "answers": replica.answers,
                "proven": sorted(replica.proven),
                "refused": dict(replica.refused),
            }
            for replica in self._replicas
        ]


def _look(replica: _Replica) -> frozenset[str]:
    """What an engine holds.

    Raises:
        ServingError: it does not answer, or not as an engine does.
    """
    if replica.serves != "base":
        return frozenset(replica.server.list())
    if not replica.server.health():
        raise EngineUnavailable(f"engine {replica.server.url} takes no requests; see its log, or start it")
    return frozenset()


def _never() -> bool:
    return False
