"""What can be made again: answers that evaluations keep, rests of killed builds and trainings. It goes whole."""

import fcntl
import os
import re
import shutil
from pathlib import Path

from pydantic import ValidationError

from pipeline.train.job import Job

_TRAINING = re.compile(r"[0-9a-f]{64}(\.log)?")


def forget_scratch(state_dir: Path, business: str, *, dry_run: bool = False) -> int:
    """Delete what of a business is kept to save work; returns how many files and folders that are.

    Call it while no night of the business runs. Trainings of other businesses are left alone.
    """
    gone = [*_answers(state_dir, business), *_halves(state_dir, business), *_trainings(state_dir / "work", business)]
    for path in () if dry_run else gone:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return len(gone)


def _answers(state_dir: Path, business: str) -> list[Path]:
    """Both sides' answers to held-out questions and a judge's rulings on them, as `evals.answers` keeps them."""
    name = re.compile(re.escape(business) + r"-[0-9a-f]{16}\.jsonl")
    return [path for path in sorted((state_dir / "work" / "gate").glob("*.jsonl")) if name.fullmatch(path.name)]


def _halves(state_dir: Path, business: str) -> list[Path]:
    """What was not whole yet when a night was killed: a snapshot, an index of duplicates."""
    indexes = (state_dir / "duplicates").glob(f".{business}.parquet.*.tmp")
    return sorted([*(state_dir / "snapshots" / business).glob(".*.half"), *indexes])


def _trainings(work: Path, business: str) -> list[Path]:
    """Checkpoints, scratch files and logs of trainings that no longer run: those of the business, and those of which
    nobody can tell whose they are."""
    found = [
        (path, path.name.removesuffix(".log")) for path in sorted(work.glob("*")) if _TRAINING.fullmatch(path.name)
    ]
    mine = [(path, training) for path, training in found if _owner(work / training) in (business, None)]
    return [path for path, training in mine if not _runs(work / f"{training}.lock")]


def _owner(folder: Path) -> str | None:
    """The business that a training is of, by the snapshot that its job names."""
    try:
        return Job.model_validate_json((folder / "job.json").read_bytes()).snapshot_dir.parent.name
    except (OSError, ValidationError):
        return None


def _runs(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
