"""The answers of a version in shadow are read beside the users' own, and by nobody who reads interactions."""

import json
from datetime import timedelta
from pathlib import Path

from pipeline.events.find import find_interaction
from pipeline.events.ids import stored_ids
from pipeline.events.lake import compact
from pipeline.events.read import read_events
from pipeline.events.shadows import read_shadow_pairs
from pipeline.records import Record
from tests.builders import NOON, a_feedback, a_shadow, an_interaction

WINDOW = (NOON, NOON + timedelta(hours=2))


def write(events_dir: Path, *events: Record) -> None:
    kinds = {"Interaction": "interaction", "Feedback": "feedback", "ShadowAnswer": "shadow"}
    lines = [json.dumps({kinds[type(event).__name__]: event.model_dump(mode="json")}) for event in events]
    path = events_dir / "segments" / f"w1-{NOON:%Y%m%dT%H}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n")


def test_pairs_are_read_once_from_segments_and_lake_and_change_nothing_for_others(tmp_path: Path) -> None:
    minute = timedelta(minutes=1)
    served = [an_interaction(f"i{n}", started_at=NOON + n * minute) for n in range(3)]
    shadows = [a_shadow(f"i{n}", started_at=NOON + (n + 1) * minute) for n in (2, 1)]
    write(
        tmp_path,
        *served,
        *shadows,
        shadows[0],
        a_feedback("e1", "i1"),
        a_shadow("i1", business="legal", answer="Of another business."),
        a_shadow("nowhere"),
        a_shadow("i0", started_at=NOON + timedelta(hours=3)),
    )
    for compacted in (0, 1):
        assert compact(tmp_path, NOON + timedelta(days=compacted)) == compacted
        pairs = read_shadow_pairs(tmp_path, "support", *WINDOW)
        assert [(pair.served, pair.shadow) for pair in pairs] == [(served[1], shadows[1]), (served[2], shadows[0])]
        events = read_events(tmp_path, "support", *WINDOW)
        assert [one.interaction_id for one in events.interactions] == ["i0", "i1", "i2"]
        assert [one.event_id for one in events.feedback] == ["e1"]
        assert (events.unmatched_feedback, events.bad_lines) == (0, 0)
        kinds = sorted(set(stored_ids(tmp_path, "support")))
        assert kinds == [("feedback", "e1"), *(("interaction", f"i{n}") for n in range(3))]
        found = find_interaction(tmp_path, "support", "i1", NOON, NOON + timedelta(hours=1))
        assert found is not None
        assert [one.event_id for one in found.feedback] == ["e1"]


def test_a_shadow_that_nobody_can_read_stops_no_other(tmp_path: Path) -> None:
    write(tmp_path, an_interaction("i1"), an_interaction("i2"), a_shadow("i1"), a_shadow("i2"))
    path = next((tmp_path / "segments").glob("*.jsonl"))
    path.write_text(
        path.read_text().replace('"stream_end": "complete", "started_at"', '"stream_end": "?", "started_at"', 1)
    )
    assert [pair.shadow.interaction_id for pair in read_shadow_pairs(tmp_path, "support", *WINDOW)] == ["i2"]
