"""The chaos test in short: each part is broken at least once under live streams. `make chaos` is the long form."""

from pathlib import Path

import pytest

from tests.chaos.disk import can_mount
from tests.chaos.run import run
from tests.chaos.schedule import DISK, ENGINES, GATEWAYS

pytestmark = pytest.mark.servers


def test_what_is_promised_holds_while_parts_are_killed_hang_and_find_the_disk_full(tmp_path: Path) -> None:
    history, violations = run(seed=2, seconds=8.0, folder=tmp_path / "run", say=print)
    assert violations == []
    broken = {outage.part for outage in history.outages}
    assert {"controller", "mlflow"} <= broken
    assert broken & set(GATEWAYS)
    assert broken & set(ENGINES)
    assert DISK in broken or not can_mount()
    assert any(turn.end == "complete" for turn in history.turns)
    assert history.ending is not None
    assert history.ending.rollouts
