"""Deals with what is asked for in the registry: reads it, checks it, grants or refuses it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from flows.controller.fleet import Fleet
from flows.controller.publisher import Publisher
from flows.controller.versions import VersionBook
from pipeline.config import BusinessConfig, Config
from pipeline.errors import PipelineError, RolloutRefused, Transient
from pipeline.events.visits import read_visits
from pipeline.records import ModelVersion, Verdict
from pipeline.registry.base import ModelRegistry
from pipeline.rollout.ab import AbTest
from pipeline.rollout.forecast import first_looks, shortfall
from pipeline.rollout.ledger import Asked, AuditEntry, Request, record_decision
from pipeline.rollout.requests import is_wished, read_request
from pipeline.rollout.state import Action, Steady, canary_of, previous_of, return_to, stable_of, start
from pipeline.rollout.store import RolloutStore, Stored


class Desk:
    """Between the wishes in the registry and the ledgers."""

    def __init__(
        self,
        config: Config,
        registry: ModelRegistry,
        versions: VersionBook,
        store: RolloutStore,
        fleet: Fleet,
        publisher: Publisher,
        events_dir: Path,
        validate: Callable[[Path, ModelVersion], None],
        who_set: Callable[[str, str, int], str | None],
    ) -> None:
        self._config = config
        self._registry = registry
        self._versions = versions
        self._store = store
        self._fleet = fleet
        self._publisher = publisher
        self._events_dir = events_dir
        self._validate = validate
        self._who_set = who_set
        self.aliases: dict[str, dict[str, int]] = {}
        """Of each business, as they were last read."""
        self._read_at: dict[str, int] = {}
        """Of each business, the ledger's generation at that time."""

    def read(self, business: BusinessConfig, now: datetime) -> Request | None:
        """What somebody asked for and may have; what they may not have is refused here.

        Raises:
            RegistryError: the registry cannot be read.
        """
        stored = self._store.read(business.business)
        if stored.ledger.owed:
            return None  # Dealt with but still standing in the registry: its aliases are not to be trusted yet.
        aliases = self.aliases[business.business] = self._registry.aliases(business.business)
        quiet = stored.generation > 0 and not business.rollout.auto_canary
        if quiet and not is_wished(stored.ledger, aliases):
            return None  # The usual case costs the registry one call.
        versions = self._versions.refresh(business.business)
        if stored.generation == 0:
            stored = self._begin(stored, aliases, versions, now)
        request = read_request(stored.ledger, aliases, versions, business.rollout.auto_canary)
        if request is None:
            return None
        self._read_at[business.business] = stored.generation
        if request.source != "command":
            request = request._replace(by=self._who_set(business.business, request.source, request.version))
        if reason := self.refusal(stored, request):
            self._refuse(stored, request, reason, now)
            return None
        return request

    def ask(
        self, business: BusinessConfig, version: int, by: str, reason: str, now: datetime, ab: AbTest | None = None
    ) -> Stored:
        """Write down that a person commands a version's canary or an A/B test with it; `grant` begins it when the
        engines are ready.

        Raises:
            RolloutRefused: it may not have one.
            RegistryError: the registry cannot be read.
            WriteConflict: somebody else decided meanwhile.
        """
        stored = self._store.read(business.business)
        versions = self._versions.refresh(business.business)
        if stored.generation == 0:
            stored = self._begin(stored, self._registry.aliases(business.business), versions, now)
        canary = canary_of(stored.state)
        if canary is not None and canary.candidate == version:
            return stored  # A second call changes nothing.
        request = Request("promote", version, "command", by, reason, ab)
        if refusal := self.refusal(stored, request):
            if self._versions.find(business.business, version):
                self._refuse(stored, request, refusal, now)
            raise RolloutRefused(f"version {version} of '{business.business}' is not rolled out: {refusal}")
        ledger = stored.ledger.model_copy(update={"asked": Asked(version=version, by=by, reason=reason, at=now, ab=ab)})
        entry = AuditEntry(
            at=now, business=business.business, actor=by, action="ask", detail={"version": version, "reason": reason}
        )
        return self._store.write(ledger, stored.generation, now, entry)

    def grant(self, business: BusinessConfig, request: Request, now: datetime) -> bool:
        """Do what was asked for, if the engines are ready; tell whether it is dealt with. The caller publishes.

        When somebody else has decided since the request was read, that may have been about it: the next look tells.
        """
        stored = self._store.read(business.business)
        state = stored.state
        if stored.generation != self._read_at[business.business]:
            return True
        if request.kind == "return":
            return self._return(stored, request, now)
        if not isinstance(state, Steady):  # Only asked for the version that is in its canary: others were refused.
            reason = "it is in its canary already"
            self._store.decide(stored, state, now, actor=request.actor, action="none", reason=reason, request=request)
            return True
        name = self._versions.get(business.business, request.version).serving_name
        if refused := self._fleet.refused(name):
            self._refuse(stored, request, f"engines do not serve it: {refused}", now)
            return True
        if request.ab and request.ab.until <= now:
            self._refuse(stored, request, f"the A/B test was to end at {request.ab.until}, which is past", now)
            return True
        if not self._fleet.ready(name):
            return False
        if too_small := None if request.ab else self._too_small(business, now):
            self._refuse(stored, request, too_small, now)
            return True
        canary = start(state, request.version, now, business.rollout, request.actor, request.ab)
        self._store.decide(
            stored, canary, now, actor=request.actor, action="start", reason=request.told, request=request
        )
        return True

    def _too_small(self, business: BusinessConfig, now: datetime) -> str | None:
        """Why the business's traffic cannot carry its canary's steps; None when it can, or nobody knows.

        Raises:
            DataError: the event log cannot be read.
        """
        steps = business.rollout.steps
        return shortfall(read_visits(self._events_dir, business.business, first_looks(steps, now), now), steps, now)

    def _return(self, stored: Stored, request: Request, now: datetime) -> bool:
        state = stored.state
        target = self._publisher.target(state.business, request.version)
        if request.version != stable_of(state) and not target.replicas:
            return False
        why = f"return to version {request.version}"
        steady = return_to(state, request.version, request.actor, why, now)
        self._store.decide(
            stored, steady, now, actor=request.actor, action=Action.ROLL_BACK, reason=why, request=request
        )
        return True

    def _begin(
        self, stored: Stored, aliases: Mapping[str, int], versions: Sequence[ModelVersion], now: datetime
    ) -> Stored:
        """Write a business's first ledger. The registry has a champion already when the control database was lost."""
        champion = next((v for v in versions if v.version == aliases.get("champion") and _approved(v)), None)
        if champion is None:
            return self._store.write(stored.ledger, 0, now)
        state = Steady(business=champion.business, stable=champion.version, previous=aliases.get("previous"))
        ledger, entry = record_decision(
            stored.ledger, state, actor="controller", action="adopt", reason="champion of the registry", now=now
        )
        newest = max(version.version for version in versions)
        return self._store.write(ledger.model_copy(update={"newest_tried": newest}), 0, now, entry)

    def _refuse(self, stored: Stored, request: Request, reason: str, now: datetime) -> None:
        self._store.decide(
            stored, stored.state, now, actor=request.actor, action="refuse", reason=reason, request=request
        )

    def refusal(self, stored: Stored, request: Request) -> str | None:
        """Why a request cannot be granted; None when it can."""
        state, canary = stored.state, canary_of(stored.state)
        version = self._versions.find(state.business, request.version)
        if version is None:
            return f"there is no version {request.version}"
        if request.kind == "return" and request.version in (stable_of(state), previous_of(state)):
            return None
        if request.kind == "promote" and request.version == stable_of(state):
            return f"version {request.version} is in service already"
        if request.kind == "promote" and canary is not None:
            same = request.version == canary.candidate
            if canary.ab:
                return f"an A/B test with version {canary.candidate} is under way; end it with `tuneloop rollout step`"
            return None if same else f"version {canary.candidate} is in its canary; wait for its end or roll it back"
        if not _approved(version):
            return f"its gate says {version.gate}; a tag `override` with a name and a reason lets it pass"
        return self._unfit(version)

    def _unfit(self, version: ModelVersion) -> str | None:
        """Why engines must not be given the adapter, from its lineage and its files alone."""
        served, adapter = self._config.system.base_model, version.adapter
        if adapter.business != version.business:
            return f"its adapter was trained for '{adapter.business}'"
        if (adapter.base.id, adapter.base.revision) != (served.id, served.revision):
            return (
                f"it was trained on {adapter.base.id} revision {adapter.base.revision}, and engines serve "
                f"{served.id} revision {served.revision}; train it anew"
            )
        room = min(engine.max_adapters for engine in self._config.system.engines if engine.serves != "base")
        try:
            if len({*needed_versions(self._config, self._store, self._versions), version.serving_name}) > room:
                return f"engines have room for {room} adapters and all of it is in use; raise `max_adapters`"
            self._validate(self._registry.fetch(version, self._fleet.adapters_dir), version)
        except PipelineError as error:
            if isinstance(error, Transient):
                raise  # The registry is away for a moment: that says nothing about the version.
            return str(error)
        return None


def needed_versions(config: Config, store: RolloutStore, versions: VersionBook) -> dict[str, ModelVersion]:
    """Serving name to version of all that engines must hold, the most needed first."""
    states = [store.read(name).state for name in config.businesses]
    wanted = [(state.business, stable_of(state)) for state in states]
    wanted += [(canary.business, canary.candidate) for canary in map(canary_of, states) if canary]
    wanted += [(state.business, previous_of(state)) for state in states]
    found = [versions.get(business, number) for business, number in wanted if number is not None]
    return {version.serving_name: version for version in found}


def _approved(version: ModelVersion) -> bool:
    return version.gate == Verdict.PROMOTE or bool(version.override)
