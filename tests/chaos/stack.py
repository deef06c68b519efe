"""Two gateways, two engines, MLflow and the controller: real processes on one host, with versions to promote."""

import hashlib
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from pipeline.config import Config, Settings, child_environment, load_config
from pipeline.control import open_control
from pipeline.gateway.auth import create_key
from pipeline.records import GateDecision, Verdict
from pipeline.registry.mlflow import MlflowRegistry
from pipeline.rollout.state import Steady
from pipeline.rollout.store import RolloutStore
from pipeline.serving.proof import fingerprint
from pipeline.serving.scripted import ScriptedEngine
from pipeline.serving.vllm import VllmServer
from pipeline.train.base_ref import base_model_ref
from pipeline.train.process import ADAPTER_FILES, adapter_digest
from tests.adapter_files import adapter_tensors, write_adapter, write_base
from tests.builders import an_adapter
from tests.chaos.engine import BASE_CONTENT
from tests.chaos.part import ROOT, NotStarted, Part, free_ports
from tests.chaos.schedule import ENGINES, GATEWAYS

BUSINESS = "support"
SECRETS = Settings(user_salt="salt", admin_key="admin", webhook_secret="hook", report_secret="reports")
ADMIN = {"Authorization": "Bearer admin"}
STEPS = ((0.2, 0.05, 5, 1.0), (0.5, 0.05, 5, 1.0), (1.0, 0.05, 5, 1.0))
"""Share, least minutes, least users, minutes until the time-out: seconds where a business takes hours."""
_BLINK_S = 0.1
_ROUTED_WITHIN_S = 120.0
_PROBES = tuple(" ".join(f"{text}{word}" for word in range(60)) for text in "ab")
"""Long enough for any two scripted adapters to lie far apart."""


