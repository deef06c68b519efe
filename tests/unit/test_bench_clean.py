"""What `make bench-clean` measures is made as it says, and its figures are drawn where they belong."""

import re
from datetime import timedelta
from pathlib import Path

from pipeline.events.lake import database_in_memory
from pipeline.events.read import read_events, select
from tests.benchmarks.clean.interactions import DUE, write_log
from tests.benchmarks.clean.lake import rank_shares, write_lake
from tests.benchmarks.clean.plot import plot
from tests.benchmarks.clean.talk import CHINESE_SPEECH, ENGLISH_SPEECH


def test_the_log_is_whole_the_same_for_a_seed_and_shared_by_businesses(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_log(tmp_path / name, "english", ENGLISH_SPEECH, 200, 1)
        write_log(tmp_path / name, "chinese", CHINESE_SPEECH, 100, 2)
    start = DUE - timedelta(days=14)
    for business, count in (("english", 200), ("chinese", 100)):
        one, other = (read_events(tmp_path / name, business, start, DUE) for name in ("one", "other"))
        assert one == other
        assert (len(one.interactions), one.bad_lines, one.unmatched_feedback) == (count, 0, 0)
        assert 0.6 * count < len(one.feedback) < count


def test_the_lake_holds_every_business_and_reads_as_a_lake(tmp_path: Path) -> None:
    write_lake(tmp_path, 2_000)
    start = DUE - timedelta(days=30)
    found = [read_events(tmp_path, f"business-{rank}", start, DUE) for rank in (0, 19)]
    assert [events.bad_lines for events in found] == [0, 0]
    for rank, events in zip((0, 19), found, strict=True):
        made = 2_000 * rank_shares()[rank]
        assert 0.9 * made < len(events.interactions) + len(events.feedback) <= made + 1
    with database_in_memory() as database:
        selected = select(database, tmp_path, "business-0", start, DUE)
        texts = (len(set(selected.interactions())), len(set(selected.feedback())))
    assert texts == (len(found[0].interactions), len(found[0].feedback))


def test_a_linear_cost_lies_on_the_dashed_line() -> None:
    drawn = plot([10, 100], [1.0, 10.0], "cost")
    line = re.findall(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)", drawn)
    points = re.search(r'points="([\d.]+),([\d.]+) ([\d.]+),([\d.]+)"', drawn)
    assert points is not None
    assert line[0] == points.groups()
