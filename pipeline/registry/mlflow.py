"""MLflow as a registry: one registered model and one experiment per business, one run per adapter.

A version's files, record, fingerprint, decision and report are artifacts of its run; what people filter by are tags of
the version. MLflow's own `register_model` wants logged models and refuses plain artifacts, so versions are created
directly.
"""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.entities.model_registry import ModelVersion as MlflowVersion
from mlflow.entities.webhook import WebhookEvent, WebhookEventStr
from mlflow.environment_variables import (
    MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR,
    MLFLOW_HTTP_REQUEST_MAX_RETRIES,
    MLFLOW_HTTP_REQUEST_TIMEOUT,
    MLFLOW_TRACKING_PASSWORD,
    MLFLOW_TRACKING_USERNAME,
)
from mlflow.exceptions import MlflowException
from pydantic import ValidationError

from pipeline.errors import RegistryError, RegistryUnavailable
from pipeline.records import Adapter, Fingerprint, GateDecision, ModelVersion, Record, content_id
from pipeline.registry.base import ADAPTER, DECISION, FINGERPRINT, REPORT, TRAINING, Alias
from pipeline.registry.folder import check_folder, put_folder
from pipeline.registry.tags import ERASED_TRAINED, gate_of, with_note, with_verdict
from pipeline.train.process import ADAPTER_FILES
from pipeline.train.training import TrainingRun

logger = logging.getLogger(__name__)

WEBHOOK_NAME = "tuneloop-controller"
WEBHOOK_EVENTS: list[WebhookEventStr | WebhookEvent] = ["model_version_alias.created", "model_version_alias.deleted"]
_FILES = "adapter"
_PAGE = 200
_BATCH = 1000
"""Metrics that MLflow takes at once."""

_R = TypeVar("_R", bound=Record)
_Item = TypeVar("_Item")


