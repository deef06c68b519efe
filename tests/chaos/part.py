"""One process of the stack under test: started, killed without a word, stopped in its tracks, started again."""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
_START_LIMIT_S = 900.0
_BLINK_S = 0.1


class NotStarted(Exception):
    """A process does not answer: names its last words and its log."""


@dataclass
class Part:
    """A process in a group of its own, so that a kill takes its children along."""

    name: str
    command: tuple[str, ...]
    ready_url: str
    log: Path
    environment: Mapping[str, str]
    _client: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False), repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """Whether it answers 200 now."""
        try:
            return self._client.get(self.ready_url, timeout=2.0).status_code == 200
        except httpx.TransportError:
            return False

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def wait(self) -> None:
        """Return when it answers; start it again when it ended, as whatever supervises it would.

        Raises:
            NotStarted: it does not answer within a quarter of an hour: engines take that long on a busy machine.
        """
        deadline = time.monotonic() + _START_LIMIT_S
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise NotStarted(f"{self.name} does not answer at {self.ready_url}: {self._last_words()}")
            if self.has_ended():
                time.sleep(1.0)
                self.start()
            time.sleep(_BLINK_S)

    def kill(self) -> None:
        """SIGKILL to it and its children."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: its connections stand, the kernel goes on taking new ones, and nothing moves."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # it ended by itself

    def _last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1] if lines else 'it said nothing'} (log: {self.log})"


def free_ports(count: int) -> list[int]:
    """Below those that the kernel deals out to clients, so that a part that starts again finds its own free."""
    free: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 20 * count):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            free.append(port)
    return free[:count]
