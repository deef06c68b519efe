"""A small world for the controller: engines, a registry, a gateway and users, all in one process.

Everything that a controller calls can be made to crash at its n-th call (`World.crash_at`), before or after it acted,
as a killed process would; a new controller then goes on with what is on disk, in the registry and in the engines.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flows.controller import Controller
from pipeline.config import BusinessConfig, Config, RolloutConfig, StepConfig, SystemConfig
from pipeline.control import open_control
from pipeline.errors import EngineUnavailable, RegistryError, RegistryUnavailable, ServingError
from pipeline.gateway.guard import Trip
from pipeline.gateway.routing import assign, assignment_hash, target_of
from pipeline.records import Adapter, Fingerprint, GateDecision, ModelVersion, Route, Routes, canonical_json
from pipeline.rollout.store import RolloutStore
from tests.builders import a_version, an_interaction

MORNING = datetime(2026, 3, 10, 8, tzinfo=UTC)
TEXTS = ("a probe", "another probe")


class Crash(BaseException):
    """The process was killed here."""


class World:
    """Two engines for adapters, one for the base, and one business."""

    def __init__(self, folder: Path, **rollout: Any) -> None:
        self.folder = folder
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
        engines = [
            {"name": "base", "url": "http://127.0.0.1:1", "serves": "base"},
            {"name": "one", "url": "http://127.0.0.1:2", "serves": "adapters"},
            {"name": "two", "url": "http://127.0.0.1:3", "serves": "adapters"},
        ]
        self.config = Config(
            directory=folder,
            system=SystemConfig.model_validate(
                {
                    "state_dir": folder / "state",
                    "base_model": {"id": "base", "revision": "r1", "path": folder / "base"},
                    "engines": engines,
                }
            ),
            businesses={"support": self.business},
        )
        self.registry = FakeRegistry()
        self.servers = {str(engine["name"]): FakeServer(str(engine["url"])) for engine in engines}
        self.gateway = FakeGateway()
        self.now = MORNING
        self.broken: set[int] = set()
        """Versions whose files no engine can serve rightly."""
        self.crash_at: int | None = None
        """Number of the call to crash at; None never. Even numbers crash before the call acts, odd ones after."""
        self.calls = 0
        self._engine = open_control(f"sqlite:///{folder / 'control.db'}")
        self.store = RolloutStore(self._engine)
        self.controller = self.new_controller()
        (folder / "state" / "events" / "segments").mkdir(parents=True)

    def new_controller(self) -> Controller:
        """As after a restart."""
        state = self.config.state_dir
        self.controller = Controller(
            self.config,
            Fragile(self.registry, self),
            {name: Fragile(server, self) for name, server in self.servers.items()},
            Fragile(self.store, self),  # type: ignore[arg-type]
            events_dir=state / "events",
            adapters_dir=state / "adapters",
            push_routes=Fragile(self.gateway, self).push,
            read_trips=Fragile(self.gateway, self).trips,
            validate=self.validate,
            clock=lambda: self.now,
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

    def publish_version(self, gate: str = "promote", **adapter: Any) -> ModelVersion:
        """Register one more adapter."""
        number = len(self.registry.all) + 1
        version = a_version(number, gate=gate)
        sha = version.adapter.sha256
        fingerprint = Fingerprint(texts=TEXTS, base_logprobs=(-50.0, -60.0), adapter_logprobs=logprobs(sha))
        version = version.model_copy(
            update={"fingerprint": fingerprint, "adapter": version.adapter.model_copy(update=adapter)}
        )
        self.registry.all[number] = version
        return version

    def talk(self, users: int = 60, **candidate: Any) -> None:
        """Let users ask once each, through the routes that the gateway has.

        Args:
            candidate: fields of the interactions that the candidate's arm has, such as `status=500`.
        """
        route = self.gateway.route("support")
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
            "aliases": dict(self.registry.alias),
            "tags": {number: dict(tags) for number, tags in self.registry.tags.items()},
            "loaded": {name: server.list() for name, server in self.servers.items()},
            "routes": self.gateway.routes.routes,
            "published": self.store.routes().routes,
            "audit": [(e.actor, e.action, e.detail) for e in self.store.history("support")],
            "reports": sorted(p.name for p in (self.config.state_dir / "reports").rglob("*.html")),
        }


class Fragile:
    """Passes every call on, and crashes at the one that the world names."""

    def __init__(self, thing: Any, world: World) -> None:
        self._thing = thing
        self._world = world

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            world = self._world
            world.calls += 1
            crash = world.crash_at is not None and world.calls - 1 == world.crash_at
            if crash and world.calls % 2:
                raise Crash(f"before {name}")
            result = value(*arguments, **named)
            if crash:
                raise Crash(f"after {name}")
            return result

        return call


class FakeGateway:
    """Keeps the newest table, as gateways do."""

    def __init__(self) -> None:
        self.routes = Routes(generation=-1, routes=())
        self.pushes: list[Routes] = []
        self.tripped: tuple[Trip, ...] = ()
        self.down = False

    def push(self, routes: Routes) -> None:
        if self.down:
            raise EngineUnavailable("the gateway is down")
        self.pushes.append(routes)
        if routes.generation > self.routes.generation:
            self.routes = routes

    def trips(self) -> tuple[Trip, ...]:
        return self.tripped

    def route(self, business: str) -> Route:
        return next(route for route in self.routes.routes if route.business == business)


def logprobs(sha256: str) -> tuple[float, ...]:
    """What an adapter makes of the probe texts."""
    return tuple(-20.0 - int(sha256[index * 2 : index * 2 + 2], 16) / 16 for index in range(len(TEXTS)))


class FakeServer:
    """An engine whose behaviour a test can bend."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.loaded: dict[str, str] = {}
        self.down = False
        self.serves_base_anyway = False
        self.refuses: set[str] = set()
        self.loads = 0

    def _up(self) -> None:
        if self.down:
            raise EngineUnavailable(f"{self.url} does not answer")

    def restart(self) -> None:
        self.loaded.clear()

    def load(self, name: str, path: Path) -> None:
        self._up()
        if name in self.refuses:
            raise ServingError(f"{self.url} refuses {name}")
        self.loads += 1
        self.loaded[name] = path.name

    def unload(self, name: str) -> None:
        self._up()
        self.loaded.pop(name, None)

    def list(self) -> tuple[str, ...]:
        self._up()
        return tuple(sorted(self.loaded))

    def probe(self, model: str, texts: tuple[str, ...]) -> tuple[float, ...]:
        self._up()
        if model == "base" or self.serves_base_anyway:
            return (-50.0, -60.0)
        if model not in self.loaded:
            raise ServingError(f"{self.url} has no {model}")
        return logprobs(self.loaded[model])

    def health(self) -> bool:
        return not self.down


