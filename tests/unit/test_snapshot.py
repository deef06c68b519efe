"""A snapshot is named by its rows, is whole or absent, and accounts for every interaction."""

import os
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.dataset.snapshot as snapshot_module
from pipeline.config import DatasetConfig
from pipeline.dataset.build import build_rows
from pipeline.dataset.snapshot import check_sums, read_dropped, read_manifest, read_snapshot, write_snapshot
from pipeline.dataset.split import SplitRows
from pipeline.errors import DataError
from pipeline.records import (
    CleanRecord,
    Dropped,
    DropReason,
    FeedbackKind,
    SnapshotManifest,
    Split,
)
from tests.builders import (
    NOON,
    a_clean_record,
    a_preference,
    a_rated,
    a_signal,
    a_source,
    an_interaction,
    an_sft,
    an_unpaired,
)

WINDOW = (NOON - timedelta(days=14), NOON + timedelta(days=1))


def write(root: Path, rows: SplitRows, dropped: tuple[Dropped, ...] = (), **changes: Any) -> SnapshotManifest:
    """A snapshot of exactly the interactions that `rows` and `dropped` name."""
    examples = [*rows.train, *rows.held_out, *rows.recent]
    ids = sorted({i for e in examples for i in e.source.interaction_ids} | {d.interaction_id for d in dropped})
    arguments: dict[str, Any] = {
        "business": "support",
        "window": WINDOW,
        "rated": [a_rated(an_interaction(i), a_signal(), a_signal("edit", None)) for i in ids],
        "clean": [a_clean_record(i, pii_counts={"EMAIL": 2}) for i in ids],
        "dropped": dropped,
        "rows": rows,
    }
    return write_snapshot(root, **(arguments | changes))


def some_rows(prompt: str = "How?") -> SplitRows:
    return SplitRows(
        train=(
            an_sft(a_source("i1"), prompt),
            an_unpaired(a_source("i1"), prompt=prompt),
            a_preference(a_source("i2")),
        ),
        held_out=(an_sft(a_source("i3", "u2", "s2"), "Why?"),),
        recent=(),
        dropped=(),
        split_by="user",
    )


DROPPED = (Dropped(interaction_id="i4", reason=DropReason.REFUSAL),)


def test_what_is_written_is_read_back_with_its_counts(tmp_path: Path) -> None:
    rows = some_rows()
    manifest = write(tmp_path, rows, DROPPED)
    folder = tmp_path / "support" / manifest.snapshot_id
    found = read_snapshot(folder)
    assert found.manifest == manifest == read_manifest(folder)
    train = found.rows[Split.TRAIN]
    assert (*train.sft, *train.unpaired, *train.preference) == rows.train
    assert found.rows[Split.HELD_OUT].sft == rows.held_out
    assert read_dropped(folder) == list(DROPPED)
    assert manifest.rows[Split.TRAIN] == {"sft": 1, "preference": 1, "unpaired": 1}
    assert (manifest.interactions, manifest.sources, manifest.users) == (4, 3, 2)
    assert manifest.dropped == {DropReason.REFUSAL: 1}
    assert manifest.pii_counts == {"EMAIL": 8}
    assert manifest.signal_counts == {FeedbackKind.THUMB: 4}
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{s}_{k}.parquet" for s in Split for k in ("sft", "preference", "unpaired")]
        + ["CARD.md", "dropped.parquet", "manifest.json"]
    )


def test_praise_blame_and_the_reasons_of_several_users_are_counted(tmp_path: Path) -> None:
    said = [("u1", "Wrong number"), ("u2", "wrong  number"), ("u3", "Wrong number"), ("u3", "Wrong number")]
    said += [("u1", "rude"), ("u2", "rude"), ("u1", "rude"), (None, "rude")]
    signals = [a_signal("thumb", "down", user_key=user, reason=reason) for user, reason in said]
    signals += [a_signal("thumb", None, user_key="u9", reason="rude"), a_signal("rating", 5), a_signal("comment", "So")]
    rated = [a_rated(an_interaction("i1"), *signals)]
    manifest = write_snapshot(
        tmp_path,
        business="support",
        window=(NOON, NOON),
        rated=rated,
        clean=[a_clean_record("i1", *signals)],
        dropped=(),
        rows=SplitRows((an_sft(a_source("i1")),), (), (), (), "user"),
    )
    assert manifest.praise == {FeedbackKind.RATING: 1}
    assert manifest.blame == {FeedbackKind.THUMB: 8}
    assert {text: len(users) for text, users in manifest.reasons.items()} == {"Wrong number": 3}


def test_the_same_rows_in_another_order_and_window_are_the_same_snapshot_and_nothing_is_written(tmp_path: Path) -> None:
    rows = some_rows()
    first = write(tmp_path, rows)
    folder = tmp_path / "support" / first.snapshot_id
    before = {path: os.stat(path).st_mtime_ns for path in (folder, *folder.iterdir())}
    shuffled = SplitRows(rows.train[::-1], rows.held_out, rows.recent, (), "user")
    again = write(tmp_path, shuffled, DROPPED, window=(NOON, NOON + timedelta(days=2)))
    assert again == first
    assert {path: os.stat(path).st_mtime_ns for path in (folder, *folder.iterdir())} == before
    assert [path.name for path in folder.parent.iterdir()] == [first.snapshot_id]


