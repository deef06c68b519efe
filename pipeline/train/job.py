"""What the training process is told and what it answers. No torch in here."""

from pathlib import Path

from pipeline.records import BaseModelRef, Method, Record
from pipeline.train.recipe import Recipe


class Job(Record):
    """Input of `python -m pipeline.train`, as a JSON file."""

    snapshot_dir: Path
    recipe: Recipe
    base: BaseModelRef
    base_path: Path
    parent: Path | None
    """Folder of the adapter to go on from."""
    output: Path
    """Folder to make, with the adapter's two files; its parent takes `outcome.json` and scratch files."""


class Progress(Record):
    """One line on the process's standard output for each optimiser step."""

    step: int
    total: int
    loss: float


class Failure(Record):
    """The last line on its standard output when training failed for a known reason."""

    reason: str


class Outcome(Record):
    """What came out, as `outcome.json`."""

    method: Method
    rank: int
    metrics: dict[str, float]
    device: str
    packages: dict[str, str]
    curves: tuple[dict[str, float], ...]
    """What the trainers logged at each step of each phase: loss, rewards, validation loss."""
    load: tuple[dict[str, float], ...]
    """What this attempt took of the machine."""
