"""Taking events out of the event log, while gateways go on writing to it.

A file of the lake is replaced by one without the rows that go. A segment cannot be: its gateway would go on writing to
the file that is gone. There the lines that go are overwritten with blanks, which every reader skips; a gateway and an
erasure take turns by a lock on the file, held for as long as the blanks are written. A line whose first byte is blank
is one that an erasure was killed over, and is blanked to its end by the next.
"""

import fcntl
import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.erase.erased import Erased
from pipeline.erase.lines import Tick, covers, of_lake, of_segment
from pipeline.events.lake import alone
from pipeline.events.read import Events
from pipeline.tables import sync_folder, write_table

_BLANKS = b" " * (1024 * 1024)


class _Place(NamedTuple):
    """A line to blank, without its newline."""

    start: int
    length: int
    content: bytes
    """Hash of what is there."""
    again: bool
    """An erasure was killed over it, or it was still being written: it is counted already."""


def forget_events(events_dir: Path, businesses: Sequence[str], erased: Erased, tick: Tick = lambda _: None) -> int:
    """Take out of segments and lake what is erased; returns how many lines went.

    May be killed at any point and called again. Waits while the log is compacted.
    """
    gone = forget_in_segments(events_dir, erased, tick)
    with alone(events_dir, wait=True):
        for business in businesses:
            for path in sorted((events_dir / "lake" / business).glob("*/*.tmp")):
                path.unlink()  # half a file of a process that was killed
            for path in sorted((events_dir / "lake" / business).glob("*/*.parquet")):
                size = path.stat().st_size
                gone += _forget_in_lake(path, erased)
                tick(size)
    return gone


def forget_in_segments(events_dir: Path, erased: Erased, tick: Tick = lambda _: None) -> int:
    """Blank what is erased in all segments, of whatever business; returns how many lines went.

    Every night does it before the log is compacted, for what has come since of users who are erased.
    """
    gone = 0
    with alone(events_dir, wait=True):
        for path in sorted((events_dir / "segments").glob("*.jsonl")):
            while places := _find(path, erased):
                gone += _blank(path, places)
            tick(path.stat().st_size)
    return gone


def leave_out(events: Events, erased: Erased) -> Events:
    """Without what came of erased users after the log was last cleaned of them."""
    if not erased:
        return events
    return replace(
        events,
        interactions=tuple(one for one in events.interactions if not erased.interaction(one)),
        feedback=tuple(one for one in events.feedback if not erased.feedback(one)),
    )


def log_bytes(events_dir: Path, businesses: Sequence[str]) -> int:
    """Bytes of the files that hold, or may hold, events of the businesses."""
    lakes = [path for business in businesses for path in (events_dir / "lake" / business).glob("*/*.parquet")]
    return sum(path.stat().st_size for path in [*(events_dir / "segments").glob("*.jsonl"), *lakes])


def _find(path: Path, erased: Erased) -> list[_Place]:
    places = []
    for start, line in of_segment(path):
        text = line.rstrip(b"\n")
        half_blanked = text.startswith(b" ") and not text.isspace()
        if half_blanked or (text and not text.isspace() and covers(erased, text)):
            places.append(_Place(start, len(text), _hash(text), half_blanked))
    return places


def _blank(path: Path, places: Sequence[_Place]) -> int:
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        # What a failed commit had left may have been cut off, and other lines written there, since they were read.
        there = [place for place in places if _hash(os.pread(handle, place.length, place.start)) == place.content]
        for place in there:
            os.pwrite(handle, b" ", place.start)
        os.fdatasync(handle)
        for place in there:
            for at in range(0, place.length, len(_BLANKS)):
                os.pwrite(handle, _BLANKS[: place.length - at], place.start + at)
        os.fdatasync(handle)
        return sum(not place.again for place in there)
    finally:
        os.close(handle)


def _hash(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def _forget_in_lake(path: Path, erased: Erased) -> int:
    goes = [covers(erased, text) for text in of_lake(path)]
    if not any(goes):
        return 0
    kept = pq.ParquetFile(path).read(use_threads=False).filter(pa.array([not one for one in goes]))
    if kept.num_rows:
        write_table(path, kept)
    else:
        path.unlink()
        sync_folder(path.parent)
    return sum(goes)
