"""A small world for the controller: engines, a registry, a gateway and users, all in one process.

Everything that a controller calls can be made to crash at its n-th call (`World.crash_at`), before or after it acted,
as a killed process would; a new controller then goes on with what is on disk, in the registry and in the engines.
"""

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flows.controller.controller import Controller
from pipeline.config import BusinessConfig, Config, RolloutConfig, StepConfig, SystemConfig
from pipeline.control import open_control_in
from pipeline.errors import ServingError
from pipeline.gateway.routing import assign, assignment_hash, target_of
from pipeline.records import GateDecision, ModelVersion, Route, Verdict, canonical_json
from pipeline.registry.alias_log import AliasLog
from pipeline.registry.memory import MemoryRegistry
from pipeline.rollout.lease import Lease
from pipeline.rollout.state import Canary, Outcome, Paused, Steady, stable_of
from pipeline.rollout.store import RolloutStore
from pipeline.serving.proof import fingerprint
from pipeline.serving.scripted import Faults, ScriptedEngine
from pipeline.serving.vllm import VllmServer
from pipeline.train.process import ADAPTER_FILES, adapter_digest
from tests.builders import an_adapter, an_interaction
from tests.controller_parts import FakeGateway, Fragile

MORNING = datetime(2026, 3, 10, 8, tzinfo=UTC)
PATIENCE_S = 5.0
"""How long a controller may be silent before another one leads."""
PROBES = tuple(" ".join(f"{text}{word}" for word in range(60)) for text in "ab")
"""Long enough for any two scripted adapters to lie far apart."""


