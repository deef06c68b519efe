"""The contract of a registry. Implementations: `mlflow.MlflowRegistry`, and `memory.MemoryRegistry`, the honest fake.

Aliases follow MLflow's custom. The system keeps `champion` (what is served), `challenger` (in canary) and `previous`;
a person sets `promote` or `rollback` on a version, and the controller takes them away when it has acted.
`tests/contract/test_registry.py` runs the same tests over both.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from pipeline.records import Adapter, Fingerprint, GateDecision, ModelVersion
from pipeline.train.process import ADAPTER_FILES
from pipeline.train.training import TrainingRun

ADAPTER, TRAINING, FINGERPRINT = "adapter.json", "training.json", "fingerprint.json"
DECISION, REPORT = "decision.json", "report.html"
ADAPTER_PATHS = tuple(f"adapter/{name}" for name in ADAPTER_FILES)
OUR_FILES = frozenset({ADAPTER, TRAINING, FINGERPRINT, DECISION, REPORT, *ADAPTER_PATHS})
"""All that tuneloop keeps with a version; people may put other files beside them."""

Alias = Literal["champion", "challenger", "previous", "promote", "rollback"]


class ModelRegistry(Protocol):
    """Where adapters, their lineage and their verdicts are kept.

    Every method raises `RegistryUnavailable` when the server does not answer and `RegistryError` when it refuses.
    """

    def register(self, adapter: Adapter, folder: Path, params: Mapping[str, str], description: str) -> ModelVersion:
        """Store the adapter's folder and make a version with `gate=pending`. The same adapter is registered once:
        registering it again returns the version that exists."""

    def fetch(self, version: ModelVersion, adapters_dir: Path) -> Path:
        """The version's files in the immutable folder `adapters_dir / sha256`, downloaded if they are not there.
        Raises `RegistryError` when their digest is not the one that was registered."""

    def versions(self, business: str) -> tuple[ModelVersion, ...]:
        """All versions, oldest first; empty for a business that has none."""

    def get(self, business: str, version: int) -> ModelVersion:
        """One version."""

    def record_training(self, business: str, version: int, run: TrainingRun) -> None:
        """Store how the version was trained: its curves, and the file that `tuneloop train` takes."""

    def record_fingerprint(self, business: str, version: int, fingerprint: Fingerprint) -> None:
        """Store what a reference engine measured for the version."""

    def record_decision(self, decision: GateDecision, version: int, report: Path) -> None:
        """Store the verdict (tag `gate`), the decision (JSON) and the report (HTML) with the version."""

    def aliases(self, business: str) -> dict[str, int]:
        """Alias to version number, read at once."""

    def set_alias(self, business: str, alias: Alias, version: int) -> None:
        """Move an alias to a version."""

    def drop_alias(self, business: str, alias: Alias, version: int) -> None:
        """Take an alias off a version; a no-op when it is not set there, since somebody may have moved it meanwhile."""

    def set_tags(self, business: str, version: int, tags: Mapping[str, str]) -> None:
        """Add tags to a version (who, when, why)."""

    def drop_tag(self, business: str, version: int, tag: str) -> None:
        """Take a tag off a version; a no-op when it has none of that name."""

    def report(self, business: str, version: int) -> str | None:
        """The report of the version's decision (HTML); None when none was recorded."""

    def replace_report(self, business: str, version: int, page: str) -> None:
        """Put another page in its place."""

    def files(self, business: str, version: int) -> tuple[str, ...]:
        """Names of all that is kept with the version."""

    def add_note(self, business: str, version: int, note: str) -> None:
        """Add a line to the version's description; one that stands there already is not added again."""
