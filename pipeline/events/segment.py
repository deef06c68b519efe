"""The durable append of the event log: one JSON line an event, in a file for each worker and hour.

`SegmentLog.commit` returns only when the lines are on disk. `SegmentWriter` shares one commit among all that wait
for it (group commit): the next commit starts when the last one has ended, so the batch grows with the load by itself.
Only a commit that failed or was cut by a crash leaves a torn tail; it was acknowledged to nobody and is cut off
before the next line is written.
"""

import asyncio
import fcntl
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pipeline.errors import ConfigError, DataError, Transient

_WORKER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TAIL_BLOCK = 65536


class LogUnavailable(DataError, Transient):
    """The event log cannot take the event now: the disk is full or refuses, or too much waits for it already."""


class SegmentLog:
    """Files `<directory>/<worker>-<YYYYMMDDTHH>.jsonl` (UTC hours), owned by one process at a time.

    Raises:
        ConfigError: another process writes under the same worker name.
    """

    def __init__(self, directory: Path, worker: str) -> None:
        if not _WORKER.fullmatch(worker):
            raise ConfigError(f"worker '{worker}' must be 1 to 64 letters, digits, '-' or '_'")
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
        self._directory = directory
        self._worker = worker
        self._lock = os.open(directory / f".{worker}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(
                f"{directory}: worker '{worker}' is written by another process; stop it or name this one otherwise"
            ) from error
        self._hour = ""
        self._fd = -1
        self._end = 0
        self._torn = False

    def commit(self, lines: Sequence[bytes], now: datetime) -> None:
        """Append lines (without their newline) and return when they are on disk.

        Raises:
            OSError: nothing of `lines` counts as written; what reached the file is cut off by the next commit.
        """
        self._open(now)
        data = b"\n".join((*lines, b""))
        with _turn(self._fd):
            self._cut_torn_tail()
            self._torn = True
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fdatasync(self._fd)
            self._torn = False
        self._end += len(data)

    def close(self) -> None:
        """Give the worker name back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _open(self, now: datetime) -> None:
        hour = now.astimezone(UTC).strftime("%Y%m%dT%H")
        if hour == self._hour:
            return
        path = self._directory / f"{self._worker}-{hour}.jsonl"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            end = _whole_lines(fd)
            os.ftruncate(fd, end)
            _sync_directory(self._directory)
        except BaseException:
            os.close(fd)
            raise
        if self._fd >= 0:
            with _turn(self._fd):
                self._cut_torn_tail()
            os.close(self._fd)
        self._fd, self._hour, self._end, self._torn = fd, hour, end, False

    def _cut_torn_tail(self) -> None:
        if self._torn:
            os.ftruncate(self._fd, self._end)
            self._torn = False


@contextmanager
def _turn(fd: int) -> Iterator[None]:
    """Hold a segment's lock: an erasure blanks lines of it in place, and must not do so behind a moving end."""
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _whole_lines(fd: int) -> int:
    """Offset behind the last newline of a file."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _TAIL_BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(slots=True)
class _Batch:
    lines: list[bytes] = field(default_factory=list)
    waiters: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    """Position in `lines` to whoever waits for it."""
    size: int = 0
    since: float = 0.0
    """When its first line came."""


class SegmentWriter:
    """Group commit on one event loop; a thread does the writing.

    A line that nobody waits for (`append`) may linger a moment, so that quiet traffic costs few commits; one that
    somebody waits for (`append_durable`) takes all earlier ones to disk with it at once. When the disk refuses,
    waiting lines fail, the others are kept and tried again; above `max_queued` bytes new ones are refused and counted.
    """

    def __init__(
        self,
        log: SegmentLog,
        *,
        linger_s: float = 0.02,
        retry_s: float = 0.5,
        max_queued: int = 64 * 1024 * 1024,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._log = log
        self._linger_s = linger_s
        self._retry_s = retry_s
        self._max_queued = max_queued
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._next = _Batch()
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._closing: asyncio.Future[None] | None = None
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._in_flight = 0
        self._in_flight_since: float | None = None
        self.dropped = 0
        """Lines that were refused because too much was waiting."""
        self.failing = False
        """Whether the last commit failed."""
        self._thread = threading.Thread(target=self._work, name="segment-writer", daemon=True)
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """Bytes that are not on disk yet."""
        return self._next.size + self._in_flight

    @property
    def lag_s(self) -> float:
        """Age of the oldest line that is not on disk yet; 0 when all are."""
        since = self._in_flight_since or (self._next.since if self._next.lines else None)
        return 0.0 if since is None else self._loop.time() - since

    def append(self, line: bytes) -> bool:
        """Queue a line; False when it had to be dropped."""
        if not self._take(line):
            self.dropped += 1
            return False
        if not self._busy and self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self._flush)
        return True

    async def append_durable(self, line: bytes) -> None:
        """Return once the line is on disk.

        Raises:
            LogUnavailable: it is not, and will not be.
        """
        if not self._take(line):
            raise LogUnavailable("event log: too much waits for the disk; repeat the call later")
        waiter = self._loop.create_future()
        self._next.waiters[len(self._next.lines) - 1] = waiter
        if not self._busy:
            self._flush()
        await waiter

    async def close(self, timeout_s: float = 10.0) -> int:
        """Write what is queued, stop, and return how many lines could not be written in `timeout_s`."""
        deadline = self._loop.time() + timeout_s
        self._closing = self._loop.create_future()
        if not self._busy:
            self._flush()
        try:
            async with asyncio.timeout_at(deadline):
                while self._next.lines or self._busy:
                    await asyncio.shield(self._closing)
                    self._closing = self._loop.create_future()
        except TimeoutError:
            pass
        lost = len(self._next.lines)
        if not self._busy:
            self._batches.put(None)
            await asyncio.to_thread(self._thread.join, 5.0)
            self._log.close()
        return lost

    def _take(self, line: bytes) -> bool:
        if self._next.size + self._in_flight + len(line) > self._max_queued:
            return False
        if not self._next.lines:
            self._next.since = self._loop.time()
        self._next.lines.append(line)
        self._next.size += len(line)
        return True

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy or not self._next.lines:
            return
        batch, self._next = self._next, _Batch()
        self._busy = True
        self._in_flight = batch.size
        self._in_flight_since = batch.since
        self._batches.put(batch)

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            error: OSError | None = None
            try:
                self._log.commit(batch.lines, self._clock())
            except OSError as refused:
                error = refused
            try:
                self._loop.call_soon_threadsafe(self._done, batch, error)
            except RuntimeError:  # the loop was closed without `close`: nobody waits any more
                return

    def _done(self, batch: _Batch, error: OSError | None) -> None:
        self._busy = False
        self._in_flight = 0
        self._in_flight_since = None
        self.failing = error is not None
        for waiter in batch.waiters.values():
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(LogUnavailable(f"event log: {error.strerror}; free or mend the disk"))
        if error is not None:
            self._keep(batch)
            self._timer = self._loop.call_later(self._retry_s, self._flush)
        elif self._next.waiters or self._closing is not None:
            self._flush()
        elif self._next.lines and self._timer is None:
            self._timer = self._loop.call_later(self._linger_s, self._flush)
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    def _keep(self, failed: _Batch) -> None:
        """Put the lines that nobody was told about back in front of the queue."""
        kept = [line for position, line in enumerate(failed.lines) if position not in failed.waiters]
        shift = len(kept)
        if kept:
            self._next.since = failed.since
        self._next.lines[:0] = kept
        self._next.waiters = {position + shift: waiter for position, waiter in self._next.waiters.items()}
        self._next.size += sum(map(len, kept))
