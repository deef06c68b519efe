"""The one leader: makes engines, aliases and routes agree with what was decided, over and over.

`tick` is level-triggered and idempotent: it may die at any point, and the next one ends in the same state. What is
served changes in one place only, the business's ledger, by compare-and-set; everything else follows from it. After a
rollback the routes are pushed before anything else is touched.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from flows.controller.aftermath import align_aliases, is_aligned, settle
from flows.controller.analysis import CanaryAnalysis, Conclusion
from flows.controller.desk import Desk, needed_versions
from flows.controller.fleet import Fleet
from flows.controller.publisher import ATTEMPTS, Publisher
from flows.controller.versions import VersionBook
from flows.lock import gate_is_on
from pipeline.config import BusinessConfig, Config
from pipeline.errors import PipelineError, RolloutRefused
from pipeline.gateway.guard import Trip
from pipeline.records import ModelVersion, Routes, StepEvidence
from pipeline.registry.base import ModelRegistry
from pipeline.rollout.ab import AbTest
from pipeline.rollout.guardrails import Evidence
from pipeline.rollout.lease import Lease
from pipeline.rollout.ledger import Request
from pipeline.rollout.state import (
    Action,
    Canary,
    Decision,
    Paused,
    Steady,
    canary_of,
    confirm,
    pause,
    resume,
    roll_back,
)
from pipeline.rollout.store import RolloutStore, Stored, WriteConflict
from pipeline.serving.base import AdapterServer

log = logging.getLogger(__name__)


TIDY_EVERY = timedelta(seconds=30)


class Seen(NamedTuple):
    """What the last look at a business showed; for the status page."""

    at: datetime
    action: str
    reason: str
    step: StepEvidence | None = None


class Controller:
    """Brings what was decided into service.

    `tick` belongs to one thread; the other methods may be called from any.
    """

    def __init__(
        self,
        config: Config,
        registry: ModelRegistry,
        servers: Mapping[str, AdapterServer],
        store: RolloutStore,
        lease: Lease,
        *,
        events_dir: Path,
        adapters_dir: Path,
        push_routes: Callable[[Routes], None],
        read_trips: Callable[[], Sequence[Trip]],
        validate: Callable[[Path, ModelVersion], None],
        who_set: Callable[[str, str, int], str | None],
        clock: Callable[[], datetime],
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            servers: by the engines' names in the configuration.
            lease: of all controllers on this database only its holder acts by itself; people may command any.
            push_routes: gives a table to all gateways; raises `PipelineError` when one did not take it.
            read_trips: from all gateways.
            validate: refuses an adapter's folder, by `ServingError`, that engines cannot serve rightly.
            who_set: tells who set an alias of a business on a version, if that is known.
            clock: for calls from people; `tick` is told the time.
            interrupted: whether something urgent waits; engines are then left for the next tick.
        """
        self.config = config
        self.store = store
        self.lease = lease
        self._own = store.fenced(lease)
        """For what the loop decides by itself."""
        self._registry = registry
        self._versions = VersionBook(registry)
        self.fleet = Fleet(config.system.engines, servers, registry, adapters_dir, lease.is_held)
        self._publisher = Publisher(config, store, self.fleet, self._versions, push_routes)

        def desk(store: RolloutStore) -> Desk:
            return Desk(
                config, registry, self._versions, store, self.fleet, self._publisher, events_dir, validate, who_set
            )

        self._desk, self._counter = desk(self._own), desk(store)
        """The loop's, and people's."""
        self.events_dir = events_dir
        self._analysis = CanaryAnalysis(self._publisher, events_dir)
        self._read_trips = read_trips
        self._clock = clock
        self._interrupted = interrupted
        self._tidied: datetime | None = None
        self.seen: dict[str, Seen] = {}
        self.problems: dict[str, str] = {}
        self._told: dict[str, str] = {}
        """Problems of the tick before: what lasts is logged once."""

    # What people call

    def roll_back(self, business: str, actor: str, reason: str) -> Steady:
        """Undo the canary, or else the last promotion; the gateways have the routes when this returns.

        A second call changes nothing.

        Raises:
            ConfigError: there is no such business.
            PipelineError: it is rolled back, yet a gateway did not answer; that one learns it by polling.
        """

        def rolled_back(state: Steady | Canary | Paused, now: datetime) -> Decision:
            return Decision(roll_back(state, actor, reason, now), Action.ROLL_BACK, reason)

        state = self._change(business, actor, Action.ROLL_BACK, rolled_back)
        assert isinstance(state, Steady)
        return state

    def pause(self, business: str, actor: str, reason: str) -> Steady | Canary | Paused:
        """Keep the canary's share until it is resumed; guardrails still roll it back."""
        return self._change(
            business, actor, "pause", lambda state, now: Decision(pause(state, actor, now), Action.HOLD, reason)
        )

    def resume(self, business: str, actor: str, reason: str) -> Steady | Canary | Paused:
        """Let a paused canary go on."""
        return self._change(
            business, actor, "resume", lambda state, now: Decision(resume(state, now), Action.HOLD, reason)
        )

    def start(
        self, business: str, version: int, actor: str, reason: str, ab: AbTest | None = None
    ) -> Steady | Canary | Paused:
        """Ask for a version's canary, or for an A/B test with it. It begins once every engine that answers is proven to
        serve the version.

        Raises:
            ConfigError: there is no such business.
            RolloutRefused: it cannot have a canary; the version's tags tell why, too.
        """
        config = self.config.business(business)
        return self._insisting(lambda: self._counter.ask(config, version, actor, reason, self._clock(), ab).state)

    def step(self, business: str, actor: str, reason: str) -> Steady | Canary | Paused:
        """Go on to the canary's next step, as a person confirms it: see `pipeline.rollout.state.confirm`.

        Raises:
            ConfigError: there is no such business.
            RolloutRefused: the step cannot be confirmed.
            DataError: the event log cannot be read, so nobody knows what the guardrails say.
        """
        config = self.config.business(business)

        def confirmed(state: Steady | Canary | Paused, now: datetime) -> Decision:
            canary = canary_of(state)
            evidence = self._analysis.evidence(canary, config, now) if canary else None
            decision = confirm(state, evidence, now, config.rollout, reason)
            if decision.action is Action.HOLD:
                raise RolloutRefused(f"business '{business}': the next step cannot be confirmed: {decision.reason}")
            return decision

        return self._change(business, actor, "step", confirmed)

    def look_ahead(self, business: str, now: datetime) -> tuple[Stored, Conclusion]:
        """What the next look would do, were it now, with the ledger that it would do it to. Changes nothing.

        Raises:
            ConfigError: there is no such business.
            PipelineError: what it would be decided on cannot be read.
        """
        config = self.config.business(business)
        stored = self.store.read(business)
        canary = canary_of(stored.state)
        evidence = self._analysis.evidence(canary, config, now) if canary else None
        trips = self._read_trips() if canary else ()
        return stored, self._analysis.conclude(stored.state, evidence, trips, config, now)

    def waits_for(self, business: str, version: int | None) -> tuple[str, ...]:
        """Engines that are not proven to serve a version (as far as it is known), and why not."""
        if not self.lease.is_held():
            return (f"another controller knows: {self.lease.holder()} leads",)
        known = None if version is None else self._versions.find(business, version)
        return self.fleet.lacking(known.serving_name) if known else ()

    def routes(self) -> Routes:
        """The table as it was last published, for gateways that poll."""
        return self.store.routes()

    def _change(
        self,
        business: str,
        actor: str,
        action: str,
        decide: Callable[[Steady | Canary | Paused, datetime], Decision],
    ) -> Steady | Canary | Paused:
        self.config.business(business)

        def change() -> Steady | Canary | Paused:
            now = self._clock()
            stored = self.store.read(business)
            decision = decide(stored.state, now)
            withdrawn = action == Action.ROLL_BACK and stored.ledger.asked
            if decision.state == stored.state and not withdrawn:
                return stored.state
            self.store.decide(stored, decision.state, now, actor=actor, action=action, reason=decision.reason)
            self.seen[business] = Seen(now, action, decision.reason)
            return decision.state

        state = self._insisting(change)
        self._publisher.publish(self._clock(), self.store)
        return state

    @staticmethod
    def _insisting(change: Callable[[], Steady | Canary | Paused]) -> Steady | Canary | Paused:
        """Do it again when somebody else was quicker."""
        for _ in range(ATTEMPTS - 1):
            try:
                return change()
            except WriteConflict:
                continue
        return change()

    # The loop

    def tick(self, now: datetime) -> None:
        """Look at everything once and bring it a step nearer to what it must be, or look on while another leads."""
        self._told, self.problems = self.problems, {}
        leads = False
        with self._surviving("lease"):
            leads = self.lease.hold()
        if leads:
            self._lead(now)
        else:
            self._follow()

    def _follow(self) -> None:
        """Know which engines answer, for what people command here, and for taking over."""
        self.seen.clear()  # what this one decided when it led says nothing of now
        with self._surviving("engines"):
            self.fleet.observe(needed_versions(self.config, self.store, self._versions), self._interrupted)

    def _lead(self, now: datetime) -> None:
        trips: Sequence[Trip] = ()
        with self._surviving("gateways"):
            trips = self._read_trips()
        requests: dict[str, Request] = {}
        for name, business in self.config.businesses.items():
            with self._surviving(f"{name}: rollout"):
                self._advance(business, trips, now)
            with self._surviving(f"{name}: registry"):
                self._settle(business, now)
                if request := self._desk.read(business, now):
                    requests[name] = request
                if request and self._desk.grant(business, request, now):
                    del requests[name]
                    self._publish(now)
        with self._surviving("engines"):
            self._bring_up(requests)
        for name, request in requests.items():
            with self._surviving(f"{name}: rollout"):
                self._desk.grant(self.config.businesses[name], request, now)
        self._publish(now)
        for name, business in self.config.businesses.items():
            with self._surviving(f"{name}: registry"):
                if not self.lease.is_held():
                    return  # Stopped for so long that another one has taken over: what is not fenced is theirs.
                self._settle(business, now)
                if not is_aligned(self.store.read(name).ledger, self._desk.aliases.get(name, {})):
                    align_aliases(self._own, self._registry, name, now)
        with self._surviving("engines: clean-up"):
            self._tidy(requests, now)

    def _advance(self, business: BusinessConfig, trips: Sequence[Trip], now: datetime) -> None:
        """Let the evidence, or a gateway's alarm, decide on a canary."""
        stored = self.store.read(business.business)
        canary = canary_of(stored.state)
        if canary is None:
            return
        evidence: Evidence | None = None
        with self._surviving(f"{canary.business}: evidence"):
            evidence = self._analysis.evidence(canary, business, now)
        decision, actor, shown = self._analysis.conclude(stored.state, evidence, trips, business, now)
        self.seen[business.business] = Seen(now, decision.action, decision.reason, shown)
        if decision.action is not Action.HOLD:
            self._own.decide(stored, decision.state, now, actor=actor, action=decision.action, reason=decision.reason)
            self._publish(now)

    # What follows from the ledgers

    def _bring_up(self, requests: Mapping[str, Request]) -> None:
        needed = needed_versions(self.config, self.store, self._versions)
        self.fleet.observe(needed, self._interrupted)
        asked = [self._versions.get(business, request.version) for business, request in requests.items()]
        self.fleet.make_ready([*needed.values(), *asked], self._interrupted)

    def _tidy(self, requests: Mapping[str, Request], now: datetime) -> None:
        if self._tidied and now - self._tidied < TIDY_EVERY:
            return
        for name in self.config.businesses:
            self._versions.refresh(name)
        self._tidied = now
        needed = needed_versions(self.config, self.store, self._versions)
        asked = {self._versions.get(business, request.version).serving_name for business, request in requests.items()}
        ours = [name for name in self.config.businesses if not gate_is_on(self.config.state_dir, name)]
        self.fleet.tidy(frozenset(needed) | asked, self._versions.judged(ours), now)

    def _settle(self, business: BusinessConfig, now: datetime) -> None:
        settle(self._own, self._registry, self._versions, business, self.config.state_dir / "reports", now)

    def _publish(self, now: datetime) -> None:
        with self._surviving("routes"):
            self._publisher.publish(now, self._own)

    @contextmanager
    def _surviving(self, where: str) -> Iterator[None]:
        """One thing that fails must not keep the others from being done; the next tick tries again."""
        try:
            yield
        except (PipelineError, SQLAlchemyError) as error:
            problem = str(error)
            if isinstance(error, SQLAlchemyError):
                problem = f"the control database refuses: {' '.join(problem.split())[:200]}; free some space"
            self.problems[where] = problem
            if self._told.get(where) != problem:
                log.warning("%s: %s", where, problem)
        except Exception as error:  # A mistake of ours in one business must not stop a rollback of another.
            self.problems[where] = f"unexpected: {error!r}"
            if self._told.get(where) != self.problems[where]:
                log.exception("%s: unexpected", where)
