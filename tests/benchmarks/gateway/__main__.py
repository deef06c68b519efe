"""Run the benchmark: `python -m tests.benchmarks.gateway`; `--help` names what a developer may narrow it to."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.benchmarks.document import DOCUMENT, RESULTS, write_json, write_section
from tests.benchmarks.gateway.cases import CONTESTANTS, METRICS
from tests.benchmarks.gateway.goals import rows
from tests.benchmarks.gateway.report import details, section
from tests.benchmarks.gateway.results import Results
from tests.benchmarks.gateway.run import Plan, Ran, run
from tests.benchmarks.gateway.servers import BenchError
from tests.benchmarks.gateway.window import Window
from tests.benchmarks.machine import Machine
from tests.benchmarks.tables import shown

_ROUNDS = 3


def main() -> int:
    """0 after a run, 2 when it cannot be done."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever stops it, the servers are stopped too
    plan = _plan()
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        _write(plan, _measure(plan, console), console)
    except KeyboardInterrupt:
        return 130
    except BenchError as error:
        sys.stderr.write(f"bench-gateway: {error}\n")
        return 2
    return 0


def _plan() -> Plan:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.gateway", description="The gateway against its peers."
    )
    parser.add_argument("--quick", action="store_true", help="short windows, one round")
    parser.add_argument("--only", type=_names_of(CONTESTANTS), default=CONTESTANTS, help=",".join(CONTESTANTS))
    parser.add_argument("--metrics", type=_names_of(METRICS), default=METRICS, help=",".join(METRICS))
    parser.add_argument("--rounds", type=int, help="default: 3, with --quick 1")
    parser.add_argument(
        "--cores", choices=("one", "two"), default="two", help="one: stub and load generator share the gateway's core"
    )
    given = parser.parse_args()
    rounds = given.rounds or (1 if given.quick else _ROUNDS)
    one_core = given.cores == "one"
    return Plan(only=given.only, metrics=given.metrics, rounds=rounds, quick=given.quick, one_core=one_core)


def _names_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def names(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        unknown = [name for name in given if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(known)}")
        return given

    return names


def _measure(plan: Plan, console: Console) -> Ran:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="bench-gateway-", ignore_cleanup_errors=True) as folder,
        Progress(*columns, console=console, refresh_per_second=1) as progress,
    ):
        task = progress.add_task("windows", total=plan.windows)

        def saw(window: Window) -> None:
            progress.advance(task)
            console.print(_line(window), highlight=False, soft_wrap=True)

        return run(plan, Path(folder), lambda line: console.print(line, highlight=False), saw)


def _write(plan: Plan, ran: Ran, console: Console) -> None:
    """The rows, for the reader and as a file; what is published comes from whole runs only."""
    made, machine, now = rows(Results(ran.windows)), Machine.this(), datetime.now(UTC)
    narrowed = plan.quick or plan.one_core or plan.rounds < _ROUNDS
    whole = not narrowed and plan.only == CONTESTANTS and plan.metrics == METRICS
    results = RESULTS / ("gateway.json" if whole else "gateway-quick.json")
    write_json(results, made, machine, now, details(plan, ran))
    console.print(shown(made))
    console.print(f"all windows: {results}", highlight=False, soft_wrap=True)
    if whole:
        write_section("gateway", section(plan, ran, made, machine, now))
        console.print(f"written: {DOCUMENT}", highlight=False, soft_wrap=True)


def _line(window: Window) -> str:
    parts = [f"  {window.contestant:<11}{window.case:<10}{window.rps or 0:>9,.0f} rps"]
    if window.cpu_us is not None:
        parts.append(f"{window.cpu_us:>8.1f} µs/request")
    if window.cpu_us_event is not None:
        parts.append(
            f"{window.cpu_us_event:>7.1f} µs/chunk  first p50 {window.first_p50:.2f} p99 {window.first_p99:.2f} ms"
        )
    else:
        parts.append(f"p50 {window.p50:.2f} p99 {window.p99:.2f} ms")
    if window.peak_mb is not None:
        parts.append(f"peak {window.peak_mb:.0f} MB")
    if window.contended:
        parts.append(f"[yellow]others took {window.others_cores:.2f} cores[/]")
    if window.wrong:
        parts.append(f"[red]{window.outcome.errors} errors, {window.outcome.broken} broken streams[/]")
    return "  ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
