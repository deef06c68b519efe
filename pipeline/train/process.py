"""Train an adapter in a process of its own, once. No torch in here.

The operating system gives all memory back when that process ends, and several GPUs work through `accelerate launch`.
A training is known by the hash of everything that determines it: a finished one is found again, a killed one goes on
from its last checkpoint.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from pipeline.dataset.redaction import read_redactions
from pipeline.dataset.snapshot import read_manifest
from pipeline.errors import TrainingError
from pipeline.records import Adapter, BaseModelRef, Record
from pipeline.train.job import Failure, Job, Outcome, Progress
from pipeline.train.recipe import Recipe
from pipeline.train.training import Training, TrainingRun

logger = logging.getLogger(__name__)

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")

OnProgress = Callable[[int, int, float], None]
"""Takes step, number of steps, and the step's loss."""


def train_adapter(
    snapshot_dir: Path,
    recipe: Recipe,
    base: BaseModelRef,
    base_path: Path,
    parent: tuple[Adapter, Path] | None,
    adapters_dir: Path,
    work_dir: Path,
    on_progress: OnProgress | None = None,
    launch: Path | None = None,
) -> Adapter:
    """The adapter that this snapshot, recipe, base and parent make; trained unless it has been before.

    Args:
        parent: the adapter now in service and its folder; used only when the recipe starts from `stable`.
        adapters_dir: gets the immutable folder `<sha256>/`, `by-training/<training_id>.run.json` and, last,
            `by-training/<training_id>.json`.
        work_dir: takes scratch files, and keeps the log of a failed training.
        launch: configuration of `accelerate launch`; without one, a process for each GPU, or one.

    Raises:
        TrainingError: training failed or diverged; nothing was added to `adapters_dir`.
        DataError: there is no snapshot in `snapshot_dir`.
    """
    manifest = read_manifest(snapshot_dir)
    start = parent if recipe.start_from == "stable" else None
    if start is not None:
        _check_parent(start[0], base, recipe)
    of = Training(
        business=manifest.business,
        snapshot_id=manifest.snapshot_id,
        recipe=recipe,
        base=base,
        parent_sha256=start[0].sha256 if start else None,
    )
    training = of.training_id
    work_dir.mkdir(parents=True, exist_ok=True)
    with _only_one(work_dir / f"{training}.lock"):
        if (known := find_adapter(adapters_dir, training)) is not None:
            return known
        if read_redactions(snapshot_dir):
            raise TrainingError(
                f"snapshot {manifest.snapshot_id[:8]} was redacted: rows of erased users are gone, and what its id "
                "stands for is no longer there to train on; `tuneloop nightly` builds a new one"
            )
        if not (base_path / "config.json").is_file():
            raise TrainingError(f"base model '{base.id}': no model in {base_path}; `make setup` puts it there")
        with _scratch(work_dir / training) as work:
            job = Job(
                snapshot_dir=snapshot_dir.absolute(),
                recipe=recipe,
                base=base,
                base_path=base_path.absolute(),
                parent=start[1].absolute() if start else None,
                output=work.absolute() / "adapter",
            )
            outcome = _run(job, work_dir / f"{training}.log", _launcher(launch), on_progress)
            adapter, run = _result(of, job.output, outcome)
            _store(adapter, run, job.output, adapters_dir)
    return adapter


def _result(training: Training, output: Path, outcome: Outcome) -> tuple[Adapter, TrainingRun]:
    """The records of a training that ended well."""
    adapter = Adapter(
        sha256=adapter_digest(output),
        business=training.business,
        base=training.base,
        rank=outcome.rank,
        method=outcome.method,
        snapshot_id=training.snapshot_id,
        training_id=training.training_id,
        parent_sha256=training.parent_sha256,
        metrics=outcome.metrics,
    )
    run = TrainingRun(
        training=training,
        adapter_sha256=adapter.sha256,
        device=outcome.device,
        packages=outcome.packages,
        curves=outcome.curves,
        load=outcome.load,
    )
    return adapter, run


def find_adapter(adapters_dir: Path, training: str) -> Adapter | None:
    """The adapter that a training made, if it ended and its folder is whole."""
    try:
        adapter = Adapter.model_validate_json((adapters_dir / "by-training" / f"{training}.json").read_bytes())
        whole = adapter_digest(adapters_dir / adapter.sha256) == adapter.sha256
    except (OSError, ValidationError):
        return None
    return adapter if whole else None


def training_run_path(adapters_dir: Path, training: str) -> Path:
    """Where a training that ended left its `TrainingRun`."""
    return adapters_dir / "by-training" / f"{training}.run.json"


