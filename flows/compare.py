"""Two endpoints through the gate, by hand: the same instrument as every night's, on a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from evals.endpoint import Endpoint, base_model
from evals.evaluate import Progress, evaluate
from evals.gate import decide
from evals.judge import describe
from evals.leaks import refuse_leaks
from evals.report import render_gate_report
from pipeline.config import BusinessConfig, JudgeSettings, load_config
from pipeline.dataset.catalogue import find_snapshot
from pipeline.dataset.snapshot import Snapshot, read_snapshot
from pipeline.dataset.suite import Suite, load_suite
from pipeline.errors import ConfigError
from pipeline.records import SnapshotManifest, Verdict, content_id

CODES = {Verdict.PROMOTE: 0, Verdict.REJECT: 1, Verdict.INCONCLUSIVE: 3}
"""2 is every command's exit code for an error."""
_MARGIN = 0.02
"""By which the primary may be worse where nobody says otherwise; a change of serving makes nothing better."""


@dataclass(frozen=True)
class Comparison:
    """What is to be compared, as the command line says it."""

    baseline: str
    candidate: str
    suite: Path | None
    configs: Path
    business: str | None
    snapshot: str | None
    goal: Literal["not_worse", "better"]
    margin: float | None
    out: Path
    work_dir: Path | None
    key_file: Path | None
    concurrency: int


def run_comparison(wanted: Comparison) -> int:
    """Ask, judge, write the report, say the verdict.

    Returns:
        The exit code that stands for the verdict.

    Raises:
        PipelineError: the comparison cannot be made.
    """
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    about, snapshot, suite = _material(wanted)
    refuse_leaks(snapshot, suite, about.dataset.near_duplicate_threshold)
    key = wanted.key_file.read_text(encoding="utf-8").strip() if wanted.key_file else ""
    with _bars(console) as tell:
        result = evaluate(
            snapshot,
            suite,
            _endpoint("--baseline", wanted.baseline, key),
            _endpoint("--candidate", wanted.candidate, key),
            about,
            concurrency=wanted.concurrency,
            judge_key=JudgeSettings().judge_key.get_secret_value(),
            work_dir=wanted.work_dir,
            on_progress=tell,
        )
    decision = decide(result, about.gate)
    page = render_gate_report(
        decision,
        result,
        snapshot.manifest,
        business=about,
        version=None,
        baseline_version=None,
        generated_at=datetime.now(UTC),
    )
    _write(wanted.out, page)
    if decision.judging:
        console.print(describe(decision.judging))
    console.print(f"{decision.verdict.upper()}: {decision.reason}")
    console.print(f"report: {wanted.out}")
    return CODES[decision.verdict]


def _material(wanted: Comparison) -> tuple[BusinessConfig, Snapshot, Suite]:
    """By whose rules, and what is asked."""
    suite_file, folder = wanted.suite, None
    if wanted.business is not None:
        config = load_config(wanted.configs)
        about = config.business(wanted.business)
        if suite_file is None and about.suite:
            suite_file = config.directory / about.suite
        if wanted.snapshot is not None:
            folder = find_snapshot(config.state_dir / "snapshots", about.business, wanted.snapshot)
    elif wanted.snapshot is not None:
        raise ConfigError(f"--snapshot: '{wanted.snapshot}' is a snapshot of which --business?")
    else:
        about = _nobody()
    suite = load_suite(suite_file) if suite_file else Suite()
    if not suite.items and folder is None:
        raise ConfigError(
            "nothing to ask: name a golden suite with items (--suite), or a --business with its --snapshot"
        )
    margin = wanted.margin if wanted.margin is not None else _MARGIN if wanted.goal == "not_worse" else 0.0
    gate = about.gate.model_copy(update={"goal": wanted.goal, "margin": margin})
    about = about.model_copy(update={"gate": gate})
    return about, read_snapshot(folder) if folder else _nothing_learned(about.business), suite


def _nobody() -> BusinessConfig:
    """The rules where no business is named: the gate's own."""
    return BusinessConfig(
        business="comparison",
        title="Comparison",
        language="en",
        report_language="en",
        timezone="UTC",
        nightly="0 0 * * *",
    )


def _nothing_learned(business: str) -> Snapshot:
    """A snapshot without a row: only the golden suite is asked."""
    now = datetime.now(UTC)
    manifest = SnapshotManifest(
        snapshot_id=content_id([business]),
        business=business,
        window_start=now,
        window_end=now,
        rows={},
        interactions=0,
        sources=0,
        dropped={},
        pii_counts={},
        signal_counts={},
        users=0,
        split_by="user",
    )
    return Snapshot(manifest, {})


def _endpoint(option: str, value: str, key: str) -> Endpoint:
    url, _, adapter = value.partition("#")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{option}: '{value}' is no URL; example: http://127.0.0.1:8000#support-v2-1a2b3c4d")
    place = Endpoint(url=url.rstrip("/").removesuffix("/v1"), model=adapter, api_key=key)
    if adapter:
        return place
    with httpx.Client(timeout=10.0) as client:
        return base_model(client, place)


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    """A bar for each thing that is done, from its first piece on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=console) as bars:
        of: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in of:
                of[what] = bars.add_task(what)
            bars.update(of[what], completed=done, total=total)

        yield tell


def _write(path: Path, page: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be written ({error.strerror}); name another file") from error