@pytest.mark.parametrize("manifest", ['{"snapshot_id": "of another format"}', "", None])
def test_a_snapshot_that_another_version_wrote_is_written_anew(tmp_path: Path, manifest: str | None) -> None:
    first = write(tmp_path, some_rows())
    folder = tmp_path / "support" / first.snapshot_id
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if manifest is None:
        (folder / "manifest.json").unlink()
    else:
        (folder / "manifest.json").write_text(manifest)
    assert write(tmp_path, some_rows()) == first
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_another_row_business_or_side_is_another_snapshot(tmp_path: Path) -> None:
    rows = some_rows()
    swapped = SplitRows(rows.held_out, rows.train, (), (), "user")
    made = [
        write(tmp_path, rows),
        write(tmp_path, some_rows("How then?")),
        write(tmp_path, swapped),
        write(tmp_path, rows, business="legal"),
    ]
    assert len({manifest.snapshot_id for manifest in made}) == 4


@pytest.mark.parametrize("files", [0, 1, 9, 10])
def test_a_killed_write_leaves_no_snapshot_and_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    real, done = snapshot_module.write_records, []

    def write_then_die(*arguments: Any) -> None:
        if len(done) == files:
            raise KeyboardInterrupt
        done.append(real(*arguments))

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_module, "write_records", write_then_die)
        patched.setattr(Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, some_rows())
    assert not [path for path in (tmp_path / "support").iterdir() if not path.name.startswith(".")]
    manifest = write(tmp_path, some_rows())
    assert [path.name for path in (tmp_path / "support").iterdir()] == [manifest.snapshot_id]


@pytest.mark.parametrize(
    ("interactions", "sources", "dropped", "complaint"),
    [
        ({"i1", "i2"}, {"i1"}, [], "1 interactions are neither kept nor dropped, such as 'i2'"),
        ({"i1"}, {"i1"}, ["i1"], "both kept and dropped"),
        ({"i1", "i2"}, {"i1"}, ["i2", "i2"], "dropped more than once"),
        ({"i1"}, {"i1", "i2"}, [], "not in the window"),
        ({"i1"}, {"i1"}, ["i2"], "not in the window"),
    ],
)
def test_sums_that_do_not_match_are_refused(
    interactions: set[str], sources: set[str], dropped: list[str], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        check_sums(
            "support", interactions, sources, [Dropped(interaction_id=i, reason=DropReason.REFUSAL) for i in dropped]
        )


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no readable snapshot"):
        read_snapshot(tmp_path / "absent")


SIGNALS = st.builds(
    lambda kind, user: a_signal(*kind, user_key=user),
    st.sampled_from([("thumb", "up"), ("thumb", "down"), ("thumb", None), ("outcome", "failed"), ("abort", True)]),
    st.integers(0, 12).map("u{}".format),
)


@st.composite
def record_sets(draw: st.DrawFn) -> list[CleanRecord]:
    records = []
    for number in range(draw(st.integers(0, 20))):
        edited = draw(st.sampled_from([None, "So it is.", "So."]))
        records.append(
            a_clean_record(
                f"i{number}",
                *draw(st.lists(SIGNALS, max_size=2)),
                *([a_signal("edit", edited)] if edited else []),
                prompt=draw(st.sampled_from(["How?", "Why is it so?", f"What is number {number * 7919}?"])),
                answer=draw(st.sampled_from(["So.", "So it was.", "I do not know, ask somebody else about it."])),
                edited=edited,
                session=f"s{draw(st.integers(0, 8))}",
                user_key=draw(st.none() | st.integers(0, 12).map("u{}".format)),
                at=NOON - timedelta(hours=draw(st.integers(0, 48))),
                replaced_by=draw(st.sampled_from([None, None, "i1", "i2"])),
            )
        )
    return records


@settings(max_examples=10, deadline=None)
@given(st.data(), record_sets(), st.integers(1, 2), st.floats(0, 0.6))
def test_any_records_make_a_snapshot_whose_sums_match(
    data: st.DataObject, records: list[CleanRecord], min_users: int, share: float
) -> None:
    config = DatasetConfig(min_users=min_users, held_out_share=share, max_user_share=0.1)
    with TemporaryDirectory() as folder:
        made = []
        for given_records in (records, data.draw(st.permutations(records))):
            rows, dropped = build_rows(given_records, "support", config, NOON)
            manifest = write_snapshot(
                Path(folder) / str(len(made)),
                business="support",
                window=WINDOW,
                rated=[a_rated(an_interaction(r.interaction_id), *r.signals) for r in records],
                clean=records,
                dropped=dropped,
                rows=rows,
            )
            made.append(manifest)
            assert manifest.interactions == manifest.sources + sum(manifest.dropped.values()) == len(records)
        assert made[0] == made[1]
