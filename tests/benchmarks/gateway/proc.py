"""What /proc knows of the processes under test: CPU time by the scheduler's own count, memory, and who else is busy.

`schedstat` counts nanoseconds on the CPU; `stat`, which psutil reads, counts ticks of 10 ms and would call many a
gateway's window zero.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq, steal; guest time is inside user already."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Of some processes together, at one moment."""

    cpu_ns: int
    rss_kb: int
    peak_kb: int
    """Highest resident size since `reset_peak`; pages that processes share count once for each."""


def tree(root: int) -> tuple[int, ...]:
    """A process and all its descendants."""
    return (root, *(child.pid for child in psutil.Process(root).children(recursive=True)))


def usage(pids: Iterable[int], proc: Path = Path("/proc")) -> Usage:
    """CPU and memory of these processes; one that has ended counts nothing any more."""
    cpu_ns = rss_kb = peak_kb = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in (proc / str(pid) / "task").iterdir():
                cpu_ns += parse_schedstat((task / "schedstat").read_text())
            memory = parse_status((proc / str(pid) / "status").read_text())
            rss_kb += memory.get("VmRSS", 0)
            peak_kb += memory.get("VmHWM", 0)
    return Usage(cpu_ns, rss_kb, peak_kb)


def reset_peak(pids: Iterable[int]) -> None:
    """Let the peak memory of these processes start from now."""
    for pid in pids:
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def machine_busy_ns() -> int:
    """CPU time that all processes of this machine (and its host, as stolen time) have used, in steps of 10 ms a CPU."""
    with Path("/proc/stat").open() as stat:
        return parse_cpu_ticks(stat.readline()) * 1_000_000_000 // _TICKS


def parse_schedstat(text: str) -> int:
    """Nanoseconds on the CPU: the first of three numbers."""
    return int(text.split(None, 1)[0])


def parse_status(text: str) -> dict[str, int]:
    """The sizes in kB of /proc/<pid>/status."""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            sizes[name] = int(words[0])
    return sizes


def parse_cpu_ticks(line: str) -> int:
    """Busy ticks of the first line of /proc/stat."""
    values = [int(word) for word in line.split()[1:]]
    return sum(values[field] for field in _BUSY_FIELDS)
