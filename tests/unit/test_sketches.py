"""The index saves work and decides nothing: any state of its file gives the same duplicates, and erased means gone."""

import os
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.tables as tables
from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.near.search import Bands
from pipeline.clean.sketches import Sketches
from pipeline.records import CleanRecord
from tests.builders import NOON, a_clean_record, a_signal

BANDS = Bands.at(0.8)
TEXTS = ["Where is my parcel, please?", "where is my parcel please", "发票怎么开", "How do I pay?", "怎么付款"]


def a_record(number: int, answer: str = "So it is.") -> CleanRecord:
    at = NOON + timedelta(minutes=number)
    return a_clean_record(f"i{number}", a_signal(), prompt=TEXTS[number % len(TEXTS)], answer=answer, at=at)


def file_of(folder: Path) -> Path:
    return folder / "support.parquet"


@settings(max_examples=30)
@given(
    st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=4),
    st.lists(st.sampled_from(["night", "torn", "gone", "forget", "threshold"]), max_size=4),
)
def test_nights_with_the_index_come_to_what_nights_without_it_come_to(
    nights: list[set[int]], mishaps: list[str]
) -> None:
    with TemporaryDirectory() as name:
        sketches = Sketches(Path(name), "support")
        for night, numbers in enumerate(nights):
            records = [a_record(number) for number in sorted(numbers)]
            mishap = mishaps[night] if night < len(mishaps) else "night"
            path = file_of(Path(name))
            if mishap == "torn" and path.exists():
                path.write_bytes(path.read_bytes()[:-7])
            if mishap == "gone":
                path.unlink(missing_ok=True)
            if mishap == "forget":
                sketches.forget({"i1", "i2"}.__contains__)
            threshold = 0.9 if mishap == "threshold" else 0.8
            assert drop_duplicates(records, threshold, sketches.signatures) == drop_duplicates(records, threshold)


def test_the_same_night_again_writes_nothing_and_a_later_one_makes_only_what_is_new(tmp_path: Path) -> None:
    sketches = Sketches(tmp_path, "support")
    first = sketches.signatures(["i1", "i2"], [("a b c d",), ("e f g h",)], BANDS)
    path = file_of(tmp_path)
    before, written = path.read_bytes(), os.stat(path).st_mtime_ns
    assert (sketches.signatures(["i2", "i1"], [("e f g h",), ("a b c d",)], BANDS) == first[::-1]).all()
    assert os.stat(path).st_mtime_ns == written
    path.unlink()
    sketches.signatures(["i1", "i2"], [("a b c d",), ("e f g h",)], BANDS)
    assert path.read_bytes() == before
    # A signature that is planted is taken as it stands: nothing of it was made again.
    planted = first.copy()
    planted[0] = 7
    path.write_bytes(before.replace(first[0].tobytes(), planted[0].tobytes()))
    later = sketches.signatures(["i1", "i3"], [("a b c d",), ("x y z",)], BANDS)
    assert later[0].tolist() == planted[0].tolist()
    assert later[1].tolist() == BANDS.signatures([("x y z",)])[0].tolist()
    assert [name for name, _ in _keys(path)] == ["i1", "i3"]


def _keys(path: Path) -> list[tuple[str, bytes]]:
    table = pq.read_table(path)
    return list(zip(table["interaction_id"].to_pylist(), table["digest"].to_pylist(), strict=True))


def test_another_text_of_an_interaction_has_a_signature_of_its_own(tmp_path: Path) -> None:
    sketches = Sketches(tmp_path, "support")
    sketches.signatures(["i1"], [("before",)], BANDS)
    after = sketches.signatures(["i1"], [("after",)], BANDS)
    assert after.tolist() == BANDS.signatures([("after",)]).tolist()


def test_what_is_forgotten_is_nowhere_in_the_file(tmp_path: Path) -> None:
    sketches = Sketches(tmp_path, "support")
    rows = [(text,) for text in TEXTS]
    ids = [f"interaction-{number}" for number in range(len(rows))]
    signed = sketches.signatures(ids, rows, BANDS)
    assert sketches.forget({"interaction-1", "interaction-3", "stranger"}.__contains__) == 2
    assert sketches.forget("interaction-1".__eq__) == 0
    assert [name for name, _ in _keys(file_of(tmp_path))] == ["interaction-0", "interaction-2", "interaction-4"]
    left = file_of(tmp_path).read_bytes()
    assert b"interaction-3" not in left
    assert signed[3].tobytes() not in left
    assert signed[4].tobytes() in left
    assert [path.name for path in tmp_path.iterdir()] == ["support.parquet"]


def test_forgetting_needs_no_file_and_takes_away_one_that_nobody_can_read(tmp_path: Path) -> None:
    sketches = Sketches(tmp_path, "support")
    assert sketches.forget("i1".__eq__) == 0
    file_of(tmp_path).write_bytes(b"PAR1 and no more")
    assert sketches.forget("i1".__eq__) == 0
    assert not file_of(tmp_path).exists()


def test_no_text_stands_in_the_file(tmp_path: Path) -> None:
    Sketches(tmp_path, "support").signatures(["i1"], [("Thirteen unmistakable words", "没有人会说的话")], BANDS)
    left = file_of(tmp_path).read_bytes()
    assert b"unmistakable" not in left
    assert "没有人".encode() not in left
    assert oct(file_of(tmp_path).stat().st_mode & 0o777) == "0o600"


def test_a_killed_write_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sketches = Sketches(tmp_path, "support")
    sketches.signatures(["i1"], [("before",)], BANDS)
    before = file_of(tmp_path).read_bytes()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tables.os, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            sketches.signatures(["i1", "i2"], [("before",), ("after",)], BANDS)
    assert file_of(tmp_path).read_bytes() == before
    assert np.array_equal(
        sketches.signatures(["i1", "i2"], [("before",), ("after",)], BANDS), BANDS.signatures([("before",), ("after",)])
    )
