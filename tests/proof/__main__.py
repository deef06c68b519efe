"""Run the proofs: `python -m tests.proof`, or a part of them: `python -m tests.proof --only mechanics`."""

import argparse
import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks.machine import Machine
from tests.proof import fast
from tests.proof.page import compose
from tests.proof.rows import Row, write_part

_WORLDS = 1000
_SEEDS = 3
_REAL = ("mechanics", "learning")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="modelled models, in this process, instead of a stack")
    parser.add_argument(
        "--worlds", type=int, default=_WORLDS, help="with --fast: about so many (%(default)s); others are not published"
    )
    parser.add_argument("--only", choices=_REAL, action="append", help="this part alone; may be given twice")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="of the part learning (%(default)s)")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    if arguments.fast:
        rows = _fast(console, arguments.worlds)
    else:
        rows = [row for name in arguments.only or _REAL for row in _real(console, name, arguments.seeds)]
    console.print(shown(rows))
    if not arguments.fast or arguments.worlds == _WORLDS:
        console.print("written: " + ", ".join(map(str, compose())), soft_wrap=True)
    return 0 if all(row.right is not False for row in rows) else 1


def _real(console: Console, name: str, seeds: int) -> list[Row]:
    part = import_module(f"tests.proof.real.{name}")  # late: it brings MLflow, which takes seconds
    since = time.monotonic()

    def tell(what: str) -> None:
        console.print(f"[dim]{datetime.now(UTC):%H:%M:%S}[/] {name}: {what}", soft_wrap=True)

    options = f"--only {name}" + ("" if seeds == _SEEDS else f" --seeds {seeds}")
    rows: list[Row] = []
    scores: list[tuple[float, ...]] = []
    earlier = 0.0

    def keep(*, complete: bool) -> None:
        about = when_and_where(f"make prove ARGS='{options}'", since, earlier)
        curves = {"real": list(zip(*scores, strict=True))} if scores else {}
        write_part(name, rows, {**about, "seeds": part.SEEDS.format(seeds=seeds), "curves": curves}, complete=complete)

    for stage in part.prove(tell, seeds):
        rows += stage.rows
        scores += [stage.scores] if stage.scores else []
        earlier += stage.earlier_minutes
        if rows:
            keep(complete=False)  # at once: a stopped run has not run for nothing
    keep(complete=True)
    return rows


def _fast(console: Console, count: int) -> list[Row]:
    since = time.monotonic()
    with Progress(console=console) as progress:
        tasks = {}

        def tell(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=of)
            progress.update(tasks[what], completed=done)

        rows, about = fast.prove(count, min(2, os.cpu_count() or 1), tell)
    name = "fast" if count == _WORLDS else "fast-quick"
    write_part(name, rows, {**when_and_where("make prove-fast", since), **about})
    return rows


def when_and_where(command: str, since: float, earlier: float = 0.0) -> dict[str, object]:
    """What a figure means nothing without.

    Args:
        since: `time.monotonic()` at the start.
        earlier: minutes of an earlier run that this one went on from.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    minutes = round((time.monotonic() - since) / 60 + earlier, 1)
    return {"command": command, "date": now, "machine": asdict(Machine.this()), "minutes": minutes}


def shown(rows: list[Row]) -> Table:
    """For whoever waits at the terminal."""
    table = Table("planted", "expected", "found", "")
    for row in rows:
        mark = {True: "[green]✓", False: "[red]✗", None: "–"}[row.right]
        table.add_row(row.planted, row.expected, row.found, mark)
    return table


if __name__ == "__main__":
    sys.exit(main())
