"""Reading the event log: DuckDB over the gateways' segments and over the Parquet that old segments become.

An event may stand in both for a moment, and a redelivered one twice in either: events are told apart by their id, so
compacting never changes what is read. A segment with a line that nobody can place is never compacted: it stays as it
is, for a person to look at.
"""

import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
from pydantic import ValidationError

from pipeline.errors import DataError
from pipeline.records import Feedback, Interaction, Record
from pipeline.tables import sync_folder, write_table

log = logging.getLogger(__name__)

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+-(?P<hour>\d{8}T\d{2})\.jsonl")
_CLOSED_AFTER = timedelta(hours=2)
"""From the beginning of a segment's hour: its hour and another one, for commits that hang and clocks that differ."""
_ATTEMPTS = 5
"""Segments may be compacted away while they are read; then the list is made again."""

# One row a line. Texts are kept as they were written: taking the JSON apart and putting it together again would change
# numbers. A line that is no JSON is a row of nulls.
_LINES = """
    SELECT *, (business IS NOT NULL AND id IS NOT NULL AND interaction_id IS NOT NULL AND happened IS NOT NULL)
                AS placed
    FROM (
        SELECT json,
               CASE WHEN found[1] IS NOT NULL THEN 'interaction' ELSE 'feedback' END AS kind,
               nullif(regexp_extract(coalesce(found[2], found[5]), '^[a-z0-9-]{1,40}$'), '') AS business,
               coalesce(found[1], found[7]) AS id,
               coalesce(found[1], found[6]) AS interaction_id,
               TRY_CAST(coalesce(found[3], found[4]) AS TIMESTAMPTZ) AS happened
        FROM (
            -- All at once: each extraction by itself would parse the line again.
            SELECT json::VARCHAR AS json, json_extract_string(json, [
                '$.interaction.interaction_id', '$.interaction.business', '$.interaction.started_at',
                '$.feedback.received_at', '$.feedback.business', '$.feedback.interaction_id', '$.feedback.event_id'
            ]) AS found
            FROM read_ndjson_objects($paths, ignore_errors = true, maximum_object_size = 67108864)
        )
    )
"""
_COLUMNS = "kind, id, interaction_id, happened, json"
_COLUMNS_TYPED = "kind VARCHAR, id VARCHAR, interaction_id VARCHAR, happened TIMESTAMPTZ, json VARCHAR"


class Event(Record):
    """One line of a segment: exactly one of the two."""

    interaction: Interaction | None = None
    feedback: Feedback | None = None


@dataclass(frozen=True)
class Events:
    """What happened in one business."""

    interactions: tuple[Interaction, ...]
    """Each once, by (started_at, interaction_id)."""
    feedback: tuple[Feedback, ...]
    """For these interactions, whenever it came; each event once, by (received_at, event_id)."""
    unmatched_feedback: int
    """Feedback of the business whose interaction is nowhere in the log."""
    bad_lines: int
    """Lines that cannot be read or placed; the last line of a segment, cut by a crash, was promised to nobody."""


