"""Which events the log holds, by id alone: what an import needs to store nothing twice."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from pipeline.errors import DataError

_ATTEMPTS = 5
_ROWS = 10_000
_MEMORY = "128MB"


def stored_ids(events_dir: Path, business: str) -> Iterator[tuple[str, str]]:
    """Kind (`interaction` or `feedback`) and id of every such event of a business; one id may come several times.

    Raises:
        DataError: the log cannot be read.
    """
    for attempt in range(_ATTEMPTS):
        try:
            yield from _read(events_dir, business)
            return
        except (duckdb.IOException, FileNotFoundError) as error:  # compacted away while it was read: once more
            problem = " ".join(str(error).split())
            time.sleep(0.05 * attempt)
    raise DataError(f"{events_dir}: the event log cannot be read ({problem[:200]}); look at the disk")


def _read(events_dir: Path, business: str) -> Iterator[tuple[str, str]]:
    # Segments first: one that is compacted in between is then seen twice, never missed.
    for segment in sorted((events_dir / "segments").glob("*.jsonl")):
        yield from _of_segment(segment, business)
    lake = [str(path) for path in sorted((events_dir / "lake" / business).glob("*/*.parquet"))]
    if not lake:
        return
    config: dict[str, Any] = {"threads": 1, "memory_limit": _MEMORY, "autoinstall_known_extensions": False}
    database = duckdb.connect(":memory:", config=config)
    try:
        cursor = database.execute("SELECT kind, id FROM read_parquet($paths) WHERE kind <> 'shadow'", {"paths": lake})
        while rows := cursor.fetchmany(_ROWS):
            yield from rows
    finally:
        database.close()


class _Interaction(msgspec.Struct):
    interaction_id: str
    business: str


class _Feedback(msgspec.Struct):
    event_id: str
    business: str


class _Line(msgspec.Struct):
    interaction: _Interaction | None = None
    feedback: _Feedback | None = None


_LINE = msgspec.json.Decoder(_Line)


def _of_segment(segment: Path, business: str) -> Iterator[tuple[str, str]]:
    """One line at a time: DuckDB would set aside twice the longest line that there may be."""
    with segment.open("rb") as file:
        for text in file:
            try:
                line = _LINE.decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # torn, or unreadable to everybody
            if line.interaction is not None and line.interaction.business == business:
                yield "interaction", line.interaction.interaction_id
            elif line.feedback is not None and line.feedback.business == business:
                yield "feedback", line.feedback.event_id