@dataclass
class Stack:
    """All parts by name, and what they share.

    Args:
        folder: for configurations and logs.
        state_dir: what the parts keep.
        steps: of the canary, as `STEPS`.
        poll_s: the controller's.
        token_ms: between two words of an engine.
    """

    folder: Path
    state_dir: Path
    steps: Sequence[tuple[float, float, int, float]] = STEPS
    poll_s: float = 1.0
    token_ms: float = 40.0
    parts: dict[str, Part] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=lambda: {"base": BASE_CONTENT})
    """Serving name to the digest that engines tell of it."""

    def __post_init__(self) -> None:
        self._client = httpx.Client(trust_env=False)
        names = (*GATEWAYS, *(f"{name} admin" for name in GATEWAYS), *ENGINES, "controller", "mlflow")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        (self.folder / "logs").mkdir(parents=True)
        write_base(self.folder / "base")
        configs = {name: self._configure(name) for name in GATEWAYS}
        self.config: Config = load_config(configs[GATEWAYS[0]])
        self._database = open_control(f"sqlite:///{self.state_dir / 'control.db'}")
        self.store = RolloutStore(self._database)
        self.key = create_key(self._database, "app", [BUSINESS], datetime.now(UTC))
        controller = (sys.executable, "-m", "flows.controller", "--configs", str(configs[GATEWAYS[0]]))
        self._add("mlflow", "/health", _mlflow(self._ports["mlflow"], self.state_dir))
        for name in ENGINES:
            self._add(name, "/health", _engine(name, self._ports[name], self.token_ms))
        for name in GATEWAYS:
            command = (sys.executable, "-m", "pipeline.gateway", "--configs", str(configs[name]), "--worker", name)
            self._add(name, "/healthz", command)
        self._add("controller", "/healthz", controller)

    def __exit__(self, *_: object) -> None:
        for part in self.parts.values():
            part.kill()
        self._client.close()
        self._database.dispose()

    def __enter__(self) -> "Stack":
        return self

    def url(self, name: str) -> str:
        """Of a part, or of `<gateway> admin`."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def up(self, versions: int) -> None:
        """Start everything; version 1 is in service, the others have passed the gate.

        Raises:
            NotStarted: a part does not answer, or gateways get no route.
        """
        first = [self.parts["mlflow"], *(self.parts[name] for name in ENGINES)]
        for part in first:
            part.start()
        for part in first:
            part.wait()
        self.registry = MlflowRegistry(self.url("mlflow"))
        with ScriptedEngine() as reference:
            for number in range(1, versions + 1):
                self._publish(reference, number)
        steady = Steady(business=BUSINESS, stable=1)
        ledger = self.store.read(BUSINESS).ledger.model_copy(update={"state": steady, "newest_tried": versions})
        self.store.write(ledger, 0, datetime.now(UTC))
        rest = [self.parts[name] for name in (*GATEWAYS, "controller")]
        for part in rest:
            part.start()
        for part in rest:
            part.wait()
        deadline = time.monotonic() + _ROUTED_WITHIN_S
        while not all(self._serves_first(name) for name in GATEWAYS):
            if time.monotonic() > deadline:
                raise NotStarted(f"no route to version 1; the controller says {self.status().get('problems')}")
            time.sleep(_BLINK_S)

    def _serves_first(self, gateway: str) -> bool:
        """Whether a gateway sends users to version 1, on every engine."""
        stable = self.routes(gateway)["route"]["stable"]
        return stable["version"] == 1 and len(stable["replicas"]) == len(ENGINES)

    def status(self) -> dict[str, Any]:
        """What the controller shows of itself; empty while it does not answer."""
        with suppress(httpx.HTTPError):
            answer = self._client.get(f"{self.url('controller')}/status", headers=ADMIN, timeout=5.0)
            told: dict[str, Any] = answer.json()
            return told
        return {}

    def routes(self, gateway: str) -> dict[str, Any]:
        """What a gateway serves by: `generation`, and the business's `route`."""
        answer = self._client.get(f"{self.url(f'{gateway} admin')}/admin/routes", headers=ADMIN, timeout=5.0).json()
        return {"generation": answer["generation"], "route": answer["routes"][0]}

    def held(self, engine: str) -> list[str]:
        """Adapters of an engine; none while it does not answer."""
        with suppress(httpx.HTTPError):
            models = self._client.get(f"{self.url(engine)}/v1/models", timeout=2.0).json()["data"]
            return [model["id"] for model in models if model["parent"]]
        return []

    def set_alias(self, alias: str, version: int) -> bool:
        """Set an alias as a person does; tells whether MLflow took it."""
        url = f"{self.url('mlflow')}/api/2.0/mlflow/registered-models/alias"
        body = {"name": BUSINESS, "alias": alias, "version": str(version)}
        with suppress(httpx.HTTPError):
            return self._client.post(url, json=body, timeout=20.0).is_success
        return False

    def roll_back(self) -> bool:
        """Call the controller; tells whether it answered that it is done."""
        body = {"business": BUSINESS, "actor": "bo", "reason": "complaints"}
        with suppress(httpx.HTTPError):
            url = f"{self.url('controller')}/rollback"
            return self._client.post(url, json=body, headers=ADMIN, timeout=20.0).is_success
        return False

    def _publish(self, reference: ScriptedEngine, number: int) -> None:
        """Register, measure and gate one more adapter, as a night does."""
        base = self.config.system.base_model
        folder = write_adapter(self.folder / "trained" / str(number), adapter_tensors(seed=number))
        adapter = an_adapter(
            BUSINESS,
            adapter_digest(folder),
            base=base_model_ref(base.path, base.id, base.revision).model_dump(),
            training_id=f"{number:064d}",
        )
        version = self.registry.register(adapter, folder, {}, "made for a test")
        server = VllmServer(reference.url, base.id)
        server.load(version.serving_name, folder)
        measured = fingerprint(server, server, base.id, version.serving_name, _PROBES)
        self.registry.record_fingerprint(BUSINESS, version.version, measured)
        report = self.folder / "gate.html"
        report.write_text("<h1>gate</h1>", encoding="utf-8")
        decision = GateDecision(
            decision_id="0" * 64,
            business=BUSINESS,
            baseline=base.id,
            candidate=version.serving_name,
            verdict=Verdict.PROMOTE,
            reason="a test",
            checks=(),
            seed=0,
        )
        self.registry.record_decision(decision, version.version, report)
        weights = (folder / ADAPTER_FILES[1]).read_bytes()
        self.contents[version.serving_name] = hashlib.sha256(weights).hexdigest()[:12]

    def _configure(self, gateway: str) -> Path:
        """A configuration folder in which this gateway is the host's own."""
        configs = self.folder / f"configs-{gateway}"
        (configs / "businesses").mkdir(parents=True)
        ports = self._ports
        admin = [f"http://127.0.0.1:{ports[f'{name} admin']}" for name in GATEWAYS]
        system = {
            "state_dir": str(self.state_dir),
            "base_model": {"id": "base", "revision": "r1", "path": str(self.folder / "base")},
            "gateway": {
                "port": ports[gateway],
                "admin_port": ports[f"{gateway} admin"],
                "first_token_timeout_s": 12,
                "between_tokens_timeout_s": 12,
            },
            "engines": [{"name": name, "url": self.url(name)} for name in ENGINES],
            "controller": {"port": ports["controller"], "poll_s": self.poll_s, "gateways": admin},
            "mlflow": {"url": self.url("mlflow")},
        }
        keys = ("share", "min_minutes", "min_users", "timeout_minutes")
        business = {
            "business": BUSINESS,
            "title": "Support",
            "language": "en",
            "report_language": "en",
            "timezone": "UTC",
            "nightly": "0 2 * * *",
            "rollout": {"steps": [dict(zip(keys, step, strict=True)) for step in self.steps]},
        }
        (configs / "tuneloop.yaml").write_text(yaml.safe_dump(system))
        (configs / "businesses" / f"{BUSINESS}.yaml").write_text(yaml.safe_dump(business))
        return configs

    def _add(self, name: str, ready: str, command: tuple[str, ...]) -> None:
        environment = child_environment(self.config, SECRETS)
        log = self.folder / "logs" / f"{name}.log"
        self.parts[name] = Part(name, command, self.url(name) + ready, log, environment)


def _mlflow(port: int, state_dir: Path) -> tuple[str, ...]:
    return (str(ROOT / "infra" / "launch" / "mlflow.sh"), "127.0.0.1", str(port), str(state_dir))


def _engine(name: str, port: int, token_ms: float) -> tuple[str, ...]:
    own = ("--name", name, "--port", str(port), "--token-ms", str(token_ms))
    return (sys.executable, "-m", "tests.chaos.engine", *own)
