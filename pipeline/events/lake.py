"""The lake: the Parquet that old segments become, a folder for each business and day. `read.py` reads both.

A segment with a line that nobody can place is never compacted: it stays as it is, for a person to look at.
"""

import fcntl
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from pipeline.tables import sync_folder, write_table

log = logging.getLogger(__name__)

_SEGMENT = re.compile(r"[A-Za-z0-9_-]+-(?P<hour>\d{8}T\d{2})\.jsonl")
_CLOSED_AFTER = timedelta(hours=2)
"""From the beginning of a segment's hour: its hour and another one, for commits that hang and clocks that differ."""

# One row a line. Texts are kept as they were written: taking the JSON apart and putting it together again would change
# numbers. A line that is no JSON is a row of nulls.
LINES = """
    SELECT *, (business IS NOT NULL AND id IS NOT NULL AND interaction_id IS NOT NULL AND happened IS NOT NULL)
                AS placed
    FROM (
        SELECT json,
               CASE WHEN found[1] IS NOT NULL THEN 'interaction' WHEN found[8] IS NOT NULL THEN 'shadow'
                    ELSE 'feedback' END AS kind,
               nullif(regexp_extract(coalesce(found[2], found[5], found[9]), '^[a-z0-9-]{1,40}$'), '') AS business,
               coalesce(found[1], found[7], found[8]) AS id,
               coalesce(found[1], found[6], found[8]) AS interaction_id,
               TRY_CAST(coalesce(found[3], found[4], found[10]) AS TIMESTAMPTZ) AS happened
        FROM (
            -- All at once: each extraction by itself would parse the line again.
            SELECT json::VARCHAR AS json, json_extract_string(json, [
                '$.interaction.interaction_id', '$.interaction.business', '$.interaction.started_at',
                '$.feedback.received_at', '$.feedback.business', '$.feedback.interaction_id', '$.feedback.event_id',
                '$.shadow.interaction_id', '$.shadow.business', '$.shadow.started_at'
            ]) AS found
            FROM read_ndjson_objects($paths, ignore_errors = true, maximum_object_size = 67108864)
        )
    )
"""
COLUMNS = "kind, id, interaction_id, happened, json"


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
    with alone(events_dir) as only, database_in_memory() as database:
        for segment in segments_of(events_dir) if only else ():
            if _closed(segment, now) and _compact_segment(database, segment, events_dir / "lake"):
                done += 1
    return done


def _compact_segment(database: duckdb.DuckDBPyConnection, segment: Path, lake: Path) -> bool:
    database.execute(f"CREATE OR REPLACE TABLE lines AS SELECT * FROM ({LINES})", {"paths": [str(segment)]})
    ((bad,),) = database.execute("SELECT count(*) FROM lines WHERE NOT placed").fetchall()
    if bad > cut_tail(segment):
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
    query = f"SELECT {COLUMNS} FROM lines WHERE placed AND business = $business AND CAST(happened AS DATE) = $day"
    parameters: dict[str, object] = {"business": business, "day": day}
    earlier = stem.with_name(f"{stem.name}.parquet")
    if earlier.exists():
        query += f" UNION ALL SELECT {COLUMNS} FROM read_parquet($earlier)"
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


def segments_of(events_dir: Path) -> list[Path]:
    return sorted(path for path in (events_dir / "segments").glob("*.jsonl") if not path.name.startswith("."))


def _closed(segment: Path, now: datetime) -> bool:
    named = _SEGMENT.fullmatch(segment.name)
    if named is None:
        return False
    hour = datetime.strptime(named["hour"], "%Y%m%dT%H").replace(tzinfo=UTC)
    return now >= hour + _CLOSED_AFTER


def cut_tail(segment: Path) -> bool:
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
def database_in_memory() -> Iterator[duckdb.DuckDBPyConnection]:
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