class MlflowRegistry:
    """The registry at an MLflow tracking server."""

    def __init__(self, url: str, password: str = "") -> None:
        """
        Args:
            password: of MLflow's account `admin`, if the server asks for a log-in.
        """
        self._url = url.rstrip("/")
        # MLflow takes these from the environment alone. By default it repeats for minutes when the server is down.
        MLFLOW_HTTP_REQUEST_MAX_RETRIES.set(1)  # type: ignore[no-untyped-call]
        MLFLOW_HTTP_REQUEST_TIMEOUT.set(30)  # type: ignore[no-untyped-call]
        MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)  # type: ignore[no-untyped-call]
        if password:
            MLFLOW_TRACKING_USERNAME.set("admin")  # type: ignore[no-untyped-call]
            MLFLOW_TRACKING_PASSWORD.set(password)  # type: ignore[no-untyped-call]
        self._client = MlflowClient(tracking_uri=self._url, registry_uri=self._url)
        self._read: dict[tuple[str, str], Record] = {}

    def register(self, adapter: Adapter, folder: Path, params: Mapping[str, str], description: str) -> ModelVersion:
        check_folder(folder, adapter.sha256)
        with self._asking():
            self._make_model(adapter.business)
            version = self._find(adapter)
            if version is None:
                run = self._make_run(adapter, folder, params)
                version = self._client.create_model_version(
                    adapter.business,
                    source=f"{run.info.artifact_uri}/{_FILES}",
                    run_id=run.info.run_id,
                    tags={"gate": "pending", **_tags(adapter)},
                    description=description,
                )
            return self._version(version, self._aliases(adapter.business))

    def fetch(self, version: ModelVersion, adapters_dir: Path) -> Path:
        def download(folder: Path) -> None:
            run_id = _run_of(self._get(version.business, version.version))
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                for name in ADAPTER_FILES:
                    self._download(run_id, f"{_FILES}/{name}", scratch).rename(folder / name)

        with self._asking():
            return put_folder(adapters_dir, version.adapter.sha256, download)

    def versions(self, business: str) -> tuple[ModelVersion, ...]:
        with self._asking():
            aliases = self._aliases(business)
            found = self._pages(lambda token: self._search(f"name = '{business}'", token))
        versions = []
        for version in found:
            try:
                with self._asking():
                    versions.append(self._version(version, aliases))
            except RegistryUnavailable:
                raise
            except RegistryError as error:  # one that a person made by hand must not hide the others
                logger.warning("left out: %s", error)
        return tuple(sorted(versions, key=lambda version: version.version))

    def get(self, business: str, version: int) -> ModelVersion:
        with self._asking():
            return self._version(self._get(business, version), self._aliases(business))

    def record_training(self, business: str, version: int, run: TrainingRun) -> None:
        with self._asking():
            found = self._client.get_run(_run_of(self._get(business, version)))
            points = [
                # One time for all: MLflow stores the same point once, so doing it again adds nothing.
                Metric(name, value, found.info.start_time, int(entry["step"]))
                for entry in (*run.curves, *run.load)
                for name, value in entry.items()
                if name != "step"
            ]
            for first in range(0, len(points), _BATCH):
                self._client.log_batch(found.info.run_id, metrics=points[first : first + _BATCH])
            self._client.log_text(found.info.run_id, run.model_dump_json(indent=1), TRAINING)

    def record_fingerprint(self, business: str, version: int, fingerprint: Fingerprint) -> None:
        with self._asking():
            run_id = _run_of(self._get(business, version))
            self._client.log_text(run_id, fingerprint.model_dump_json(indent=1), FINGERPRINT)
            # Last: whoever sees the tag finds the file. Its value tells readers that they have read this one already.
            self._tag(business, version, {"fingerprint": content_id(fingerprint.model_dump(mode="json"))})

    def record_decision(self, decision: GateDecision, version: int, report: Path) -> None:
        with self._asking():
            found = self._get(decision.business, version)
            run = self._client.get_run(_run_of(found))
            try:
                page = report.read_text(encoding="utf-8")
            except OSError as error:
                raise RegistryError(f"cannot read the report {report}: {error.strerror}; write it first") from error
            self._client.log_text(run.info.run_id, decision.model_dump_json(indent=1), DECISION)
            self._client.log_text(run.info.run_id, page, REPORT)
            link = f"{self._url}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}/artifacts/{REPORT}"
            described = with_verdict(found.description or "", f"{decision.verdict}. {decision.reason}")
            self._client.update_model_version(decision.business, str(version), described)
            tags = {"decision_id": decision.decision_id, "report": link}
            self._tag(decision.business, version, tags | {"gate": decision.verdict.value})  # the verdict comes last

    def aliases(self, business: str) -> dict[str, int]:
        with self._asking():
            return self._aliases(business)

    def set_alias(self, business: str, alias: Alias, version: int) -> None:
        with self._asking():
            self._client.set_registered_model_alias(business, alias, str(version))

    def drop_alias(self, business: str, alias: Alias, version: int) -> None:
        with self._asking():
            if self._aliases(business).get(alias) == version:
                self._client.delete_registered_model_alias(business, alias)

    def set_tags(self, business: str, version: int, tags: Mapping[str, str]) -> None:
        with self._asking():
            self._get(business, version)
            self._tag(business, version, tags)

    def drop_tag(self, business: str, version: int, tag: str) -> None:
        with self._asking():
            if tag in self._get(business, version).tags:
                self._client.delete_model_version_tag(business, str(version), tag)

    def report(self, business: str, version: int) -> str | None:
        with self._asking(), tempfile.TemporaryDirectory() as scratch:
            run_id = _run_of(self._get(business, version))
            if REPORT not in self._files(run_id, None):
                return None
            return self._download(run_id, REPORT, scratch).read_text(encoding="utf-8")

    def replace_report(self, business: str, version: int, page: str) -> None:
        with self._asking():
            self._client.log_text(_run_of(self._get(business, version)), page, REPORT)

    def files(self, business: str, version: int) -> tuple[str, ...]:
        with self._asking():
            return tuple(sorted(self._files(_run_of(self._get(business, version)), None)))

    def add_note(self, business: str, version: int, note: str) -> None:
        with self._asking():
            described = self._get(business, version).description or ""
            if (noted := with_note(described, note)) != described:
                self._client.update_model_version(business, str(version), noted)

    def ensure_webhook(self, url: str, secret: str) -> None:
        """Have MLflow call `url`, signed with `secret`, whenever an alias is set or removed. Doing it again is a no-op.

        It is a hint only: MLflow gives up after a few tries and a new webhook is not seen at once.
        """
        with self._asking():
            hooks = self._pages(lambda token: self._client.list_webhooks(page_token=token))
            ours = next((hook for hook in hooks if hook.name == WEBHOOK_NAME), None)
            if ours is None:
                self._client.create_webhook(name=WEBHOOK_NAME, url=url, events=WEBHOOK_EVENTS, secret=secret)
            else:  # the secret cannot be read back: set it anew
                self._client.update_webhook(ours.webhook_id, url=url, events=WEBHOOK_EVENTS, secret=secret)

    # How it is kept

    def _make_model(self, business: str) -> None:
        try:
            self._client.create_registered_model(business, tags={"business": business})
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def _find(self, adapter: Adapter) -> MlflowVersion | None:
        query = f"name = '{adapter.business}' and tags.adapter_sha256 = '{adapter.sha256}'"
        return next(iter(self._search(query, None)), None)

    def _make_run(self, adapter: Adapter, folder: Path, params: Mapping[str, str]) -> Run:
        """The adapter's run with all its artifacts; one that an earlier try left behind is completed."""
        experiment = self._client.get_experiment_by_name(adapter.business)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(adapter.business)
        left = self._client.search_runs([experiment_id], f"tags.adapter_sha256 = '{adapter.sha256}'", max_results=1)
        run: Run = next(iter(left), None) or self._client.create_run(
            experiment_id, tags=_tags(adapter), run_name=f"{adapter.method}-{adapter.sha256[:8]}"
        )
        run_id = run.info.run_id
        self._client.log_batch(
            run_id,
            metrics=[Metric(name, value, run.info.start_time, 0) for name, value in adapter.metrics.items()],
            params=[Param(name, value) for name, value in params.items()],
        )
        self._client.log_text(run_id, adapter.model_dump_json(indent=1), ADAPTER)
        for name in ADAPTER_FILES:
            self._client.log_artifact(run_id, str(folder / name), _FILES)
        self._client.set_terminated(run_id)
        return run

    def _files(self, run_id: str, folder: str | None) -> list[str]:
        """Paths of a run's artifacts, those in folders too."""
        found = self._client.list_artifacts(run_id, folder)
        inner = [path for entry in found if entry.is_dir for path in self._files(run_id, entry.path)]
        return [entry.path for entry in found if not entry.is_dir] + inner

    def _search(self, query: str, token: str | None) -> list[MlflowVersion]:
        found: list[MlflowVersion] = self._client.search_model_versions(query, max_results=_PAGE, page_token=token)
        return found

    def _get(self, business: str, version: int) -> MlflowVersion:
        return self._client.get_model_version(business, str(version))

    def _aliases(self, business: str) -> dict[str, int]:
        try:
            model = self._client.get_registered_model(business)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return {}
            raise
        return {alias: int(version) for alias, version in model.aliases.items()}

    def _tag(self, business: str, version: int, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            self._client.set_model_version_tag(business, str(version), key, value)

    def _version(self, found: MlflowVersion, aliases: Mapping[str, int]) -> ModelVersion:
        number = int(found.version)
        run_id, stamp = _run_of(found), found.tags.get("fingerprint")
        return ModelVersion(
            business=found.name,
            version=number,
            adapter=self._artifact(run_id, ADAPTER, found.tags["adapter_sha256"], Adapter),
            gate=gate_of(found.tags),
            fingerprint=self._artifact(run_id, FINGERPRINT, stamp, Fingerprint) if stamp else None,
            aliases=tuple(sorted(alias for alias, at in aliases.items() if at == number)),
            override=found.tags.get("override") or None,
            learned_erased=bool(found.tags.get(ERASED_TRAINED)),
        )

    def _artifact(self, run_id: str, name: str, stamp: str, kind: type[_R]) -> _R:
        """An artifact as a record. It does not change while its stamp stays, so it is downloaded once."""
        key = (f"{run_id}/{name}", stamp)
        kept = self._read.get(key)
        if isinstance(kept, kind):
            return kept
        with tempfile.TemporaryDirectory() as scratch:
            text = self._download(run_id, name, scratch).read_bytes()
        try:
            record = kind.model_validate_json(text)
        except ValidationError as error:
            raise RegistryError(f"run {run_id}: {name} is damaged; delete the version and train again") from error
        self._read[key] = record
        return record

    def _download(self, run_id: str, path: str, scratch: str) -> Path:
        """An artifact as a file. MLflow's client says that there is none of each that it could not have, whatever the
        reason; so the list is asked, which fails where the server is down."""
        try:
            return Path(self._client.download_artifacts(run_id, path, scratch))
        except MlflowException as error:
            if path in self._files(run_id, None):
                raise RegistryUnavailable(f"MLflow at {self._url} does not hand over {path} of run {run_id}") from error
            raise

    def _pages(self, page: Callable[[str | None], list[_Item]]) -> list[_Item]:
        items: list[_Item] = []
        token: str | None = None
        while True:
            found = page(token)
            items.extend(found)
            token = getattr(found, "token", None)
            if not token:
                return items

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Say in our words what MLflow's client raises."""
        try:
            yield
        except MlflowException as error:
            said = " ".join(str(error).split())[:300]
            status: int = error.get_http_status_code()  # type: ignore[no-untyped-call]
            if status >= 500:  # also what it raises when nobody answers
                raise RegistryUnavailable(f"MLflow at {self._url} does not answer: {said}") from error
            raise RegistryError(f"MLflow at {self._url} refuses: {said}") from error
        except OSError as error:
            if error.errno is not None:  # the local disk; the HTTP client's errors have no number
                raise RegistryUnavailable(
                    f"cannot read or write {error.filename}: {error.strerror}; free some space"
                ) from error
            raise RegistryUnavailable(f"MLflow at {self._url} does not hand over its artifacts: {error}") from error


def _run_of(version: MlflowVersion) -> str:
    if "adapter_sha256" not in version.tags or not version.run_id:
        raise RegistryError(f"version {version.version} of '{version.name}' was not registered by tuneloop; delete it")
    return str(version.run_id)


def _tags(adapter: Adapter) -> dict[str, str]:
    return {
        "adapter_sha256": adapter.sha256,
        "snapshot_id": adapter.snapshot_id,
        "training_id": adapter.training_id,
        "method": adapter.method.value,
        "base_model": f"{adapter.base.id}@{adapter.base.revision}",
    }
