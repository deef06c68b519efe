"""The event log is read whole, each event once, whether it was compacted or not."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.events.lake as lake
import pipeline.events.read as read
from pipeline.errors import DataError
from pipeline.events.lake import compact
from pipeline.events.read import read_events
from pipeline.records import Feedback, Interaction
from tests.builders import NOON, a_feedback, an_interaction

START, END = NOON, NOON + timedelta(days=1)
LATER = NOON + timedelta(days=3)


def line(event: Interaction | Feedback) -> bytes:
    kind = "interaction" if isinstance(event, Interaction) else "feedback"
    return json.dumps({kind: event.model_dump(mode="json")}, ensure_ascii=False).encode() + b"\n"


def write_segment(events_dir: Path, content: bytes, name: str = "w1-20260310T12") -> Path:
    path = events_dir / "segments" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_only_the_business_and_window_are_read_and_feedback_may_come_at_any_time(tmp_path: Path) -> None:
    events: Sequence[Interaction | Feedback] = [
        a_feedback("e0", "i1", received_at=NOON - timedelta(days=1)),
        an_interaction("i2", started_at=NOON + timedelta(hours=2)),
        an_interaction("i1", answer="中文\n\u2028"),
        an_interaction("too-late", started_at=END),
        an_interaction("too-early", started_at=START - timedelta(microseconds=1)),
        an_interaction("other", business="legal"),
        a_feedback("e1", "i1", received_at=NOON + timedelta(days=30)),
        a_feedback("e2", "too-late"),
        a_feedback("e3", "other", business="legal"),
        a_feedback("e4", "nowhere"),
        a_feedback("e4", "nowhere"),
        a_feedback("e1", "i1", received_at=NOON + timedelta(days=31)),
        an_interaction("i1", answer="中文\n\u2028"),
    ]
    write_segment(tmp_path, b"".join(map(line, events)))
    found = read_events(tmp_path, "support", START, END)
    assert [i.interaction_id for i in found.interactions] == ["i1", "i2"]
    assert found.interactions[0] == events[2]
    assert list(found.feedback) == [events[0], events[6]]
    assert found.unmatched_feedback == 1
    assert found.bad_lines == 0


def test_bad_lines_are_counted_and_a_cut_last_line_is_not(tmp_path: Path) -> None:
    good = line(an_interaction("i1"))
    wrong = json.dumps({"interaction": an_interaction("i2").model_dump(mode="json") | {"status": "fine"}}).encode()
    content = good + b'{"bad\n\n"text"\n\xff\xfe\n{"feedback": {"business": "support"}}\n' + wrong + b"\n"
    foreign = b'{"feedback": {"business": "legal"}}\n'
    write_segment(tmp_path, content + foreign + line(an_interaction("i3"))[:-40])
    write_segment(tmp_path, good + "{中".encode()[:-1], "w2-20260310T12")
    write_segment(tmp_path, b"", "w3-20260310T12")
    found = read_events(tmp_path, "support", START, END)
    assert [i.interaction_id for i in found.interactions] == ["i1"]
    assert found.bad_lines == 5


def test_no_log_is_an_empty_log(tmp_path: Path) -> None:
    found = read_events(tmp_path / "absent", "support", START, END)
    assert (found.interactions, found.feedback, found.bad_lines) == ((), (), 0)
    assert compact(tmp_path / "absent", LATER) == 0


HOURS = st.integers(0, 30).map(lambda hours: NOON + timedelta(hours=hours))
IDS = st.sampled_from(["i1", "i2", "i3", "i4"])
BUSINESSES = st.sampled_from(["support", "legal"])
EVENTS = st.builds(
    lambda i, at, business: an_interaction(i, started_at=at, business=business), IDS, HOURS, BUSINESSES
) | st.builds(
    lambda e, i, at, business: a_feedback(e, i, received_at=at, business=business),
    st.sampled_from(["e1", "e2", "e3"]),
    IDS,
    HOURS,
    BUSINESSES,
)
SEGMENTS = st.dictionaries(
    st.sampled_from(["w1-20260310T12", "w1-20260310T13", "w2-20260310T12", "w2-20260313T11"]),
    st.tuples(st.lists(EVENTS, max_size=5), st.sampled_from([b"", b'{"interaction": {"a', b"{broken}\n"])),
)


@settings(max_examples=6, deadline=None)
@given(SEGMENTS)
def test_compacting_never_changes_what_is_read(
    segments: dict[str, tuple[list[Interaction | Feedback], bytes]],
) -> None:
    with TemporaryDirectory() as folder:
        events_dir = Path(folder)
        for name, (events, tail) in segments.items():
            write_segment(events_dir, b"".join(map(line, events)) + tail, name)
        before = {b: read_events(events_dir, b, START, END) for b in ("support", "legal")}
        kept = {name for name, (_, tail) in segments.items() if tail == b"{broken}\n" or name.endswith("T11")}
        assert compact(events_dir, LATER) == len(segments) - len(kept)
        assert {path.stem for path in events_dir.glob("segments/*.jsonl")} == kept
        assert {b: read_events(events_dir, b, START, END) for b in before} == before
        assert compact(events_dir, LATER) == 0


class Killed(Exception):
    pass


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_killed_compaction_loses_nothing_and_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    events = [
        an_interaction(f"i{n}", started_at=NOON + timedelta(hours=13 * (n % 2)), business=b)
        for n, b in enumerate(["support", "legal", "support", "support"])
    ]
    segment = write_segment(tmp_path, b"".join(map(line, events)))
    before = read_events(tmp_path, "support", START, END)
    real_write, done = lake.write_table, []

    def write_then_die(*arguments: object) -> None:
        if len(done) == writes:
            raise Killed
        done.append(real_write(*arguments))  # type: ignore[arg-type]

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(lake, "write_table", write_then_die)
        patched.setattr(Path, "unlink", die)
        with pytest.raises(Killed):
            compact(tmp_path, LATER)
    assert segment.exists()
    assert read_events(tmp_path, "support", START, END) == before
    assert compact(tmp_path, LATER) == 1
    assert read_events(tmp_path, "support", START, END) == before
    files = sorted(path.relative_to(tmp_path / "lake").as_posix() for path in tmp_path.glob("lake/**/*.parquet"))
    assert files == [
        f"{b}/{d}/w1-20260310T12.parquet"
        for b, d in [("legal", "2026-03-11"), ("support", "2026-03-10"), ("support", "2026-03-11")]
    ]
    assert sum(pq.read_metadata(path).num_rows for path in tmp_path.glob("lake/**/*.parquet")) == 4


def test_a_segment_that_begins_anew_under_its_old_name_joins_its_file(tmp_path: Path) -> None:
    for name in ("i1", "i2"):
        write_segment(tmp_path, line(an_interaction(name)))
        assert compact(tmp_path, LATER) == 1
    assert [i.interaction_id for i in read_events(tmp_path, "support", START, END).interactions] == ["i1", "i2"]


@pytest.mark.parametrize("times", [1, 99])
def test_a_segment_that_goes_away_while_it_is_read_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    write_segment(tmp_path, line(an_interaction()))
    real, listed = read.segments_of, []

    def list_with_ghost(events_dir: Path) -> list[Path]:
        listed.append(events_dir)
        return real(events_dir) + [events_dir / "segments" / "gone.jsonl"] * (len(listed) <= times)

    monkeypatch.setattr(read, "segments_of", list_with_ghost)
    if times == 1:
        assert len(read_events(tmp_path, "support", START, END).interactions) == 1
    else:
        with pytest.raises(DataError, match="cannot be read"):
            read_events(tmp_path, "support", START, END)


def test_a_segment_that_may_still_be_written_is_left_alone(tmp_path: Path) -> None:
    write_segment(tmp_path, line(an_interaction()))
    write_segment(tmp_path, line(an_interaction()), "notes")
    assert compact(tmp_path, datetime(2026, 3, 10, 13, 59, tzinfo=UTC)) == 0
    assert compact(tmp_path, datetime(2026, 3, 10, 14, 0, tzinfo=UTC)) == 1


def test_what_compaction_leaves_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    write_segment(tmp_path, line(an_interaction()))
    compact(tmp_path, LATER)
    modes = {path: path.stat().st_mode & 0o077 for path in (tmp_path / "lake").rglob("*")}
    assert len(modes) == 3
    assert set(modes.values()) == {0}
