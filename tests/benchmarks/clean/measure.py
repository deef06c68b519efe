"""One process and its children: how long it ran, what CPU time it took, how much memory all together held at most."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from tests.benchmarks.gateway.proc import machine_busy_ns

_EVERY_S = 0.2


@dataclass(frozen=True)
class Ran:
    """What one run took."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    """Resident memory of all its processes, added up: what they share counts for each."""
    others_cores: float
    """What other processes of the machine took meanwhile."""
    told: dict[str, Any]
    """The JSON that it printed last."""


def run(module: str, arguments: Sequence[str]) -> Ran:
    """Run a module of this benchmark with one thread for each BLAS, as nights are run."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    busy, began = machine_busy_ns(), time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    peak = _Peak(process.pid)
    with peak:
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    cpu = usage.ru_utime + usage.ru_stime
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}")
    others = max(0.0, (machine_busy_ns() - busy) / 1e9 - cpu) / seconds
    return Ran(seconds, cpu, peak.mb, others, json.loads(output.splitlines()[-1]))


class _Peak:
    """Looks at a process and its children several times a second."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.mb = 0.0

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_EVERY_S):
            self.mb = max(self.mb, sum(map(_resident, _tree(self._root))) / 2**20)


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
