"""What changed between two snapshots, and finding the one that somebody means."""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dataset.catalogue import find_snapshot, list_snapshots
from pipeline.dataset.diff import ABSENT, USED, diff_snapshots
from pipeline.dataset.snapshot import Rows, Snapshot
from pipeline.errors import DataError
from pipeline.records import Dropped, DropReason, Example, PreferenceExample, SftExample, Split, UnpairedExample
from tests.builders import NOON, a_manifest, a_preference, a_source, an_sft, an_unpaired


def a_snapshot(business: str = "support", **sides: list[Example]) -> Snapshot:
    rows = {
        split: Rows(
            sft=tuple(r for r in sides.get(split, []) if isinstance(r, SftExample)),
            preference=tuple(r for r in sides.get(split, []) if isinstance(r, PreferenceExample)),
            unpaired=tuple(r for r in sides.get(split, []) if isinstance(r, UnpairedExample)),
        )
        for split in Split
    }
    return Snapshot(a_manifest(business=business), rows)


def dropped(**reasons: DropReason) -> list[Dropped]:
    return [Dropped(interaction_id=i, reason=reason) for i, reason in reasons.items()]


def test_rows_that_came_went_moved_and_weigh_otherwise() -> None:
    stays, goes, comes = (an_sft(a_source(i), f"{i}?") for i in ("i1", "i2", "i3"))
    moves, weighs = a_preference(a_source("i4")), an_unpaired(a_source("i5"))
    lighter = an_unpaired(a_source("i5", weight=0.5, event_ids=("e-i5", "e-more")))
    before = a_snapshot(train=[stays, goes, moves, weighs])
    after = a_snapshot(train=[stays, comes, lighter], held_out=[moves])
    found = diff_snapshots(before, [], after, [])
    assert [placed.row for placed in found.came] == [comes]
    assert [placed.row for placed in found.went] == [goes]
    assert [(a.side, b.side, a.row) for a, b in found.moved] == [(Split.TRAIN, Split.HELD_OUT, moves)]
    assert [(a.row, b.row) for a, b in found.reweighted] == [(weighs, lighter)]


def test_another_text_is_another_row() -> None:
    found = diff_snapshots(
        a_snapshot(train=[an_sft(a_source(), answer="So.")]),
        [],
        a_snapshot(train=[an_sft(a_source(), answer="Yes.")]),
        [],
    )
    assert (len(found.came), len(found.went)) == (1, 1)


def test_what_became_of_interactions() -> None:
    found = diff_snapshots(
        a_snapshot(train=[an_sft(a_source("i1")), an_sft(a_source("i2"))]),
        dropped(i3=DropReason.NO_FEEDBACK, i4=DropReason.REFUSAL, i5=DropReason.REFUSAL, i6=DropReason.CONFLICT),
        a_snapshot(train=[an_sft(a_source("i1")), an_sft(a_source("i3"))]),
        dropped(i2=DropReason.USER_CAP, i4=DropReason.USER_CAP, i5=DropReason.USER_CAP, i7=DropReason.NO_FEEDBACK),
    )
    assert found.fates == {
        ("refusal", "user_cap"): 2,
        ("conflict", ABSENT): 1,
        ("no_feedback", USED): 1,
        (ABSENT, "no_feedback"): 1,
        (USED, "user_cap"): 1,
    }


def test_snapshots_of_two_businesses_are_not_compared() -> None:
    with pytest.raises(DataError, match="'legal' and 'support'"):
        diff_snapshots(a_snapshot("legal"), [], a_snapshot("support"), [])


ROWS = st.lists(
    st.builds(
        lambda i, weight, make: make(a_source(f"i{i}", weight=weight)),
        st.integers(0, 4),
        st.sampled_from([0.5, 1.0]),
        st.sampled_from([an_sft, a_preference, an_unpaired]),
    ),
    max_size=8,
)
SNAPSHOTS = st.builds(lambda train, held_out: a_snapshot(train=train, held_out=held_out), ROWS, ROWS)


def count(snapshot: Snapshot) -> int:
    return sum(len(rows.all()) for rows in snapshot.rows.values())


@given(SNAPSHOTS, SNAPSHOTS)
def test_any_two_snapshots_differ_by_what_came_and_went_and_backwards_by_the_reverse(
    one: Snapshot, other: Snapshot
) -> None:
    found, back = diff_snapshots(one, [], other, []), diff_snapshots(other, [], one, [])
    assert count(one) - len(found.went) + len(found.came) == count(other)
    assert (found.came, found.went) == (back.went, back.came)
    assert [(b, a) for a, b in found.moved] == list(back.moved)
    assert Counter(found.fates) == Counter({(b, a): times for (a, b), times in back.fates.items()})
    same = diff_snapshots(one, [], one, [])
    assert (same.came, same.went, same.moved, same.reweighted, same.fates) == ((), (), (), (), {})


def shelve(root: Path, snapshot_id: str, end: datetime = NOON) -> Path:
    folder = root / "support" / snapshot_id
    folder.mkdir(parents=True)
    manifest = a_manifest(snapshot_id=snapshot_id, window_end=end)
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return folder


OLD, NEW, BROKEN = "abc1" + "0" * 60, "abc2" + "0" * 60, "ffff" + "0" * 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shelve(tmp_path, NEW, NOON + timedelta(days=1))
    shelve(tmp_path, OLD)
    shelve(tmp_path, BROKEN, NOON + timedelta(days=9)).joinpath("manifest.json").write_text("{")
    (tmp_path / "support" / f".{OLD}.half").mkdir()
    return tmp_path


def test_snapshots_are_listed_newest_first_and_unreadable_ones_last(root: Path) -> None:
    assert [entry.snapshot_id for entry in list_snapshots(root, "support")] == [NEW, OLD, BROKEN]
    assert list_snapshots(root, "legal") == []


@pytest.mark.parametrize(("name", "found"), [("latest", NEW), (OLD, OLD), ("abc1", OLD), ("ABC2", NEW)])
def test_a_snapshot_is_found_by_its_id_or_the_beginning_of_it(root: Path, name: str, found: str) -> None:
    assert find_snapshot(root, "support", name).name == found


@pytest.mark.parametrize(
    ("business", "name", "words"),
    [
        ("support", "abc", "is one of 2: abc2000, abc1000; give more of it"),
        ("support", "9999", "has no snapshot '9999'.*tuneloop snapshot list"),
        ("support", "", "has no snapshot ''"),
        ("support", "../x", "has no snapshot"),
        ("legal", "latest", "tuneloop nightly --business legal"),
    ],
)
def test_what_is_not_there_is_said_with_what_to_do(root: Path, business: str, name: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        find_snapshot(root, business, name)
