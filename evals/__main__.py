"""Compare any two endpoints: an adapter with another one, or an engine with a changed one.

    python -m evals --baseline URL#MODEL --candidate URL#MODEL --snapshot DIR [--suite FILE] --config BUSINESS.yaml \\
        --out report.html

Exit code: 0 promote, 1 reject, 2 inconclusive, 3 the comparison could not be made.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from evals.endpoint import Endpoint
from evals.evaluate import Progress as Tell
from evals.evaluate import evaluate
from evals.gate import decide
from evals.report import render_gate_report
from pipeline.config import JudgeSettings, load_business
from pipeline.dataset.snapshot import read_snapshot
from pipeline.dataset.suite import load_suite
from pipeline.errors import ConfigError, PipelineError
from pipeline.records import GateDecision, Verdict

_CODES = {Verdict.PROMOTE: 0, Verdict.REJECT: 1, Verdict.INCONCLUSIVE: 2}
_FAILED = 3


def main(argv: list[str] | None = None) -> int:
    """Run the comparison and return the exit code."""
    args = _parser().parse_args(argv)
    console = Console(stderr=True)
    try:
        decision = _compare(args, console)
    except (PipelineError, OSError) as error:
        console.print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        return _FAILED
    console.print(f"{decision.verdict.upper()}: {decision.reason}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"report: {args.out}", highlight=False, markup=False, soft_wrap=True)
    return _CODES[decision.verdict]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evals", description="Compare two endpoints on the same questions.")
    parser.add_argument("--baseline", required=True, metavar="URL#MODEL", help="what is in service")
    parser.add_argument("--candidate", required=True, metavar="URL#MODEL", help="what may replace it")
    parser.add_argument("--snapshot", required=True, type=Path, metavar="DIR", help="folder of a snapshot")
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="the business's file")
    parser.add_argument("--suite", type=Path, metavar="FILE", help="golden suite (default: the business's own)")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="where the HTML report goes")
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="keep answers here, to go on after a kill")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file that holds the engines' API key")
    parser.add_argument("--concurrency", type=int, default=4, metavar="N", help="requests in flight at once")
    return parser


def _compare(args: argparse.Namespace, console: Console) -> GateDecision:
    business = load_business(args.config)
    snapshot = read_snapshot(args.snapshot)
    key = args.key_file.read_text(encoding="utf-8").strip() if args.key_file else ""
    # A business's suite is named relative to the configuration folder, which holds `businesses/`.
    suite = args.suite or (business.suite and args.config.resolve().parent.parent / business.suite)
    baseline, candidate = _endpoint("--baseline", args.baseline, key), _endpoint("--candidate", args.candidate, key)
    with _shown(console) as tell:
        result = evaluate(
            snapshot,
            load_suite(suite) if suite else None,
            baseline,
            candidate,
            business,
            concurrency=args.concurrency,
            judge_key=JudgeSettings().judge_key.get_secret_value(),
            work_dir=args.work_dir,
            on_progress=tell,
        )
    decision = decide(result, business.gate)
    page = render_gate_report(
        decision,
        result,
        snapshot.manifest,
        business=business,
        version=None,
        baseline_version=None,
        generated_at=datetime.now(UTC),
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(page, encoding="utf-8")
    return decision


@contextmanager
def _shown(console: Console) -> Iterator[Tell]:
    """A bar for each thing that is done, from its first piece on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bars: dict[str, TaskID] = {}

        def tell(what: str, done: int, of: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what)
            progress.update(bars[what], completed=done, total=of)

        yield tell


def _endpoint(option: str, value: str, key: str) -> Endpoint:
    url, _, model = value.partition("#")
    if not url.startswith(("http://", "https://")) or not model:
        raise ConfigError(f"{option}: '{value}' is no URL#MODEL; example: http://127.0.0.1:8000#support-v2-1a2b3c4d")
    return Endpoint(url=url.rstrip("/").removesuffix("/v1"), model=model, api_key=key)


if __name__ == "__main__":
    sys.exit(main())
