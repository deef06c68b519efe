"""Reading the event log: DuckDB over the gateways' segments and over the Parquet that old segments become.

An event may stand in both for a moment, and a redelivered one twice in either: events are told apart by their id, so
compacting never changes what is read.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import duckdb
from pydantic import ValidationError

from pipeline.errors import DataError
from pipeline.events.lake import COLUMNS, LINES, cut_tail, database_in_memory, segments_of
from pipeline.records import Feedback, Interaction, Record

log = logging.getLogger(__name__)

_COLUMNS_TYPED = "kind VARCHAR, id VARCHAR, interaction_id VARCHAR, happened TIMESTAMPTZ, json VARCHAR"
_EARLY = timedelta(days=7)
"""By so much may feedback be received before its interaction started: clocks differ, and exports mix up time zones."""
_Found = TypeVar("_Found")
_ATTEMPTS = 5
"""Segments may be compacted away while they are read; then the list is made again."""


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
    """Feedback that came in the window for an interaction that is nowhere in the log."""
    bad_lines: int
    """Lines that cannot be read or placed; the last line of a segment, cut by a crash, was promised to nobody."""


def read_events(events_dir: Path, business: str, start: datetime, end: datetime) -> Events:
    """Interactions of one business that started in [start, end), and all feedback for them.

    Raises:
        DataError: the log cannot be read.
    """
    return patiently(events_dir, lambda: _read(events_dir, business, start, end))


def patiently(events_dir: Path, read: Callable[[], _Found]) -> _Found:
    """Read the log again when it changed while it was read.

    Raises:
        DataError: it cannot be read.
    """
    for _ in range(_ATTEMPTS):
        try:
            return read()
        except (duckdb.IOException, FileNotFoundError) as error:
            problem = " ".join(str(error).split())
            log.info("the event log changed while it was read; reading it again")
    raise DataError(f"{events_dir}: the event log cannot be read ({problem[:200]}); look at the disk")


def _read(events_dir: Path, business: str, start: datetime, end: datetime) -> Events:
    with database_in_memory() as database:
        selected = select(database, events_dir, business, start, end)
        interactions, bad_interactions = _parse(selected.interactions())
        feedback, bad_feedback = _parse(selected.feedback())
        unmatched = selected.unmatched_feedback()
    # Of several texts with one id, the first in time counts; later ones of a dictionary would win.
    found = {e.interaction.interaction_id: e.interaction for e in reversed(interactions) if e.interaction}
    said = {e.feedback.event_id: e.feedback for e in reversed(feedback) if e.feedback}
    return Events(
        interactions=tuple(sorted(found.values(), key=lambda i: (i.started_at, i.interaction_id))),
        feedback=tuple(sorted(said.values(), key=lambda f: (f.received_at, f.event_id))),
        unmatched_feedback=unmatched,
        bad_lines=selected.bad_lines + bad_interactions + bad_feedback,
    )


def select(
    database: duckdb.DuckDBPyConnection, events_dir: Path, business: str, start: datetime, end: datetime
) -> "Selected":
    """Find the interactions of one business that started in [start, end); their texts are read later, from where they
    are. A day's folder holds what happened on that day, so the window's interactions are in the folders of its days."""
    database.execute(f"CREATE TABLE events ({_COLUMNS_TYPED})")
    # Segments first: one that is compacted in between is then seen twice, never missed.
    segments = segments_of(events_dir)
    files = sorted((events_dir / "lake" / business).glob("*/*.parquet"))
    bad = _load_segments(database, segments, business, start, end) if segments else 0
    selected = Selected(database, files, start, end, bad)
    database.execute(
        f"CREATE TABLE wanted AS SELECT DISTINCT interaction_id FROM ({selected.of_window}) WHERE {_IN_WINDOW}",
        selected.window,
    )
    return selected


_IN_WINDOW = "kind = 'interaction' AND happened >= $start AND happened < $end"


@dataclass(frozen=True)
class Selected:
    """A window of one business, in a database that holds what stands in segments, and the ids that are wanted."""

    database: duckdb.DuckDBPyConnection
    files: list[Path]
    """All of the business's lake."""
    start: datetime
    end: datetime
    bad_lines: int

    @property
    def window(self) -> dict[str, datetime]:
        return {"start": self.start, "end": self.end}

    @property
    def of_window(self) -> str:
        """A query for everything that happened in about the window."""
        return _everything(_of_days(self.files, self.start, self.end))

    def interactions(self) -> Iterator[str]:
        """Their texts, those that came twice twice, in the order of (happened, id, text)."""
        query = f"SELECT json FROM ({self.of_window}) WHERE {_IN_WINDOW} ORDER BY happened, id, json"
        return _texts(self.database, query, self.window)

    def feedback(self) -> Iterator[str]:
        """The texts of all feedback for them, early or however late; ordered likewise."""
        files = _of_days(self.files, self.start - _EARLY, None)
        query = f"""SELECT json FROM ({_everything(files)}) SEMI JOIN wanted USING (interaction_id)
                    WHERE kind = 'feedback' ORDER BY happened, id, json"""
        return _texts(self.database, query)

    def shadows(self) -> Iterator[tuple[str, str]]:
        """The texts of interactions and of their shadows, where both happened in the window; by the shadow's time."""
        query = f"""WITH came AS (SELECT * FROM ({self.of_window}) WHERE happened >= $start AND happened < $end),
                         served AS (SELECT * FROM came WHERE kind = 'interaction'),
                         shadow AS (SELECT * FROM came WHERE kind = 'shadow')
                    SELECT served.json, shadow.json FROM served JOIN shadow USING (interaction_id)
                    ORDER BY shadow.happened, interaction_id, served.json, shadow.json"""
        cursor = self.database.execute(query, self.window)
        while rows := cursor.fetchmany(1000):
            yield from rows

    def unmatched_feedback(self) -> int:
        """How much feedback came in the window for an interaction that is nowhere in the log."""
        ((count,),) = self.database.execute(
            f"""WITH came AS (SELECT DISTINCT id, interaction_id FROM ({self.of_window}) ANTI JOIN wanted
                                USING (interaction_id)
                              WHERE kind = 'feedback' AND happened >= $start AND happened < $end),
                     there AS (SELECT interaction_id FROM ({_everything(self.files)}) WHERE kind = 'interaction')
                SELECT count(DISTINCT id) FROM came ANTI JOIN there USING (interaction_id)""",
            self.window,
        ).fetchall()
        return int(count)