def read_events(events_dir: Path, business: str, start: datetime, end: datetime) -> Events:
    """Interactions of one business that started in [start, end), and all feedback for them.

    Raises:
        DataError: the log cannot be read.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _read(events_dir, business, start, end)
        except (duckdb.IOException, FileNotFoundError) as error:
            problem = " ".join(str(error).split())
            log.info("the event log changed while it was read; reading it again")
    raise DataError(f"{events_dir}: the event log cannot be read ({problem[:200]}); look at the disk")


def compact(events_dir: Path, now: datetime | None = None) -> int:
    """Turn the segments of past hours into `lake/<business>/<day>/<segment>.parquet`, and return how many there were.

    May be killed at any point and called again; a second caller at the same time returns at once. A segment is only
    deleted when all that it held is on disk elsewhere.

    Args:
        events_dir: the event log.
        now: default: the clock. A segment is closed when its hour and another one have passed.
    """
    now = now or datetime.now(UTC)
    done = 0
    with alone(events_dir) as only, _database() as database:
        for segment in _segments(events_dir) if only else ():
            if _closed(segment, now) and _compact_segment(database, segment, events_dir / "lake"):
                done += 1
    return done


def _read(events_dir: Path, business: str, start: datetime, end: datetime) -> Events:
    # Segments first: one that is compacted in between is then seen twice, never missed.
    segments = _segments(events_dir)
    lake = sorted((events_dir / "lake" / business).glob("*/*.parquet"))
    with _database() as database:
        database.execute(f"CREATE TABLE events ({_COLUMNS_TYPED})")
        bad = _load_segments(database, segments, business, start, end) if segments else 0
        if lake:
            _load_lake(database, lake, start, end)
        window = {"start": start, "end": end}
        interactions, bad_interactions = _parse(
            database,
            """SELECT json FROM events WHERE kind = 'interaction' AND happened >= $start AND happened < $end
               ORDER BY happened, id, json""",
            window,
        )
        feedback, bad_feedback = _parse(
            database,
            """SELECT json FROM events WHERE kind = 'feedback' AND interaction_id IN
                 (SELECT id FROM events WHERE kind = 'interaction' AND happened >= $start AND happened < $end)
               ORDER BY happened, id, json""",
            window,
        )
        unmatched = database.execute(
            """SELECT count(DISTINCT id) FROM events WHERE kind = 'feedback'
                 AND interaction_id NOT IN (SELECT id FROM events WHERE kind = 'interaction')"""
        ).fetchall()[0][0]
    # Of several texts with one id, the first in time counts; later ones of a dictionary would win.
    found = {e.interaction.interaction_id: e.interaction for e in reversed(interactions) if e.interaction}
    said = {e.feedback.event_id: e.feedback for e in reversed(feedback) if e.feedback}
    return Events(
        interactions=tuple(sorted(found.values(), key=lambda i: (i.started_at, i.interaction_id))),
        feedback=tuple(sorted(said.values(), key=lambda f: (f.received_at, f.event_id))),
        unmatched_feedback=unmatched,
        bad_lines=bad + bad_interactions + bad_feedback,
    )


def _load_segments(
    database: duckdb.DuckDBPyConnection, segments: list[Path], business: str, start: datetime, end: datetime
) -> int:
    """Insert the business's events; return how many lines could not be placed. Texts outside the window are left."""
    database.execute(
        f"""CREATE TEMP TABLE lines AS
              SELECT kind, id, interaction_id, happened, placed,
                     CASE WHEN kind = 'feedback' OR (happened >= $start AND happened < $end) THEN json END AS json
              FROM ({_LINES}) WHERE coalesce(business, $business) = $business""",
        {"paths": [str(segment) for segment in segments], "business": business, "start": start, "end": end},
    )
    database.execute(f"INSERT INTO events SELECT {_COLUMNS} FROM lines WHERE placed")
    ((bad,),) = database.execute("SELECT count(*) FROM lines WHERE NOT placed").fetchall()
    return max(0, int(bad) - sum(_cut_tail(segment) for segment in segments))


def _load_lake(database: duckdb.DuckDBPyConnection, lake: list[Path], start: datetime, end: datetime) -> None:
    paths = [str(path) for path in lake]
    # Two reads, so that the wide column is not touched for the many interactions outside the window.
    database.execute(
        f"""INSERT INTO events SELECT {_COLUMNS} FROM read_parquet($paths)
             WHERE kind = 'feedback' OR (happened >= $start AND happened < $end)""",
        {"paths": paths, "start": start, "end": end},
    )
    database.execute(
        """INSERT INTO events SELECT kind, id, interaction_id, happened, NULL FROM read_parquet($paths)
             WHERE kind = 'interaction' AND NOT (happened >= $start AND happened < $end)""",
        {"paths": paths, "start": start, "end": end},
    )


