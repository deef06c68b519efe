"""A registry in memory: the honest fake of MLflow. It keeps, refuses and forgets as `MlflowRegistry` does."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import RegistryError, RegistryUnavailable
from pipeline.records import Adapter, Fingerprint, GateDecision, ModelVersion
from pipeline.registry.base import ADAPTER, ADAPTER_PATHS, DECISION, FINGERPRINT, REPORT, TRAINING, Alias
from pipeline.registry.folder import check_folder, put_folder
from pipeline.registry.tags import ERASED_TRAINED, gate_of, with_note, with_verdict
from pipeline.train.process import ADAPTER_FILES
from pipeline.train.training import TrainingRun


@dataclass
class _Entry:
    adapter: Adapter
    files: dict[str, bytes]
    params: dict[str, str]
    description: str
    tags: dict[str, str]
    training: TrainingRun | None = None
    fingerprint: Fingerprint | None = None
    decision: GateDecision | None = None
    report: str = ""
    others: list[str] = field(default_factory=list)
    """Files that somebody put beside ours."""


@dataclass
class MemoryRegistry:
    """Set `available` to False to have every call fail as if the server were down."""

    available: bool = True
    entries: dict[tuple[str, int], _Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._aliases: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def register(self, adapter: Adapter, folder: Path, params: Mapping[str, str], description: str) -> ModelVersion:
        self._answer()
        check_folder(folder, adapter.sha256)
        of_business = [(v, e) for (business, v), e in self.entries.items() if business == adapter.business]
        for version, entry in of_business:
            if entry.adapter.sha256 == adapter.sha256:
                return self.get(adapter.business, version)
        number = len(of_business) + 1
        files = {name: (folder / name).read_bytes() for name in ADAPTER_FILES}
        tags = {"gate": "pending"}
        self.entries[adapter.business, number] = _Entry(adapter, files, dict(params), description, tags)
        return self.get(adapter.business, number)

    def fetch(self, version: ModelVersion, adapters_dir: Path) -> Path:
        self._answer()
        files = self._entry(version.business, version.version).files

        def write(folder: Path) -> None:
            for name, content in files.items():
                (folder / name).write_bytes(content)

        return put_folder(adapters_dir, version.adapter.sha256, write)

    def versions(self, business: str) -> tuple[ModelVersion, ...]:
        self._answer()
        return tuple(self.get(owner, version) for owner, version in sorted(self.entries) if owner == business)

    def get(self, business: str, version: int) -> ModelVersion:
        self._answer()
        entry = self._entry(business, version)
        return ModelVersion(
            business=business,
            version=version,
            adapter=entry.adapter,
            gate=gate_of(entry.tags),
            fingerprint=entry.fingerprint,
            aliases=tuple(sorted(alias for alias, at in self._aliases[business].items() if at == version)),
            override=entry.tags.get("override") or None,
            learned_erased=bool(entry.tags.get(ERASED_TRAINED)),
        )

    def record_training(self, business: str, version: int, run: TrainingRun) -> None:
        self._answer()
        self._entry(business, version).training = run

    def record_fingerprint(self, business: str, version: int, fingerprint: Fingerprint) -> None:
        self._answer()
        self._entry(business, version).fingerprint = fingerprint

    def record_decision(self, decision: GateDecision, version: int, report: Path) -> None:
        self._answer()
        entry = self._entry(decision.business, version)
        try:
            entry.report = report.read_text(encoding="utf-8")
        except OSError as error:
            raise RegistryError(f"cannot read the report {report}: {error.strerror}; write it first") from error
        entry.decision = decision
        entry.description = with_verdict(entry.description, f"{decision.verdict}. {decision.reason}")
        entry.tags |= {"gate": decision.verdict.value, "decision_id": decision.decision_id}

    def aliases(self, business: str) -> dict[str, int]:
        self._answer()
        return dict(self._aliases[business])

    def set_alias(self, business: str, alias: Alias, version: int) -> None:
        self._answer()
        self._entry(business, version)
        self._aliases[business][alias] = version

    def drop_alias(self, business: str, alias: Alias, version: int) -> None:
        self._answer()
        if self._aliases[business].get(alias) == version:
            del self._aliases[business][alias]

    def set_tags(self, business: str, version: int, tags: Mapping[str, str]) -> None:
        self._answer()
        self._entry(business, version).tags.update(tags)

    def drop_tag(self, business: str, version: int, tag: str) -> None:
        self._answer()
        self._entry(business, version).tags.pop(tag, None)

    def report(self, business: str, version: int) -> str | None:
        self._answer()
        return self._entry(business, version).report or None

    def replace_report(self, business: str, version: int, page: str) -> None:
        self._answer()
        self._entry(business, version).report = page

    def files(self, business: str, version: int) -> tuple[str, ...]:
        self._answer()
        entry = self._entry(business, version)
        made = {
            TRAINING: entry.training,
            FINGERPRINT: entry.fingerprint,
            DECISION: entry.decision,
            REPORT: entry.report,
        }
        return tuple(sorted([*entry.others, ADAPTER, *ADAPTER_PATHS, *(name for name, file in made.items() if file)]))

    def add_note(self, business: str, version: int, note: str) -> None:
        self._answer()
        entry = self._entry(business, version)
        entry.description = with_note(entry.description, note)

    def tags(self, business: str, version: int) -> dict[str, str]:
        """All tags of a version, for tests."""
        return dict(self._entry(business, version).tags)

    def _entry(self, business: str, version: int) -> _Entry:
        try:
            return self.entries[business, version]
        except KeyError:
            raise RegistryError(
                f"business '{business}' has no version {version}; see its page in the registry"
            ) from None

    def _answer(self) -> None:
        if not self.available:
            raise RegistryUnavailable("the registry does not answer; start it")
