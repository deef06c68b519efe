"""Finding one interaction and what was said about it, without reading the event log whole.

Every file of the log is named by the hour in which its lines were written, and an interaction's id tells the hour in
which it began. So the interaction is looked for in that hour and the next one; feedback in the two days that follow it
and in the newest two days, up to a limit of bytes. `searched` says which hours that were: what was said outside them is
in the log all the same, and in every snapshot.

Segments are read block by block, so that memory stays small and a thread that does it never holds the interpreter for
long; DuckDB, which reads compacted hours, is only imported when there is one.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from pipeline.errors import DataError
from pipeline.records import Feedback, Record

HOUR = timedelta(hours=1)
INTERACTION_HOURS = 2
"""An answer may end in the hour after the one in which it began."""
EARLY_HOURS = 48
LATE_HOURS = 48
MOST_BYTES = 1024**3
"""Of files in which feedback is looked for; the interaction itself is found whatever its hours weigh."""
MOST_FEEDBACK_BYTES = 16 * 1024**2
"""Of feedback that is kept in memory."""
_BLOCK = 256 * 1024
_ATTEMPTS = 5
_LAKE_MEMORY = "256MB"


@dataclass(frozen=True)
class Found:
    """An interaction as it stands in the log."""

    interaction: bytes
    """JSON: an `Interaction`."""
    feedback: tuple[Feedback, ...]
    """Each event once, by (received_at, event_id)."""
    searched: tuple[tuple[datetime, datetime], ...]
    """From when to when, by the time it was received, feedback was looked for."""


def find_interaction(
    events_dir: Path,
    business: str,
    interaction_id: str,
    made_at: datetime,
    now: datetime,
    *,
    most_bytes: int = MOST_BYTES,
) -> Found | None:
    """Look an interaction up; None when it is not in the log (yet).

    Args:
        made_at: when its id was made.

    Raises:
        DataError: a file of the log cannot be read.
    """
    search = _Search(events_dir, business, interaction_id)
    first = _hour(made_at)
    try:
        for n in range(INTERACTION_HOURS):
            search.look_into(first + HOUR * n)
        if search.interaction is None:
            return None
        for hour in _feedback_hours(first, now):
            if search.bytes_read > most_bytes or search.full:
                break
            if hour not in search.done:
                search.look_into(hour)
    except OSError as error:
        raise DataError(f"{events_dir}: the event log cannot be read ({error.strerror}); look at the disk") from error
    finally:
        search.close()
    return Found(search.interaction, search.feedback(), merge_hours(search.done, now))


def merge_hours(hours: list[datetime], now: datetime) -> tuple[tuple[datetime, datetime], ...]:
    """Hours as intervals; none ends after `now`."""
    merged: list[tuple[datetime, datetime]] = []
    for hour in sorted(set(hours)):
        if hour >= now:
            continue
        end = min(hour + HOUR, now)
        if merged and merged[-1][1] == hour:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((hour, end))
    return tuple(merged)


def _feedback_hours(first: datetime, now: datetime) -> list[datetime]:
    """In the order in which they are looked into: from the interaction on, then from now back."""
    last = _hour(now)
    early = [first + HOUR * n for n in range(EARLY_HOURS)]
    late = [last - HOUR * n for n in range(LATE_HOURS)]
    return list(dict.fromkeys(hour for hour in early + late if first <= hour <= last))


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


class _Whose(Record):
    """A line with feedback."""

    feedback: Feedback


class _Name(msgspec.Struct):
    interaction_id: str
    business: str


class _Logged(msgspec.Struct):
    interaction: msgspec.Raw


_LINE = msgspec.json.Decoder(_Logged)
_NAME = msgspec.json.Decoder(_Name)


class _Search:
    """What was found so far, and what it cost."""

    def __init__(self, events_dir: Path, business: str, interaction_id: str) -> None:
        self._segments = events_dir / "segments"
        self._lake = events_dir / "lake" / business
        self._business = business
        self._id = interaction_id
        self._database: Any = None
        self._feedback: list[Feedback] = []
        self._kept_bytes = 0
        self.interaction: bytes | None = None
        self.bytes_read = 0
        self.full = False
        """There is more feedback than memory shall hold."""
        self.done: list[datetime] = []
        """Hours from which everything was taken."""

    def look_into(self, hour: datetime) -> None:
        """Take from the files of one hour what is about the interaction."""
        # Segments first: one that is compacted in between is then seen twice, never missed.
        name = f"*-{hour:%Y%m%dT%H}"
        for segment in sorted(self._segments.glob(f"{name}.jsonl")):
            try:
                self.bytes_read += segment.stat().st_size
                for line in lines_with(segment, self._id.encode()):
                    self._take(line)
            except FileNotFoundError:
                continue
        # A line is written in the hour of its time or, near its end, in the next one.
        days = {hour.date(), (hour - HOUR).date()}
        compacted = sorted(file for day in days for file in (self._lake / day.isoformat()).glob(f"{name}.parquet"))
        if compacted:
            self.bytes_read += sum(file.stat().st_size for file in compacted)
            for text in self._lines_of_lake(compacted):
                self._take(text.encode())
        if not self.full:
            self.done.append(hour)

    def feedback(self) -> tuple[Feedback, ...]:
        """Of several texts with one event id the first in time counts."""
        in_time = sorted(self._feedback, key=lambda event: (event.received_at, event.event_id))
        return tuple({event.event_id: event for event in reversed(in_time)}.values())[::-1]

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _take(self, line: bytes) -> None:
        """Keep a line if it is about the interaction; others may merely mention its id."""
        try:
            if line.startswith(b'{"feedback"'):
                event = _Whose.model_validate_json(line).feedback
                if (event.interaction_id, event.business) == (self._id, self._business):
                    self._kept_bytes += len(line)
                    self.full = self._kept_bytes > MOST_FEEDBACK_BYTES
                    if not self.full:
                        self._feedback.append(event)
            elif line.startswith(b'{"interaction"') and self.interaction is None:
                body = bytes(_LINE.decode(line).interaction)
                name = _NAME.decode(body)
                if (name.interaction_id, name.business) == (self._id, self._business):
                    self.interaction = body
        except (ValidationError, msgspec.MsgspecError):
            return  # a line that nobody can read; compacting leaves its segment for a person to look at

    def _lines_of_lake(self, files: list[Path]) -> list[str]:
        import duckdb

        if self._database is None:
            config: dict[str, Any] = {"threads": 1, "memory_limit": _LAKE_MEMORY, "autoinstall_known_extensions": False}
            self._database = duckdb.connect(":memory:", config=config)
        for attempt in range(_ATTEMPTS):
            try:
                self._database.execute(
                    "SELECT json FROM read_parquet($paths) WHERE interaction_id = $id ORDER BY kind DESC, happened",
                    {"paths": [str(file) for file in files], "id": self._id},
                )
                texts: list[str] = []
                size = 0
                while size <= 2 * MOST_FEEDBACK_BYTES and (rows := self._database.fetchmany(16)):
                    texts += [text for (text,) in rows]
                    size += sum(len(text) for (text,) in rows)
                return texts
            except duckdb.Error as error:  # a file may be replaced while it is read
                problem = " ".join(str(error).split())
                time.sleep(0.01 * attempt)
        raise DataError(f"{self._lake}: cannot be read ({problem[:200]}); look at the disk")


def lines_with(path: Path, needle: bytes) -> Iterator[bytes]:
    """The whole lines of a file that hold `needle`, without their newline; a torn last line is none."""
    with path.open("rb", buffering=0) as file:
        handle = file.fileno()
        at = 0
        while len(block := os.pread(handle, _BLOCK, at)) >= len(needle):
            hit = block.find(needle)
            if hit < 0:
                at += len(block) - len(needle) + 1
                continue
            start, end = _line_around(handle, at + hit)
            if end is None:
                return
            yield os.pread(handle, end - start, start)
            at = end + 1


def _line_around(handle: int, place: int) -> tuple[int, int | None]:
    """Where the line at `place` starts and ends; None when it has no end yet."""
    start = place
    while start > 0:
        before = max(0, start - _BLOCK)
        newline = os.pread(handle, start - before, before).rfind(b"\n")
        if newline >= 0:
            start = before + newline + 1
            break
        start = before
    end = place
    while block := os.pread(handle, _BLOCK, end):
        newline = block.find(b"\n")
        if newline >= 0:
            return start, end + newline
        end += len(block)
    return start, None