def _of_days(files: list[Path], start: datetime, end: datetime | None) -> list[Path]:
    """Those in the folders of these days, both included."""
    first = start.astimezone(UTC).date().isoformat()
    last = end.astimezone(UTC).date().isoformat() if end is not None else "9999"
    return [file for file in files if first <= file.parent.name <= last]


def _everything(files: list[Path]) -> str:
    if not files:
        return f"SELECT {COLUMNS} FROM events"
    paths = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    return f"SELECT {COLUMNS} FROM events UNION ALL SELECT {COLUMNS} FROM read_parquet([{paths}])"


def _texts(
    database: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, datetime] | None = None
) -> Iterator[str]:
    cursor = database.execute(query, parameters)
    while rows := cursor.fetchmany(1000):
        yield from (text for (text,) in rows)


def _load_segments(
    database: duckdb.DuckDBPyConnection, segments: list[Path], business: str, start: datetime, end: datetime
) -> int:
    """Insert the business's events; return how many lines could not be placed. Texts outside the window are left."""
    database.execute(
        f"""CREATE TEMP TABLE lines AS
              SELECT kind, id, interaction_id, happened, placed,
                     CASE WHEN kind = 'feedback' OR (happened >= $start AND happened < $end) THEN json END AS json
              FROM ({LINES}) WHERE coalesce(business, $business) = $business""",
        {"paths": [str(segment) for segment in segments], "business": business, "start": start, "end": end},
    )
    database.execute(f"INSERT INTO events SELECT {COLUMNS} FROM lines WHERE placed")
    ((bad,),) = database.execute("SELECT count(*) FROM lines WHERE NOT placed").fetchall()
    return max(0, int(bad) - sum(cut_tail(segment) for segment in segments))


def _parse(texts: Iterable[str]) -> tuple[list[Event], int]:
    """Validated events, and how many different texts were none."""
    events: list[Event] = []
    bad: set[str] = set()
    for text in texts:
        try:
            events.append(Event.model_validate_json(text))
        except ValidationError:
            bad.add(text)
    return events, len(bad)
