"""What determines a training, and how it went: kept beside the adapter, and as a file with its version."""

from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import DataError
from pipeline.records import BaseModelRef, BusinessKey, Record, Sha256, content_id
from pipeline.train.recipe import Recipe


class Training(Record):
    """All that determines a training: the same values, device and packages make the same adapter."""

    business: BusinessKey
    snapshot_id: Sha256
    recipe: Recipe
    base: BaseModelRef
    parent_sha256: Sha256 | None
    """The adapter that it starts from; None for the base model."""

    @property
    def training_id(self) -> Sha256:
        """Hash over everything in here; the snapshot's id stands for the business too."""
        return content_id(
            {
                "snapshot": self.snapshot_id,
                "recipe": self.recipe.model_dump(mode="json"),
                "base": self.base.model_dump(mode="json"),
                "parent": self.parent_sha256,
            }
        )


class TrainingRun(Record):
    """A training that ended: what it was, what it made and its curves. `tuneloop train FILE` does it again."""

    training: Training
    adapter_sha256: Sha256
    device: str
    packages: dict[str, str]
    """Versions of what the result depends on, by name."""
    curves: tuple[dict[str, float], ...]
    """What was logged, in order: `step` over all phases, and the phase's own figures by names like `dpo/loss`."""
    load: tuple[dict[str, float], ...]
    """The machine meanwhile: `step`, and figures by names like `system/peak_memory_megabytes`."""


def read_training_run(path: Path) -> TrainingRun:
    """
    Raises:
        DataError: there is no such file, or it is none of a training.
    """
    try:
        return TrainingRun.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise DataError(
            f"{path} is no file of a training ({error.error_count()} mistakes, the first: "
            f"{error.errors()[0]['loc']}); take `training.json` of a version's run in MLflow"
        ) from error
