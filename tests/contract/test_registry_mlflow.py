"""What only a real MLflow server can show: crashes on the way, what people find in its page, webhooks."""

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from mlflow import MlflowClient
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from pipeline.errors import RegistryError, RegistryUnavailable
from pipeline.records import GateDecision
from pipeline.registry.mlflow import WEBHOOK_NAME, MlflowRegistry
from tests.registering import Maker, a_training_run

pytestmark = pytest.mark.servers


@pytest.fixture
def mlflow_registry(mlflow_url: str) -> MlflowRegistry:
    return MlflowRegistry(mlflow_url)


@pytest.fixture
def client(mlflow_url: str) -> MlflowClient:
    return MlflowClient(tracking_uri=mlflow_url, registry_uri=mlflow_url)


class Crash(BaseException):
    """The process was killed here."""


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
