"""What a registry keeps: the same tests over a real MLflow server and over the one in memory.

All tests share one server, so each has a business of its own.
"""

import logging
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from mlflow import MlflowClient
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from pipeline.errors import RegistryError, RegistryUnavailable
from pipeline.records import Adapter, Fingerprint, GateDecision, Verdict
from pipeline.registry.base import ADAPTER, ADAPTER_PATHS, OUR_FILES, TRAINING, ModelRegistry
from pipeline.registry.memory import MemoryRegistry
from pipeline.registry.mlflow import WEBHOOK_NAME, MlflowRegistry
from pipeline.registry.tags import ERASED_MEASURED, ERASED_TRAINED
from pipeline.train.process import adapter_digest
from pipeline.train.recipe import Recipe
from pipeline.train.training import Training, TrainingRun
from tests.adapter_files import adapter_tensors, write_adapter
from tests.builders import an_adapter
from tests.conftest import free_port

FINGERPRINT = Fingerprint(texts=("你好",), base_logprobs=(-3.5,), adapter_logprobs=(-1.25,))


@pytest.fixture(scope="module", params=["memory", pytest.param("mlflow", marks=pytest.mark.servers)])
def registry(request: pytest.FixtureRequest) -> ModelRegistry:
    if request.param == "memory":
        return MemoryRegistry()
    return MlflowRegistry(request.getfixturevalue("mlflow_url"))


