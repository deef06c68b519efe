"""The durable append: nothing acknowledged is lost, nothing torn is kept."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.events.segment import LogUnavailable, SegmentLog, SegmentWriter

NOW = datetime(2026, 3, 1, 10, 59, tzinfo=UTC)


def lines_of(directory: Path) -> list[bytes]:
    return [line for file in sorted(directory.glob("*.jsonl")) for line in file.read_bytes().splitlines()]


def test_lines_go_to_the_file_of_worker_and_utc_hour_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    directory = tmp_path / "segments"
    log = SegmentLog(directory, "w1")
    log.commit([b"a", b"b"], NOW.astimezone())
    log.commit([b"c"], NOW + timedelta(minutes=2))
    assert (directory / "w1-20260301T10.jsonl").read_bytes() == b"a\nb\n"
    assert (directory / "w1-20260301T11.jsonl").read_bytes() == b"c\n"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {0o600}


@settings(max_examples=30)
@given(
    whole=st.lists(st.binary(min_size=1, max_size=30).map(bytes.hex), max_size=4),
    torn=st.binary(max_size=300),
    repeat=st.sampled_from([1, 1000]),
)
def test_a_torn_tail_is_cut_off_and_whole_lines_stay(
    tmp_path_factory: pytest.TempPathFactory, whole: list[str], torn: bytes, repeat: int
) -> None:
    directory = tmp_path_factory.mktemp("s")
    before = b"".join(line.encode() + b"\n" for line in whole)
    (directory / "w1-20260301T10.jsonl").write_bytes(before + torn.replace(b"\n", b" ") * repeat)
    log = SegmentLog(directory, "w1")
    log.commit([b"new"], NOW)
    log.close()
    assert lines_of(directory) == [line.encode() for line in whole] + [b"new"]


def test_two_processes_cannot_share_a_worker_name(tmp_path: Path) -> None:
    first = SegmentLog(tmp_path, "w1")
    SegmentLog(tmp_path, "w2").close()
    with pytest.raises(ConfigError, match="w1"):
        SegmentLog(tmp_path, "w1")
    first.close()
    SegmentLog(tmp_path, "w1").close()


@pytest.mark.parametrize("worker", ["", "a/b", "..", "a b"])
def test_a_worker_name_that_is_no_file_name_is_refused(tmp_path: Path, worker: str) -> None:
    with pytest.raises(ConfigError, match="worker"):
        SegmentLog(tmp_path, worker)


class FullDisk:
    """A disk that takes `space` bytes more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.space = 1 << 30
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if self.space <= 0:
            raise OSError(28, "No space left on device")
        part = bytes(data)[: self.space]
        self.space -= len(part)
        return self._write(fd, part)


@pytest.mark.anyio
async def test_full_disk_fails_who_waits_keeps_the_rest_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    writer = SegmentWriter(SegmentLog(tmp_path, "w1"), retry_s=0.05, clock=lambda: NOW)
    await writer.append_durable(b"first")
    disk.space = 9
    writer.append(b"interaction")
    with pytest.raises(LogUnavailable, match="No space"):
        await writer.append_durable(b"feedback")
    assert writer.failing
    disk.space = 1 << 30
    await writer.append_durable(b"later")
    assert not writer.failing
    assert await writer.close() == 0
    assert lines_of(tmp_path) == [b"first", b"interaction", b"later"]


@pytest.mark.anyio
async def test_what_nobody_waits_for_is_written_too_once_the_disk_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    writer = SegmentWriter(SegmentLog(tmp_path, "w1"), linger_s=0.001, retry_s=0.01, clock=lambda: NOW)
    disk.space = 0
    writer.append(b"one")
    async with asyncio.timeout(5):
        while not writer.failing:
            await asyncio.sleep(0.001)
        writer.append(b"two")
        disk.space = 1 << 30
        while writer.queued_bytes:
            await asyncio.sleep(0.001)
    assert lines_of(tmp_path) == [b"one", b"two"]
    await writer.close()


@pytest.mark.anyio
async def test_the_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch)
    disk.space = 0
    writer = SegmentWriter(SegmentLog(tmp_path, "w1"), max_queued=100, linger_s=60, clock=lambda: NOW)
    assert [writer.append(b"x" * 40) for _ in range(3)] == [True, True, False]
    assert writer.dropped == 1
    with pytest.raises(LogUnavailable, match="too much"):
        await writer.append_durable(b"y" * 40)
    assert await writer.close(timeout_s=0.05) == 2


@pytest.mark.anyio
async def test_waiters_share_commits_and_order_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: commits.append(fd) or sync(fd))
    writer = SegmentWriter(SegmentLog(tmp_path, "w1"), clock=lambda: NOW)
    names = [f"{number:04d}".encode() for number in range(500)]
    await asyncio.gather(*(writer.append_durable(name) for name in names))
    assert lines_of(tmp_path) == names
    assert len(commits) < 50
    await writer.close()