def adapter_digest(folder: Path) -> str:
    """SHA-256 (64 hex digits) over names and bytes of `adapter_config.json` and `adapter_model.safetensors`.

    Raises:
        OSError: one of the files is missing.
    """
    digest = hashlib.sha256()
    for name in ADAPTER_FILES:
        path = folder / name
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _check_parent(parent: Adapter, base: BaseModelRef, recipe: Recipe) -> None:
    if parent.base.digest != base.digest:
        raise TrainingError(
            f"parent adapter {parent.sha256[:8]} was trained on base {parent.base.id}@{parent.base.revision}, not on "
            f"{base.id}@{base.revision}; set training.start_from to base"
        )
    if parent.rank != recipe.rank:
        raise TrainingError(
            f"parent adapter {parent.sha256[:8]} has rank {parent.rank}, the recipe asks for {recipe.rank}; an adapter "
            f"keeps its rank: set training.rank to {parent.rank} or training.start_from to base"
        )


@contextmanager
def _only_one(lock_path: Path) -> Iterator[None]:
    """A second process with the same training waits, and then finds it done."""
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder with the checkpoints of an attempt that was killed, if there was one. It stays when this attempt is
    killed too, and goes when training has ended or failed for a reason that another attempt would meet again."""
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    except _Killed:
        raise
    except TrainingError:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


class _Killed(TrainingError):
    """The process ended without a word: the next attempt goes on from its last checkpoint."""


def _run(job: Job, log_path: Path, launcher: Sequence[str], on_progress: OnProgress | None) -> Outcome:
    """Run the process and hand on its progress. Its log stays only when it failed."""
    job_path = job.output.parent / "job.json"
    job_path.write_text(job.model_dump_json(indent=1), encoding="utf-8")
    failure: str | None = None
    with (
        log_path.open("wb") as log,
        subprocess.Popen(
            [*launcher, "-m", "pipeline.train", str(job_path)],
            stdin=subprocess.PIPE,  # never written to: the process ends when we do, and this pipe closes
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=Path(__file__).parents[2],
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                failure = _take_line(line, on_progress) or failure
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        log_path.unlink()
        return Outcome.model_validate_json((job.output.parent / "outcome.json").read_bytes())
    if failure is None:
        raise _Killed(f"training {log_path.stem[:8]}: {_last_words(log_path, process.returncode)}")
    raise TrainingError(f"training {log_path.stem[:8]}: {failure}")


def _launcher(launch: Path | None) -> list[str]:
    """`env` sets the variables, so that this process's environment stays as it is."""
    variables = ["HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false", "PYTHONUNBUFFERED=1", "TQDM_DISABLE=1"]
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if gpus == 0:
        # A second thread beside other load makes every step several times slower: they wait for each other, spinning.
        variables.append("OMP_NUM_THREADS=1")
    python = ["env", *variables, sys.executable]
    accelerate = [*python, "-m", "accelerate.commands.launch"]
    if launch is not None:
        return [*accelerate, "--config_file", str(launch)]
    return [*accelerate, "--multi_gpu", f"--num_processes={gpus}"] if gpus > 1 else python


def _take_line(line: bytes, on_progress: OnProgress | None) -> str | None:
    """Hand on a line of progress; return the reason when it is one of failure. Libraries' own lines are skipped."""
    try:
        progress = Progress.model_validate_json(line)
    except ValidationError:
        try:
            return Failure.model_validate_json(line).reason
        except ValidationError:
            return None
    if on_progress is not None:
        on_progress(progress.step, progress.total, progress.loss)
    return None


def _last_words(log_path: Path, returncode: int) -> str:
    lines = [line.strip() for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "no message")
    if returncode == -9:
        last = "killed by the system, most likely for memory; lower batch_size or max_length"
    return f"the process ended with {returncode}: {last[:300]} (log: {log_path})"


def _store(adapter: Adapter, run: TrainingRun, output: Path, adapters_dir: Path) -> None:
    """Put the files into their immutable folder, then the record that makes the training count as done."""
    folder = adapters_dir / adapter.sha256
    record = adapters_dir / "by-training" / f"{adapter.training_id}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    if folder.is_dir():
        if adapter_digest(folder) != adapter.sha256:
            raise TrainingError(f"{folder}: its files were changed after training; remove the folder and train again")
    else:
        partial = adapters_dir / f".{adapter.training_id}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for name in ADAPTER_FILES:
            shutil.copyfile(output / name, partial / name)
            _sync(partial / name)
            (partial / name).chmod(0o444)
        partial.rename(folder)
    _write_whole(training_run_path(adapters_dir, adapter.training_id), run)
    _write_whole(record, adapter)


def _write_whole(path: Path, record: Record) -> None:
    temporary = path.with_suffix(".partial")
    temporary.write_text(record.model_dump_json(indent=1), encoding="utf-8")
    _sync(temporary)
    temporary.replace(path)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
