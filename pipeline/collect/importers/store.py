"""Imported items into the event log: each event once, whatever was imported before and however often it is tried.

What a killed import had written stays and is found again by its ids; the next run adds the rest. Events go through the
log's own segments, in files of limited size, and are brought to their business and days when they are compacted.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pipeline.collect.importers.make import IMPORTED, Make
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason
from pipeline.erase.erased import Erased
from pipeline.events.ids import stored_ids
from pipeline.events.segment import SegmentLog
from pipeline.records import Feedback, Interaction

SEGMENT_BYTES = 64 * 1024 * 1024
"""Of one file of the log, so that compacting it needs little memory."""
_COMMIT_BYTES = 2 * 1024 * 1024
_MAX_EVENT = 60 * 1024 * 1024
"""The log's readers take no longer line."""
_KEPT_REFUSALS = 1000
"""That are told one by one; all are counted."""


@dataclass
class Totals:
    """What became of everything in the file: `read = stored + there + refused`."""

    interactions: int = 0
    """Stored now."""
    feedback: int = 0
    """Stored now."""
    there: int = 0
    """In the log from before."""
    repeated: int = 0
    """Said several times in the file itself."""
    refused: Counter[RefusalReason] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)
    """The first of them."""
    joined: int = 0
    """Feedback of the file, stored now or before, whose interaction is in the log."""
    unjoined: int = 0
    """Feedback whose interaction is nowhere in the log, so far."""

    @property
    def stored(self) -> int:
        return self.interactions + self.feedback

    @property
    def read(self) -> int:
        return self.stored + self.there + self.repeated + self.refused.total()

    @property
    def damaged(self) -> bool:
        """Whether something was meant to be taken and could not be."""
        return any(reason.is_damage for reason in self.refused)


def store(
    items: Iterable[Item],
    make: Make,
    events_dir: Path,
    tick: Callable[[], None] = lambda: None,
    erased: Erased = Erased(),  # noqa: B008  frozen
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Totals:
    """Write what is new to the event log; returns when it is on disk.

    Args:
        tick: called after each item.
        erased: whose events are not taken again.
        clock: names the files of the log; a file of a past hour may be compacted away, so it must run on.

    Raises:
        ConfigError: another import of this tool and business is at work.
        OSError: the disk is full or refuses; run the same import again.
    """
    totals = Totals()
    writer = _Writer(events_dir / "segments", f"import-{make.business}-{make.tool}", clock)
    try:
        known = Digests(_digest(i) for _, i in stored_ids(events_dir, make.business) if i.startswith(IMPORTED))
        mine: set[bytes] = set()
        about: Counter[bytes] = Counter()
        for item in items:
            tick()
            _take(_unless_erased(item, erased), known, mine, about, totals, writer)
        writer.flush()
        _count_joined(about, stored_ids(events_dir, make.business), totals)
    finally:
        writer.close()
    return totals


def _take(
    item: Item, known: "Digests", mine: set[bytes], about: Counter[bytes], totals: Totals, writer: "_Writer"
) -> None:
    if isinstance(item, Refusal):
        _refuse(item, totals)
        return
    digest = _digest(item.interaction_id if isinstance(item, Interaction) else item.event_id)
    if digest in mine:
        totals.repeated += 1
        return
    line = b""
    if digest not in known:
        line = _line(item)
        if len(line) > _MAX_EVENT:
            _refuse(Refusal("", RefusalReason.TOO_LONG, f"an event of {len(line)} bytes"), totals)
            return
    mine.add(digest)
    if isinstance(item, Feedback):
        about[_digest(item.interaction_id)] += 1
    if not line:
        totals.there += 1
        return
    writer.append(line)
    if isinstance(item, Interaction):
        totals.interactions += 1
    else:
        totals.feedback += 1


def _unless_erased(item: Item, erased: Erased) -> Item:
    gone = (isinstance(item, Interaction) and erased.interaction(item)) or (
        isinstance(item, Feedback) and erased.feedback(item)
    )
    return Refusal("", RefusalReason.ERASED) if gone else item


def _refuse(refusal: Refusal, totals: Totals) -> None:
    totals.refused[refusal.reason] += 1
    if len(totals.refusals) < _KEPT_REFUSALS:
        totals.refusals.append(refusal)


def _count_joined(about: Counter[bytes], stored: Iterator[tuple[str, str]], totals: Totals) -> None:
    waiting = dict(about)
    for kind, interaction_id in stored:
        if kind == "interaction":
            totals.joined += waiting.pop(_digest(interaction_id), 0)
    totals.unjoined = sum(waiting.values())


def _digest(event_id: str) -> bytes:
    """16 bytes for an id of any length: millions of them are kept in memory."""
    return hashlib.blake2b(event_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Digests:
    """Digests of 16 bytes, asked for one by one; each takes 16 bytes of memory, where a set takes a hundred."""

    def __init__(self, digests: Iterable[bytes]) -> None:
        together = bytearray()
        for digest in digests:
            together += digest
        self._sorted = np.frombuffer(together, dtype="S16")
        self._sorted.sort()

    def __contains__(self, digest: bytes) -> bool:
        at = int(np.searchsorted(self._sorted, np.bytes_(digest)))
        # NumPy leaves out zeros at the end.
        return at < len(self._sorted) and bytes(self._sorted[at]) == digest.rstrip(b"\0")


def _line(item: Interaction | Feedback) -> bytes:
    name = b"interaction" if isinstance(item, Interaction) else b"feedback"
    return b'{"%b":%b}' % (name, item.model_dump_json().encode())


class _Writer:
    """Lines to segments, committed some megabytes at a time."""

    def __init__(self, directory: Path, worker: str, clock: Callable[[], datetime]) -> None:
        self._directory = directory
        self._worker = worker
        self._clock = clock
        self._lock = SegmentLog(directory, worker)  # one import of a tool at a time
        self._log = self._lock
        self._lines: list[bytes] = []
        self._size = 0
        self._written = 0
        self._number = 0

    def append(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _COMMIT_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._lines:
            return
        if self._written + self._size > SEGMENT_BYTES and self._written:
            self._next_file()
        self._log.commit(self._lines, self._clock())
        self._written += self._size
        self._lines, self._size = [], 0

    def close(self) -> None:
        """Give the names back; lines that were not flushed are not written."""
        if self._log is not self._lock:
            self._log.close()
        self._lock.close()

    def _next_file(self) -> None:
        if self._log is not self._lock:
            self._log.close()
        self._number += 1
        self._written = 0
        self._log = SegmentLog(self._directory, f"{self._worker}-{self._number}")