def _parse(database: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, datetime]) -> tuple[list[Event], int]:
    """Validated events, and how many different texts were none."""
    events: list[Event] = []
    bad: set[str] = set()
    cursor = database.execute(query, parameters)
    while rows := cursor.fetchmany(1000):
        for (text,) in rows:
            try:
                events.append(Event.model_validate_json(text))
            except ValidationError:
                bad.add(text)
    return events, len(bad)


def _compact_segment(database: duckdb.DuckDBPyConnection, segment: Path, lake: Path) -> bool:
    database.execute(f"CREATE OR REPLACE TABLE lines AS SELECT * FROM ({_LINES})", {"paths": [str(segment)]})
    ((bad,),) = database.execute("SELECT count(*) FROM lines WHERE NOT placed").fetchall()
    if bad > _cut_tail(segment):
        log.warning("segment %s has %d lines that cannot be placed; it stays as it is", segment.name, bad)
        return False
    parts = database.execute(
        "SELECT DISTINCT business, CAST(happened AS DATE) FROM lines WHERE placed ORDER BY ALL"
    ).fetchall()
    for business, day in parts:
        folder = lake / business / day.isoformat()
        _make_folders(folder, lake)
        write_table(folder / f"{segment.stem}.parquet", _part(database, business, day, folder / segment.stem))
    segment.unlink()
    sync_folder(segment.parent)
    return True


def _part(database: duckdb.DuckDBPyConnection, business: str, day: date, stem: Path) -> pa.Table:
    """Events of one business and day, together with those that the file of the same name holds already: it is from a
    run that was killed before it deleted the segment, or the gateway's clock was set back and it began anew."""
    query = f"SELECT {_COLUMNS} FROM lines WHERE placed AND business = $business AND CAST(happened AS DATE) = $day"
    parameters: dict[str, object] = {"business": business, "day": day}
    earlier = stem.with_name(f"{stem.name}.parquet")
    if earlier.exists():
        query += f" UNION ALL SELECT {_COLUMNS} FROM read_parquet($earlier)"
        parameters["earlier"] = str(earlier)
    return database.sql(
        f"SELECT DISTINCT * FROM ({query}) ORDER BY kind, happened, id, json", params=parameters
    ).to_arrow_table()


def _make_folders(folder: Path, lake: Path) -> None:
    """Make a folder and those above it, owner-only, and durable by name."""
    lake.mkdir(mode=0o700, exist_ok=True)
    for part in (folder.parent, folder):
        part.mkdir(mode=0o700, exist_ok=True)
        sync_folder(part.parent)
    sync_folder(lake.parent)


def _segments(events_dir: Path) -> list[Path]:
    return sorted(path for path in (events_dir / "segments").glob("*.jsonl") if not path.name.startswith("."))


def _closed(segment: Path, now: datetime) -> bool:
    named = _SEGMENT.fullmatch(segment.name)
    if named is None:
        return False
    hour = datetime.strptime(named["hour"], "%Y%m%dT%H").replace(tzinfo=UTC)
    return now >= hour + _CLOSED_AFTER


def _cut_tail(segment: Path) -> bool:
    """Whether a file ends in the middle of a line."""
    with segment.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        tail = b""
        while end > 0 and b"\n" not in tail:
            start = max(0, end - 65536)
            file.seek(start)
            tail = file.read(end - start) + tail
            end = start
    tail = tail[tail.rfind(b"\n") + 1 :]
    try:
        return bool(tail.strip()) and not isinstance(json.loads(tail), dict)
    except ValueError:
        return True


@contextmanager
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory: a file of its own would be locked by whoever opens it first."""
    database = duckdb.connect(":memory:", config={"threads": 2, "autoinstall_known_extensions": False})
    try:
        database.execute("SET TimeZone = 'UTC'")
        yield database
    finally:
        database.close()


@contextmanager
def alone(events_dir: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether no other process changes what is in the log: compacts, expires or erases.

    Args:
        wait: until the other one has ended.
    """
    if not events_dir.is_dir():
        yield False
        return
    handle = os.open(events_dir / ".compact.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
