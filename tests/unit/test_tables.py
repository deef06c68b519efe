"""Any record comes back from Parquet as it was written."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AwareDatetime, JsonValue

from pipeline.errors import DataError
from pipeline.records import Feedback, FeedbackKind, Interaction, Message, Record
from pipeline.tables import arrow_schema, read_records, write_records


class Everything(Record):
    """One field of each kind that a record may have."""

    text: str
    maybe: str | None
    count: int
    share: float
    flag: bool
    kind: FeedbackKind
    at: AwareDatetime
    names: tuple[str, ...]
    value: JsonValue
    messages: tuple[Message, ...]
    counts: dict[FeedbackKind, int]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=8)), timezone(timedelta(hours=-3, minutes=-30))])
RECORDS = st.builds(
    Everything,
    text=TEXT,
    maybe=st.none() | TEXT,
    count=st.integers(-(2**63), 2**63 - 1),
    share=st.floats(allow_nan=False),
    flag=st.booleans(),
    kind=st.sampled_from(FeedbackKind),
    at=st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=ZONES),  # noqa: DTZ001
    names=st.lists(TEXT, max_size=3).map(tuple),
    value=JSON,
    messages=st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=3).map(tuple),
    counts=st.dictionaries(st.sampled_from(FeedbackKind), st.integers(0, 9), max_size=3),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(RECORDS, max_size=4))
def test_records_come_back_as_they_were_written(records: list[Everything]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "rows.parquet"
        write_records(path, Everything, records)
        assert read_records(path, Everything) == records


def test_columns_follow_the_record() -> None:
    schema = arrow_schema(Everything)
    assert schema.names == list(Everything.model_fields)
    assert schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert schema.field("names").type == pa.list_(pa.string())
    assert schema.field("messages").type == pa.string()
    assert schema.field("maybe").nullable
    assert not schema.field("text").nullable
    assert arrow_schema(Interaction).field("started_at").type == pa.timestamp("us", tz="UTC")
    assert arrow_schema(Feedback).field("kind").type == pa.string()


def test_what_parquet_cannot_hold_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    record = Everything(
        text="a",
        maybe=None,
        count=2**70,
        share=0.5,
        flag=True,
        kind=FeedbackKind.THUMB,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        names=(),
        value=None,
        messages=(),
        counts={},
    )
    for bad in (record, record.model_copy(update={"count": 1, "text": "\ud83d"})):
        with pytest.raises(DataError, match="does not fit"):
            write_records(tmp_path / "rows.parquet", Everything, [bad])
    assert list(tmp_path.iterdir()) == []


def test_files_of_something_else_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    for name in ("absent.parquet", "text.parquet", "other.parquet"):
        with pytest.raises(DataError, match=name):
            read_records(tmp_path / name, Feedback)


def test_a_written_file_is_its_owners_only(tmp_path: Path) -> None:
    write_records(tmp_path / "rows.parquet", Feedback, [])
    assert (tmp_path / "rows.parquet").stat().st_mode & 0o077 == 0
    assert read_records(tmp_path / "rows.parquet", Feedback) == []
