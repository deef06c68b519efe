"""Starts the processes of the benchmark, each on its core, and leaves none behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.document import ROOT
from tests.benchmarks.gateway.answers import STREAM_EVENTS
from tests.benchmarks.gateway.job import Job, Outcome
from tests.benchmarks.gateway.proc import tree
from tests.benchmarks.gateway.requests import build_requests

GATEWAY_CORE = 0
LOAD_CORE = 1
_STOP_S = 15.0
_START_S = 120.0


class BenchError(Exception):
    """The benchmark cannot go on with this contestant: says which, and why."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running process and where it answers."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pids(self) -> tuple[int, ...]:
        """The process and its children."""
        return tree(self.process.pid)

    def stop(self) -> None:
        """End the process and its children; they are one process group."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, how)
                self.process.wait(_STOP_S)
            except ProcessLookupError:
                self.process.wait(_STOP_S)
                return
            except subprocess.TimeoutExpired:
                continue

    def last_words(self) -> str:
        """The end of what it said, for an error message."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1][-300:] if lines else 'it said nothing'} (log: {self.log})"


def start(
    name: str,
    port: int,
    command: Sequence[str],
    folder: Path,
    cores: Sequence[int],
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Start a process on some cores; its output goes to `folder/<name>.log`."""
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    os.sched_setaffinity(process.pid, cores)  # threads and children that it starts from here on inherit it
    return Server(name, port, process, log)


def start_stub(folder: Path, core: int = LOAD_CORE) -> Server:
    """The stub engine; ready when this returns."""
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.gateway.stub", "--port", str(port)]
    server = start("stub", port, command, folder, (core,))
    wait_ready(server, ("-",))
    return server


def wait_ready(server: Server, keys: tuple[str, ...]) -> None:
    """Return when the server answers as the stub does, without and with a stream.

    Raises:
        BenchError: it ended, or does not within two minutes.
    """
    deadline = time.monotonic() + _START_S
    plain = build_requests("bench", keys, stream=False, pace_us=0)[0]
    while b"shipped on monday" not in _ask(server.port, plain):
        if server.process.poll() is not None:
            raise BenchError(f"{server.name} ended with {server.process.returncode}: {server.last_words()}")
        if time.monotonic() > deadline:
            raise BenchError(f"{server.name} gives no right answer within {_START_S:.0f} s: {server.last_words()}")
        time.sleep(0.2)
    answer = _ask(server.port, build_requests("bench", keys, stream=True, pace_us=1000)[1])
    if answer.count(b"data: ") < STREAM_EVENTS - 2 or b"[DONE]" not in answer:  # LiteLLM joins some
        raise BenchError(f"{server.name} does not stream: {answer[-200:]!r}; {server.last_words()}")


def run_load(job: Job, cores: Sequence[int] = (LOAD_CORE,)) -> Outcome:
    """One window of load.

    Raises:
        BenchError: the load generator could not do it.
    """
    command = [sys.executable, "-m", "tests.benchmarks.gateway.load", job.to_json()]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.sched_setaffinity(process.pid, cores)
    try:
        out, errors = process.communicate(timeout=job.warm_s + job.window_s + 60)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise BenchError(f"load generator: {errors.strip()[-500:]}")
    return Outcome.from_json(out)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ask(port: int, request: bytes) -> bytes:
    """All that comes back within the time; nothing when nobody listens."""
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(request.replace(b"\r\nHost:", b"\r\nConnection: close\r\nHost:", 1))
            while piece := connection.recv(65536):
                received += piece
                if received.endswith(b"0\r\n\r\n") or b'"total_tokens": 512}}' in received:
                    break
    except OSError:
        pass
    return received