class Maker:
    """Adapters of one business, and their folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.business = f"b-{uuid.uuid4().hex[:10]}"

    def adapter(self, seed: int = 1) -> tuple[Adapter, Path]:
        folder = self.root / "trained" / str(seed)
        if not folder.exists():
            write_adapter(folder, adapter_tensors(seed=seed))
        digest = adapter_digest(folder)
        return an_adapter(self.business, digest, metrics={"loss": 0.25}, training_id=digest), folder

    def decision(self, verdict: Verdict = Verdict.PROMOTE) -> tuple[GateDecision, Path]:
        report = self.root / "report.html"
        report.write_text("<p>更好</p>", encoding="utf-8")
        decision = GateDecision(
            decision_id="d" * 64,
            business=self.business,
            baseline="base",
            candidate="candidate",
            verdict=verdict,
            reason="It is better by 0.2.",
            checks=(),
            seed=0,
        )
        return decision, report


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def test_a_business_without_versions(registry: ModelRegistry, maker: Maker) -> None:
    assert registry.versions(maker.business) == ()
    assert registry.aliases(maker.business) == {}
    registry.drop_alias(maker.business, "champion", 1)
    with pytest.raises(RegistryError):
        registry.get(maker.business, 1)


def test_a_registered_adapter_comes_back_whole(registry: ModelRegistry, maker: Maker, tmp_path: Path) -> None:
    adapter, folder = maker.adapter()
    version = registry.register(adapter, folder, {"rank": "8"}, "sft on 50 rows of 9 users")
    assert (version.business, version.version, version.gate) == (maker.business, 1, "pending")
    assert (version.adapter, version.fingerprint, version.aliases) == (adapter, None, ())
    assert registry.get(maker.business, 1) == version
    fetched = registry.fetch(version, tmp_path / "adapters")
    assert fetched == tmp_path / "adapters" / adapter.sha256
    assert {path.name: path.read_bytes() for path in fetched.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    assert [path.name for path in (tmp_path / "adapters").iterdir()] == [adapter.sha256]


def test_registering_again_returns_the_version_that_exists(registry: ModelRegistry, maker: Maker) -> None:
    first = registry.register(*maker.adapter(1), {}, "one")
    second = registry.register(*maker.adapter(2), {}, "two")
    assert registry.register(*maker.adapter(1), {}, "one again") == first
    assert registry.versions(maker.business) == (first, second)
    assert [version.version for version in (first, second)] == [1, 2]


def test_files_that_are_not_the_adapter_are_not_registered(registry: ModelRegistry, maker: Maker) -> None:
    adapter, _ = maker.adapter(1)
    _, other = maker.adapter(2)
    with pytest.raises(RegistryError, match=adapter.sha256[:12]):
        registry.register(adapter, other, {}, "mixed up")
    with pytest.raises(RegistryError, match="cannot read"):
        registry.register(adapter, other.parent / "absent", {}, "lost")
    assert registry.versions(maker.business) == ()


def test_a_damaged_folder_is_neither_used_nor_touched(registry: ModelRegistry, maker: Maker, tmp_path: Path) -> None:
    version = registry.register(*maker.adapter(), {}, "one")
    weights = registry.fetch(version, tmp_path / "adapters") / "adapter_model.safetensors"
    weights.write_bytes(b"something else")
    with pytest.raises(RegistryError, match="move that folder away"):
        registry.fetch(version, tmp_path / "adapters")
    assert weights.read_bytes() == b"something else"


def test_aliases_move_and_go(registry: ModelRegistry, maker: Maker) -> None:
    for seed in (1, 2):
        registry.register(*maker.adapter(seed), {}, "one")
    registry.set_alias(maker.business, "champion", 1)
    registry.set_alias(maker.business, "promote", 2)
    registry.set_alias(maker.business, "champion", 2)
    assert registry.aliases(maker.business) == {"champion": 2, "promote": 2}
    assert registry.get(maker.business, 2).aliases == ("champion", "promote")
    assert [version.aliases for version in registry.versions(maker.business)] == [(), ("champion", "promote")]
    registry.drop_alias(maker.business, "promote", 1)  # somebody moved it to 2 meanwhile
    assert registry.aliases(maker.business) == {"champion": 2, "promote": 2}
    for _ in range(2):
        registry.drop_alias(maker.business, "promote", 2)
    assert registry.aliases(maker.business) == {"champion": 2}
    with pytest.raises(RegistryError):
        registry.set_alias(maker.business, "champion", 7)
    assert registry.aliases(maker.business) == {"champion": 2}


def test_fingerprint_verdict_and_override_are_kept(registry: ModelRegistry, maker: Maker) -> None:
    registry.register(*maker.adapter(), {}, "one")
    registry.record_fingerprint(maker.business, 1, FINGERPRINT)
    assert registry.get(maker.business, 1).fingerprint == FINGERPRINT
    changed = FINGERPRINT.model_copy(update={"adapter_logprobs": (-1.5,)})
    registry.record_fingerprint(maker.business, 1, changed)
    assert registry.get(maker.business, 1).fingerprint == changed
    decision, report = maker.decision(Verdict.REJECT)
    for _ in range(2):
        registry.record_decision(decision, 1, report)
    assert registry.get(maker.business, 1).gate is Verdict.REJECT
    assert registry.get(maker.business, 1).override is None
    registry.set_tags(maker.business, 1, {"override": "ann: needed today"})
    assert registry.versions(maker.business)[0].override == "ann: needed today"
    for _ in range(2):
        registry.drop_tag(maker.business, 1, "override")
    assert registry.versions(maker.business)[0].override is None


def test_a_report_can_be_replaced_and_a_note_outlives_a_new_verdict(registry: ModelRegistry, maker: Maker) -> None:
    registry.register(*maker.adapter(), {}, "sft on 50 rows")
    assert registry.report(maker.business, 1) is None
    assert set(registry.files(maker.business, 1)) == {ADAPTER, *ADAPTER_PATHS}
    for _ in range(2):
        registry.record_decision(*with_version(maker.decision()))
        registry.add_note(maker.business, 1, "Erasure of one user.")
    registry.record_training(maker.business, 1, a_training_run(maker, maker.adapter()[0]))
    registry.record_fingerprint(maker.business, 1, FINGERPRINT)
    assert registry.report(maker.business, 1) == "<p>更好</p>"
    registry.replace_report(maker.business, 1, "<p>少了</p>")
    assert registry.report(maker.business, 1) == "<p>少了</p>"
    assert set(registry.files(maker.business, 1)) == OUR_FILES
    assert description_of(registry, maker.business) == (
        "sft on 50 rows\n\nGate: promote. It is better by 0.2.\n\nErasure of one user."
    )


def a_training_run(maker: Maker, adapter: Adapter, points: int = 3) -> TrainingRun:
    training = Training(
        business=maker.business,
        snapshot_id=adapter.snapshot_id,
        recipe=Recipe(),
        base=adapter.base,
        parent_sha256=None,
    )
    steps = range(1, points + 1)
    return TrainingRun(
        training=training,
        adapter_sha256=adapter.sha256,
        device="cpu",
        packages={"torch": "2"},
        curves=tuple({"step": float(step), "dpo/loss": 1 / step, "dpo/rewards/chosen": 0.5} for step in steps),
        load=tuple({"step": float(step), "system/cpu_cores": 1.5} for step in steps),
    )


def test_how_a_version_was_trained_is_kept_with_it(registry: ModelRegistry, maker: Maker) -> None:
    adapter, folder = maker.adapter()
    registry.register(adapter, folder, {}, "one")
    for _ in range(2):
        registry.record_training(maker.business, 1, a_training_run(maker, adapter))
    assert set(registry.files(maker.business, 1)) == {ADAPTER, TRAINING, *ADAPTER_PATHS}
    with pytest.raises(RegistryError):
        registry.record_training(maker.business, 3, a_training_run(maker, adapter))


def test_a_version_that_learned_from_an_erased_user_says_so(registry: ModelRegistry, maker: Maker) -> None:
    registry.register(*maker.adapter(), {}, "one")
    assert not registry.get(maker.business, 1).learned_erased
    registry.set_tags(maker.business, 1, {ERASED_MEASURED: "1 rows"})
    assert not registry.get(maker.business, 1).learned_erased
    registry.set_tags(maker.business, 1, {ERASED_TRAINED: "2 rows"})
    assert registry.get(maker.business, 1).learned_erased


def description_of(registry: ModelRegistry, business: str) -> str:
    """What people read of the first version."""
    if isinstance(registry, MemoryRegistry):
        return registry.entries[business, 1].description
    assert isinstance(registry, MlflowRegistry)
    return str(registry._client.get_model_version(business, "1").description)


def with_version(decided: tuple[GateDecision, Path]) -> tuple[GateDecision, int, Path]:
    decision, report = decided
    return decision, 1, report


def test_what_does_not_exist_is_refused(registry: ModelRegistry, maker: Maker, tmp_path: Path) -> None:
    decision, report = maker.decision()
    with pytest.raises(RegistryError):
        registry.record_decision(decision, 3, report)
    with pytest.raises(RegistryError):
        registry.record_fingerprint(maker.business, 3, FINGERPRINT)
    with pytest.raises(RegistryError):
        registry.set_tags(maker.business, 3, {"who": "ann"})
    with pytest.raises(RegistryError):
        registry.add_note(maker.business, 3, "ann was here")
    with pytest.raises(RegistryError):
        registry.report(maker.business, 3)
    registry.register(*maker.adapter(), {}, "one")
    with pytest.raises(RegistryError, match="cannot read the report"):
        registry.record_decision(decision, 1, tmp_path / "absent.html")
    assert registry.get(maker.business, 1).gate == "pending"


def test_a_tag_that_is_no_verdict_counts_as_none(
    registry: ModelRegistry, maker: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register(*maker.adapter(), {}, "one")
    registry.set_tags(maker.business, 1, {"gate": "looks fine to me"})
    with caplog.at_level(logging.WARNING):
        assert registry.get(maker.business, 1).gate == "pending"
    assert "is no verdict" in caplog.text


def test_a_registry_that_is_down_may_be_asked_again(maker: Maker, tmp_path: Path) -> None:
    for registry in (MemoryRegistry(available=False), MlflowRegistry(f"http://127.0.0.1:{free_port()}")):
        with pytest.raises(RegistryUnavailable):
            registry.aliases(maker.business)
        with pytest.raises(RegistryUnavailable):
            registry.register(*maker.adapter(), {}, "one")


# What only MLflow can show


@pytest.fixture
def mlflow_registry(mlflow_url: str) -> MlflowRegistry:
    return MlflowRegistry(mlflow_url)


@pytest.fixture
def client(mlflow_url: str) -> MlflowClient:
    return MlflowClient(tracking_uri=mlflow_url, registry_uri=mlflow_url)


class Crash(BaseException):
    """The process was killed here."""


@pytest.mark.servers
@pytest.mark.parametrize(
    "call", ["create_registered_model", "create_run", "log_batch", "log_text", "log_artifact", "create_model_version"]
)
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_while_registering_heals_with_the_next_try(
    mlflow_registry: MlflowRegistry, client: MlflowClient, maker: Maker, tmp_path: Path, call: str, after: bool
) -> None:
    """One run, one version, whole, whether the process died before the call or after it."""
    adapter, folder = maker.adapter()
    with pytest.raises(Crash):
        crashing(mlflow_registry, call, after).register(adapter, folder, {"rank": "8"}, "one")
    for _ in range(2):
        version = mlflow_registry.register(adapter, folder, {"rank": "8"}, "one")
    assert version.version == 1
    assert mlflow_registry.versions(maker.business) == (version,)
    mlflow_registry.fetch(version, tmp_path / "adapters")
    (experiment,) = [e for e in client.search_experiments() if e.name == maker.business]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"loss": 0.25}
    assert run.data.params == {"rank": "8"}


@pytest.mark.servers
def test_curves_are_metrics_of_the_run_and_recording_again_adds_no_points(
    mlflow_registry: MlflowRegistry, client: MlflowClient, maker: Maker
) -> None:
    adapter, folder = maker.adapter()
    mlflow_registry.register(adapter, folder, {}, "one")
    run = a_training_run(maker, adapter, points=700)  # more than MLflow takes at once
    for _ in range(2):
        mlflow_registry.record_training(maker.business, 1, run)
    run_id = str(client.get_model_version(maker.business, "1").run_id)
    for name, entries in (("dpo/loss", run.curves), ("system/cpu_cores", run.load)):
        found = client.get_metric_history(run_id, name)
        assert sorted((point.step, point.value) for point in found) == [(int(e["step"]), e[name]) for e in entries]
    assert client.get_run(run_id).data.metrics["loss"] == 0.25


def crashing(registry: MlflowRegistry, call: str, after: bool) -> MlflowRegistry:
    """The same registry, whose process dies at that call."""

    class Fragile:
        def __getattr__(self, name: str) -> Any:
            real = getattr(registry._client, name)
            if name != call:
                return real

            def die(*args: Any, **kwargs: Any) -> Any:
                if after:
                    real(*args, **kwargs)
                raise Crash

            return die

    broken = MlflowRegistry(registry._url)
    broken._client = Fragile()  # type: ignore[assignment]
    return broken


@pytest.mark.servers
def test_people_find_lineage_verdict_and_report_in_mlflow(
    mlflow_registry: MlflowRegistry, client: MlflowClient, maker: Maker, mlflow_url: str, tmp_path: Path
) -> None:
    adapter, folder = maker.adapter()
    mlflow_registry.register(adapter, folder, {"rank": "8"}, "sft on 50 rows")
    decision, report = maker.decision()
    for _ in range(2):
        mlflow_registry.record_decision(decision, 1, report)
    version = client.get_model_version(maker.business, "1")
    assert version.description == "sft on 50 rows\n\nGate: promote. It is better by 0.2."
    expected = {
        "gate": "promote",
        "adapter_sha256": adapter.sha256,
        "snapshot_id": adapter.snapshot_id,
        "method": "dpo",
    }
    assert expected.items() <= version.tags.items()
    assert version.tags["report"].startswith(f"{mlflow_url}/#/experiments/")
    run_id = str(version.run_id)
    assert Path(client.download_artifacts(run_id, "report.html", str(tmp_path))).read_text("utf-8") == "<p>更好</p>"
    decided = Path(client.download_artifacts(run_id, "decision.json", str(tmp_path))).read_bytes()
    assert GateDecision.model_validate_json(decided) == decision


@pytest.mark.servers
def test_an_artifact_that_is_gone_is_no_reason_to_come_back(
    mlflow_registry: MlflowRegistry, client: MlflowClient, maker: Maker, mlflow_url: str, tmp_path: Path
) -> None:
    version = mlflow_registry.register(*maker.adapter(), {}, "one")
    run = client.get_run(str(client.get_model_version(maker.business, "1").run_id))
    repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=mlflow_url)
    repository.delete_artifacts("adapter/adapter_model.safetensors")
    with pytest.raises(RegistryError, match=r"adapter_model\.safetensors") as refused:
        mlflow_registry.fetch(version, tmp_path / "adapters")
    assert not isinstance(refused.value, RegistryUnavailable)


class WithoutFiles(BaseHTTPRequestHandler):
    """Passes everything on to MLflow, and fails when an artifact's bytes are asked for: MLflow dies just then."""

    mlflow_url = ""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/get-artifact") or "/mlflow-artifacts/artifacts/" in self.path:
            self.send_error(503)
            return
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        answer = httpx.request(self.command, self.mlflow_url + self.path, content=body, headers=headers, timeout=60)
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers["content-type"])
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = _pass_on

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.mark.servers
def test_a_server_that_dies_while_it_hands_over_files_may_be_asked_again(
    mlflow_registry: MlflowRegistry, maker: Maker, mlflow_url: str, tmp_path: Path
) -> None:
    version = mlflow_registry.register(*maker.adapter(), {}, "one")
    handler = type("Handler", (WithoutFiles,), {"mlflow_url": mlflow_url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as dying:
        threading.Thread(target=dying.serve_forever, args=(0.02,), daemon=True).start()
        try:
            with pytest.raises(RegistryUnavailable):
                MlflowRegistry(f"http://127.0.0.1:{dying.server_address[1]}").fetch(version, tmp_path / "adapters")
        finally:
            dying.shutdown()
    assert mlflow_registry.fetch(version, tmp_path / "adapters").is_dir()


@pytest.mark.servers
def test_versions_made_by_hand_hide_nothing(
    mlflow_registry: MlflowRegistry, client: MlflowClient, maker: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    first = mlflow_registry.register(*maker.adapter(1), {}, "one")
    client.create_model_version(maker.business, f"models:/{maker.business}/1")
    second = mlflow_registry.register(*maker.adapter(2), {}, "two")
    with caplog.at_level(logging.WARNING):
        assert mlflow_registry.versions(maker.business) == (first, second)
    assert "version 2 of" in caplog.text
    with pytest.raises(RegistryError, match="not registered by tuneloop"):
        mlflow_registry.get(maker.business, 2)


@pytest.fixture
def webhooks(client: MlflowClient) -> Iterator[MlflowClient]:
    yield client
    for hook in client.list_webhooks():
        client.delete_webhook(hook.webhook_id)


@pytest.mark.servers
def test_the_webhook_is_made_once_and_follows_the_address(
    mlflow_registry: MlflowRegistry, webhooks: MlflowClient
) -> None:
    for port in (8702, 8702, 8799):
        mlflow_registry.ensure_webhook(f"http://127.0.0.1:{port}/hooks/mlflow", "secret")
    (hook,) = [hook for hook in webhooks.list_webhooks() if hook.name == WEBHOOK_NAME]
    assert hook.url == "http://127.0.0.1:8799/hooks/mlflow"
    assert sorted(str(event) for event in hook.events) == [
        "model_version_alias.created",
        "model_version_alias.deleted",
    ]