class ScriptedEngines:
    """Two engines for adapters and one for the base, for many worlds one after the other."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self.engines = {name: self._running.enter_context(ScriptedEngine()) for name in ("base", "one", "two")}
        self.servers = {name: VllmServer(engine.url, "base") for name, engine in self.engines.items()}

    def __enter__(self) -> "ScriptedEngines":
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def forget(self) -> None:
        """Be as new."""
        for engine in self.engines.values():
            engine.faults = Faults()
            engine.loads = 0
            engine.restart()


class World:
    """Engines, a registry, a gateway and one business: `with World(folder, engines) as world`."""

    def __init__(
        self, folder: Path, engines: ScriptedEngines, registry: Any = None, max_adapters: int = 16, **rollout: Any
    ) -> None:
        self.folder = folder
        engines.forget()
        self.engines, self.servers = engines.engines, engines.servers
        steps = (
            StepConfig(share=0.5, min_minutes=5, min_users=10, timeout_minutes=60),
            StepConfig(share=1.0, min_minutes=5, min_users=10, timeout_minutes=60),
        )
        self.business = BusinessConfig.model_validate(
            {
                "business": "support",
                "title": "Support",
                "language": "en",
                "report_language": "en",
                "timezone": "Europe/Berlin",
                "nightly": "0 2 * * *",
                "rollout": RolloutConfig(steps=steps, **rollout),
            }
        )
        engine_configs = [
            {
                "name": name,
                "url": engine.url,
                "serves": "base" if name == "base" else "adapters",
                "max_adapters": max_adapters,
            }
            for name, engine in self.engines.items()
        ]
        self.config = Config(
            directory=folder,
            system=SystemConfig.model_validate(
                {
                    "state_dir": folder / "state",
                    "base_model": {"id": "base", "revision": "r1", "path": folder / "base"},
                    "engines": engine_configs,
                }
            ),
            businesses={"support": self.business},
        )
        self.registry: Any = registry or MemoryRegistry()
        self.gateway = FakeGateway()
        self.now = MORNING
        self.broken: set[int] = set()
        """Versions whose files no engine can serve rightly."""
        self.crash_at: int | None = None
        """Number of the call to crash at; None never. Even numbers crash before the call acts, odd ones after."""
        self.calls = 0
        self.busy = False
        """Something urgent waits all the time: engines get one adapter a tick."""
        self._database = open_control_in(folder)
        self.store = RolloutStore(self._database)
        self.alias_log = AliasLog(self._database)
        self.controller = self.new_controller()
        (folder / "state" / "events" / "segments").mkdir(parents=True)

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self._database.dispose()

    def new_controller(self, holder: str = "this") -> Controller:
        """As after a restart; or, under another name, one more beside it."""
        state = self.config.state_dir
        self.controller = Controller(
            self.config,
            Fragile(self.registry, self),
            {name: Fragile(server, self) for name, server in self.servers.items()},
            Fragile(self.store, self),  # type: ignore[arg-type]
            Lease(self._database, holder, PATIENCE_S, clock=lambda: (self.now - MORNING).total_seconds()),
            events_dir=state / "events",
            adapters_dir=state / "adapters",
            push_routes=Fragile(self.gateway, self).push,
            read_trips=Fragile(self.gateway, self).trips,
            validate=self.validate,
            who_set=self.alias_log.who_set,
            clock=lambda: self.now,
            interrupted=lambda: self.busy,
        )
        return self.controller

    def validate(self, folder: Path, version: ModelVersion) -> None:
        if version.version in self.broken:
            raise ServingError(f"version {version.version}: its tensors hold nan")

    def tick(self, minutes: float = 0) -> None:
        """Let time pass, and the controller look."""
        self.now += timedelta(minutes=minutes)
        self.controller.tick(self.now)
        unexpected = [problem for problem in self.controller.problems.values() if problem.startswith("unexpected")]
        assert not unexpected, unexpected

    def publish_version(self, gate: str = "promote") -> int:
        """Train, register, measure and gate one more adapter, as a night does."""
        number = len(self.registry.versions("support")) + 1
        folder = self.folder / "trained" / str(number)
        folder.mkdir(parents=True)
        config, weights = ADAPTER_FILES
        (folder / config).write_text('{"r": 8}', encoding="utf-8")
        (folder / weights).write_bytes(f"weights {number}".encode())
        version = self.registry.register(an_adapter(sha256=adapter_digest(folder)), folder, {}, "a test")
        one = self.servers["one"]
        one.load(version.serving_name, folder)
        measured = fingerprint(self.servers["base"], one, "base", version.serving_name, PROBES)
        one.unload(version.serving_name)
        self.engines["one"].loads = 0
        self.registry.record_fingerprint("support", version.version, measured)
        if gate != "pending":
            self._decide(version, gate)
        return version.version

    def _decide(self, version: ModelVersion, gate: str) -> None:
        report = self.folder / "gate.html"
        report.write_text("<h1>gate</h1>", encoding="utf-8")
        decision = GateDecision(
            decision_id="0" * 64,
            business="support",
            baseline="base",
            candidate=version.serving_name,
            verdict=Verdict(gate),
            reason="a test",
            checks=(),
            seed=0,
        )
        self.registry.record_decision(decision, version.version, report)

    def put_in_service(self, version: int) -> None:
        """As if its canary had gone well; what served before is `previous`."""
        stored = self.store.read("support")
        outcome = Outcome(
            version=version,
            result="promoted",
            reason="all steps passed",
            actor="anna",
            started_at=self.now,
            ended_at=self.now,
            steps=(),
        )
        steady = Steady(business="support", stable=version, previous=stable_of(stored.state), last=outcome)
        ledger = stored.ledger.model_copy(update={"state": steady, "newest_tried": version})
        self.store.write(ledger, stored.generation, self.now)

    def promoted(self) -> int:
        """A version in service, as if its canary had gone well, with its predecessor for rollback."""
        number = self.publish_version()
        self.put_in_service(number)
        self.tick()
        return number

    def in_canary(self) -> tuple[int, int]:
        """Stable version and candidate of a canary under way."""
        stable = self.promoted()
        candidate = self.publish_version()
        self.ask("promote", candidate)
        self.tick(minutes=1)
        assert isinstance(self.state, Canary)
        return stable, candidate

    @property
    def state(self) -> Steady | Canary | Paused:
        return self.store.read("support").state

    @property
    def route(self) -> Route:
        """As the gateway has it."""
        return self.gateway.route("support")

    @property
    def actions(self) -> list[str]:
        """Of the audit trail."""
        return [entry.action for entry in self.store.history("support")]

    def name(self, version: int) -> str:
        """Serving name."""
        return self.registry.get("support", version).serving_name

    def ask(self, alias: Any, version: int) -> None:
        """Set an alias, as a person does in the registry."""
        self.registry.set_alias("support", alias, version)

    def aliases(self) -> dict[str, int]:
        return self.registry.aliases("support")

    def tags(self, version: int) -> dict[str, str]:
        return self.registry.tags("support", version)

    def urls(self, *names: str) -> tuple[str, ...]:
        """Of engines."""
        return tuple(self.engines[name].url for name in names)

    def talk(self, users: int = 60, **candidate: Any) -> None:
        """Let users ask once each, through the routes that the gateway has.

        Args:
            candidate: fields of the interactions that the candidate's arm has, such as `status=500`.
        """
        route = self.route
        lines = []
        for user in range(users):
            position = assignment_hash(route.salt, f"u{user}")
            assignment = assign(route, position)
            target = target_of(route, assignment.arm)
            fields: dict[str, Any] = {
                "user_key": f"u{user}",
                "session": f"s{user}",
                "arm": assignment.arm,
                "share": assignment.share,
                "rollout_salt": route.salt,
                "model_version": target.model,
                "started_at": self.now,
                "timings": {"queue_ms": 0.0, "ttft_ms": 90.0, "total_ms": 100.0},
                "usage": {"prompt_tokens": 5, "completion_tokens": 9},
            }
            if assignment.arm == "candidate":
                fields |= candidate
            interaction = an_interaction(f"{self.now:%H%M%S}-{user}", **fields)
            lines.append(canonical_json({"interaction": interaction.model_dump(mode="json")}) + "\n")
        path = self.config.state_dir / "events" / "segments" / f"gw-{self.now:%Y%m%dT%H}.jsonl"
        with path.open("a", encoding="utf-8") as segment:
            segment.writelines(lines)

    def outcome(self) -> dict[str, Any]:
        """All that a person could see, to compare two worlds by."""
        ledger = self.store.read("support").ledger
        return {
            "state": ledger.state,
            "owed": ledger.owed,
            "aliases": self.aliases(),
            "tags": {version: self.tags(version) for _, version in self.registry.entries},
            "loaded": {name: self._loaded(name) for name in self.engines},
            "routes": self._nameable(self.gateway.routes.routes),
            "published": self._nameable(self.store.routes().routes),
            "audit": [(e.actor, e.action, e.detail) for e in self.store.history("support")],
            "reports": sorted(p.name for p in (self.config.state_dir / "reports").rglob("*.html")),
        }

    def _loaded(self, name: str) -> list[str]:
        return sorted(model["id"] for model in self.engines[name].models()["data"] if model["parent"])

    def _nameable(self, routes: tuple[Route, ...]) -> list[str]:
        told = [route.model_dump_json() for route in routes]
        for name, engine in self.engines.items():
            told = [text.replace(engine.url, name) for text in told]
        return told
