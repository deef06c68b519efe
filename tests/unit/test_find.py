"""One interaction is found wherever it stands in the log, with what was said about it where that is looked for."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.events.find as find
from pipeline.events.find import EARLY_HOURS, HOUR, LATE_HOURS, Found, find_interaction, lines_with, merge_hours
from pipeline.events.lake import compact
from pipeline.records import Feedback, Interaction
from tests.builders import NOON, a_feedback, an_interaction

LATER = NOON + timedelta(days=100)
NAME = "018f0000-0000-7000-8000-000000000001"


def line(event: Interaction | Feedback) -> bytes:
    kind = "interaction" if isinstance(event, Interaction) else "feedback"
    return json.dumps({kind: event.model_dump(mode="json")}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def put(events_dir: Path, at: datetime, *events: Interaction | Feedback, worker: str = "w1", tail: bytes = b"") -> Path:
    """Append to the segment that a gateway would write at this time."""
    path = events_dir / "segments" / f"{worker}-{at:%Y%m%dT%H}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(map(line, events)) + tail)
    return path


def look(events_dir: Path, now: datetime = LATER, *, made_at: datetime = NOON, most_bytes: int = 2**30) -> Found | None:
    return find_interaction(events_dir, "support", NAME, made_at, now, most_bytes=most_bytes)


def said(found: Found | None) -> list[str]:
    assert found is not None
    return [event.event_id for event in found.feedback]


# where it is


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("worker", ["w1", "gateway-2"])
@pytest.mark.parametrize("ended", [timedelta(0), timedelta(minutes=59), timedelta(hours=1, minutes=59)])
def test_it_is_found_in_every_worker_s_files_of_its_hour_and_the_next(
    tmp_path: Path, ended: timedelta, worker: str, compacted: bool
) -> None:
    began = NOON.replace(hour=23)
    asked = an_interaction(NAME, started_at=began, answer="中文\u2028")
    put(tmp_path, began, an_interaction("other", prompt=NAME, started_at=began), worker="w0")
    put(tmp_path, began + ended, asked, worker=worker)
    if compacted:
        assert compact(tmp_path, LATER) > 0
        assert not list((tmp_path / "segments").glob("*.jsonl"))
    found = look(tmp_path, made_at=began)
    assert found is not None
    assert Interaction.model_validate_json(found.interaction) == asked


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert look(tmp_path) is None
    put(tmp_path, NOON, a_feedback("e1", NAME), an_interaction(NAME, business="sales"))
    put(tmp_path, NOON + 2 * HOUR, an_interaction(NAME))
    assert look(tmp_path) is None


def test_lines_that_merely_mention_it_and_lines_that_nobody_can_read_are_passed_over(tmp_path: Path) -> None:
    names = f'"interaction_id":"{NAME}"'
    mentions = (an_interaction("i2", prompt=names, regenerates=NAME), a_feedback("e2", "i2", kind="edit", value=names))
    noise = b'{"interaction":{%b}\n{"feedback":{%b}}\n%b\n' % (names.encode(), names.encode(), NAME.encode())
    put(tmp_path, NOON, *mentions, tail=noise)
    put(tmp_path, NOON, an_interaction(NAME), a_feedback("e1", NAME), tail=line(a_feedback("torn", NAME))[:-1])
    assert said(look(tmp_path)) == ["e1"]


# what was said about it


@pytest.mark.parametrize("compacted", [False, True])
def test_feedback_is_looked_for_after_it_and_before_now_and_the_answer_says_where(
    tmp_path: Path, compacted: bool
) -> None:
    put(tmp_path, NOON, an_interaction(NAME))
    last = NOON + timedelta(hours=EARLY_HOURS - 1, minutes=59)
    first_late = LATER - timedelta(hours=LATE_HOURS - 1)
    times = {"at-once": NOON, "early": last, "missed": last + HOUR, "gone": first_late - HOUR, "late": first_late}
    for name, at in times.items():
        put(tmp_path, at, a_feedback(name, NAME, received_at=at), worker=f"w-{name}")
    put(tmp_path, LATER, a_feedback("now", NAME, received_at=LATER), a_feedback("x", NAME, business="sales"))
    if compacted:
        compact(tmp_path, LATER)
    found = look(tmp_path, LATER + timedelta(minutes=5))
    assert said(found) == ["at-once", "early", "late", "now"]
    assert found is not None
    assert found.searched == (
        (NOON, NOON + timedelta(hours=EARLY_HOURS)),
        (first_late, LATER + timedelta(minutes=5)),
    )


def test_an_event_counts_once_the_first_in_time(tmp_path: Path) -> None:
    later = a_feedback("e1", NAME, value="down", received_at=NOON + HOUR)
    put(tmp_path, NOON + HOUR, later, worker="w0")
    put(tmp_path, NOON, an_interaction(NAME), a_feedback("e1", NAME, received_at=NOON), worker="w1")
    put(tmp_path, NOON, a_feedback("e1", NAME, received_at=NOON), worker="w2")
    found = look(tmp_path, NOON + HOUR)
    assert found is not None
    assert [event.value for event in found.feedback] == ["up"]


def test_the_search_ends_at_its_limits_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, NOON, an_interaction(NAME), a_feedback("e1", NAME))
    put(tmp_path, NOON + 5 * HOUR, a_feedback("e2", NAME, kind="comment", value="x" * 1000))
    put(tmp_path, NOON + 9 * HOUR, a_feedback("e3", NAME))
    now = NOON + 12 * HOUR
    assert said(look(tmp_path, now)) == ["e1", "e2", "e3"]
    found = look(tmp_path, now, most_bytes=1000)
    assert said(found) == ["e1", "e2"] or said(found) == ["e1"]
    assert found is not None
    assert found.searched[-1][1] < NOON + 9 * HOUR
    monkeypatch.setattr(find, "MOST_FEEDBACK_BYTES", 1000)
    found = look(tmp_path, now)
    assert said(found) == ["e1"]
    assert found is not None
    assert found.searched == ((NOON, NOON + 5 * HOUR),)


def test_a_half_compacted_log_shows_everything_once(tmp_path: Path) -> None:
    segment = put(tmp_path, NOON, an_interaction(NAME), a_feedback("e1", NAME))
    kept = segment.read_bytes()
    compact(tmp_path, LATER)
    segment.write_bytes(kept)
    assert said(look(tmp_path)) == ["e1"]


# parts


@settings(max_examples=60)
@given(
    lines=st.lists(
        st.sampled_from((b"", b"x", b"needle", b"no", b"a needle in hay", b"nneedle", b"y" * 40)), max_size=30
    ),
    torn=st.booleans(),
    block=st.integers(6, 64),
)
def test_lines_with_is_what_reading_line_by_line_gives(lines: list[bytes], torn: bool, block: int) -> None:
    content = b"\n".join(lines) + (b"" if torn or not lines else b"\n")
    expected = [one for one in content.split(b"\n")[:-1] if b"needle" in one]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "_BLOCK", block)
        path = Path(folder) / "segment"
        path.write_bytes(content)
        assert list(lines_with(path, b"needle")) == expected


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(0, 60 * 60))
def test_merged_hours_are_these_hours(numbers: list[int], minutes: int) -> None:
    start, now = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    merged = merge_hours([start + HOUR * n for n in numbers], now)
    covered = {start + HOUR * n for n in range(61) if any(begin <= start + HOUR * n < end for begin, end in merged)}
    assert covered == {start + HOUR * n for n in numbers if start + HOUR * n < now}
    assert all(first[1] < second[0] for first, second in pairwise(merged))
    assert all(end <= now for _, end in merged)
