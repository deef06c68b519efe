"""Run the chaos test: `python -m tests.chaos --seed 7 --seconds 300`."""

import argparse
import secrets
import shutil
import signal
import sys
from pathlib import Path

from rich.console import Console

from tests.chaos.checks import summary
from tests.chaos.part import ROOT
from tests.chaos.run import run


def main() -> int:
    """0 when every promise held, 1 when not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Kill, hang and starve parts of a running stack under live streams, and check what was promised.",
    )
    parser.add_argument("--seed", type=int, help="of the schedule and the users; without one, a new one, which is told")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long things break (default: 300)")
    parser.add_argument("--folder", type=Path, help="for logs and history; default: build/chaos/<seed>")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no process of the stack outlives the run
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    folder: Path = given.folder or ROOT / "build" / "chaos" / str(seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"seed {seed}, {given.seconds:.0f} s of faults; logs in {folder}")
    history, violations = run(seed, given.seconds, folder, console.print)
    console.print(summary(history))
    for violation in violations:
        console.print(f"[red]violated[/red] {violation}")
    if violations:
        again = f"make chaos ARGS='--seed {seed} --seconds {given.seconds:g}'"
        console.print(
            f"{len(violations)} violations; timeline, turns and outages: {folder}/history.json; again: {again}"
        )
        return 1
    console.print("every promise held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
