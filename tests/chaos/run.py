"""One run: the stack up, users on it, the schedule played, the end awaited, the promises checked."""

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

from tests.chaos import ending
from tests.chaos.checks import Violation, check
from tests.chaos.disk import Disk, can_mount
from tests.chaos.faults import Faults
from tests.chaos.history import History
from tests.chaos.load import Load
from tests.chaos.schedule import GATEWAYS, make_schedule
from tests.chaos.stack import Stack

VERSIONS = 4
QUIET_WITHIN_S = 240.0
"""Each of the last steps may have to run into its time-out of a minute, with a wish behind it."""


def run(seed: int, seconds: float, folder: Path, say: Callable[[str], None]) -> tuple[History, list[Violation]]:
    """Run and check.

    Args:
        seconds: of faults; starting before and ending after take another half to two minutes.
        folder: an empty one; logs and history stay in it, and after a violation `state-kept`.
        say: is told each event, with the seconds since the load began.
    """
    history = History(seed)
    with ExitStack() as cleaning:
        disk = cleaning.enter_context(Disk(folder / "state")) if can_mount() else None
        if disk is None:
            say("this process may not mount: the disk is never full")
            (folder / "state").mkdir()
        stack = cleaning.enter_context(Stack(folder, folder / "state"))
        say("starting MLflow, two engines, two gateways, the controller")
        stack.up(VERSIONS)
        began = datetime.now(UTC)
        history.ending = asyncio.run(_play(history, stack, disk, seconds, say))
        time.sleep(1.0)  # what gateways logged last reaches the disk
        history.log = ending.logged(stack)
        history.collected = ending.collected(stack, began)
        violations = check(history)
        history.write(folder / "history.json")
        if violations:
            shutil.copytree(folder / "state", folder / "state-kept")  # the disk goes with the run
        return history, violations


async def _play(
    history: History, stack: Stack, disk: Disk | None, seconds: float, say: Callable[[str], None]
) -> ending.Ending:
    """Faults under load, then load alone until it is quiet."""
    began = time.monotonic()

    def tell(what: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {what}")

    load = Load(history.seed, {name: stack.url(name) for name in GATEWAYS}, stack.key)
    faults = Faults(stack, disk, tell)
    history.turns, history.votes, history.outages = load.turns, load.votes, faults.outages
    talking = asyncio.create_task(load.run())
    try:
        await faults.play(make_schedule(history.seed, seconds, VERSIONS))
        tell("nothing breaks any more; rollouts come to their end")
        return await asyncio.to_thread(ending.wait_until_quiet, stack, QUIET_WITHIN_S)
    finally:
        load.stop()
        with suppress(asyncio.CancelledError):
            await talking