class FakeRegistry:
    """Versions of one business."""

    def __init__(self) -> None:
        self.all: dict[int, ModelVersion] = {}
        self.alias: dict[str, int] = {}
        self.tags: dict[int, dict[str, str]] = {}
        self.down = False

    def _up(self) -> None:
        if self.down:
            raise RegistryUnavailable("the registry does not answer")

    def register(self, adapter: Adapter, folder: Path, params: Mapping[str, str], description: str) -> ModelVersion: ...

    def fetch(self, version: ModelVersion, adapters_dir: Path) -> Path:
        self._up()
        folder = adapters_dir / version.adapter.sha256
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def versions(self, business: str) -> tuple[ModelVersion, ...]:
        self._up()
        return tuple(self.all[number] for number in sorted(self.all))

    def get(self, business: str, version: int) -> ModelVersion:
        self._up()
        if version not in self.all:
            raise RegistryError(f"no version {version}")
        return self.all[version]

    def record_fingerprint(self, business: str, version: int, fingerprint: Fingerprint) -> None: ...

    def record_decision(self, decision: GateDecision, version: int, report: Path) -> None: ...

    def aliases(self, business: str) -> dict[str, int]:
        self._up()
        return dict(self.alias)

    def set_alias(self, business: str, alias: str, version: int) -> None:
        self._up()
        self.alias[alias] = version

    def drop_alias(self, business: str, alias: str) -> None:
        self._up()
        self.alias.pop(alias, None)

    def set_tags(self, business: str, version: int, tags: Mapping[str, str]) -> None:
        self._up()
        self.tags.setdefault(version, {}).update(tags)
