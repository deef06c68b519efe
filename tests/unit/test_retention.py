"""What a business keeps no longer is deleted, and nothing else."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.events.lake import alone, compact
from pipeline.events.read import read_events
from pipeline.events.retention import expire
from pipeline.records import Interaction
from tests.builders import an_interaction
from tests.unit.test_lake import line, write_segment

NOW = datetime(2026, 3, 20, 9, tzinfo=UTC)
ALL = (NOW - timedelta(days=400), NOW + timedelta(days=1))


def event(business: str, age: timedelta) -> Interaction:
    return an_interaction(f"{business}-{age}", business=business, started_at=NOW - age)


def ids(events_dir: Path, business: str) -> set[str]:
    return {one.interaction_id for one in read_events(events_dir, business, *ALL).interactions}


@settings(max_examples=8)
@given(st.sets(st.integers(0, 60 * 24), min_size=1, max_size=8), st.integers(1, 50))
def test_days_that_ended_before_the_limit_go_and_all_others_stay(hours: set[int], keep_days: int) -> None:
    events = [event(business, timedelta(hours=age)) for age in hours for business in ("support", "legal")]
    with TemporaryDirectory() as folder:
        events_dir = Path(folder)
        write_segment(events_dir, b"".join(map(line, events)))
        compact(events_dir, NOW + timedelta(days=1))
        expire(events_dir, "support", keep_days, NOW)
        left = ids(events_dir, "support")
        for one in events:
            if one.business == "support":
                ended = one.started_at.replace(hour=0) + timedelta(days=1)
                assert (one.interaction_id in left) == (ended + timedelta(days=keep_days) > NOW.replace(hour=0))
        assert ids(events_dir, "legal") == {one.interaction_id for one in events if one.business == "legal"}
        assert expire(events_dir, "support", keep_days, NOW) == 0


def test_a_killed_deletion_is_done_again_and_a_running_compaction_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [event("support", timedelta(days=days)) for days in (9, 10, 11)]
    write_segment(tmp_path, b"".join(map(line, old)))
    compact(tmp_path, NOW)
    with alone(tmp_path) as only:
        assert only
        assert expire(tmp_path, "support", 1, NOW) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rmdir", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            expire(tmp_path, "support", 1, NOW)
    assert expire(tmp_path, "support", 1, NOW) == 3
    assert ids(tmp_path, "support") == set()


def test_no_log_is_nothing_to_delete(tmp_path: Path) -> None:
    assert expire(tmp_path / "none", "support", 1, NOW) == 0
