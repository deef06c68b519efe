"""When requests are sent: again at once (closed loop), or when they are due (open loop)."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Protocol

from tests.benchmarks.gateway.client import ClientConnection

_RECONNECT_S = 0.02


@dataclass(slots=True)
class Seen:
    """What is counted. An answer counts where it ends, a latency where its request was due: counting only what both
    began and ended in the window would flatter nobody but slow gateways."""

    streams: bool
    begin_ns: int = 0
    end_ns: int = 0
    answers: int = 0
    events: int = 0
    errors: int = 0
    broken: int = 0
    whole_ns: list[int] = field(default_factory=list)
    first_ns: list[int] = field(default_factory=list)

    @property
    def in_window(self) -> bool:
        """Between `open_window` and `close_window`."""
        return self.begin_ns != 0 and self.end_ns == 0

    def open_window(self) -> None:
        """Count from now on."""
        self.begin_ns = perf_counter_ns()

    def close_window(self) -> None:
        """Count no more but the ends of what was due in the window."""
        self.end_ns = perf_counter_ns()

    def took_events(self, count: int) -> None:
        """A connection has read events."""
        if self.in_window:
            self.events += count

    def took(self, connection: ClientConnection, *, by_intended: bool) -> None:
        """A connection has read a whole answer."""
        good = connection.ok and (connection.done or not self.streams)
        if self.in_window:
            self.answers += good
            self.errors += not connection.ok
            self.broken += connection.ok and not good
        timed = self.was_due(connection.intended_ns) if by_intended else self.in_window
        if timed and good:
            self.whole_ns.append(connection.ended_ns - connection.intended_ns)
            self.first_ns.append(connection.first_ns - connection.intended_ns)

    def was_due(self, intended_ns: int) -> bool:
        """Whether a request belongs to the window."""
        return self.begin_ns != 0 and intended_ns >= self.begin_ns and (self.end_ns == 0 or intended_ns < self.end_ns)


class Loop(Protocol):
    """What `load.run` needs of either loop."""

    async def connect(self) -> None:
        """Open one more connection."""

    def start(self) -> None:
        """Begin to send."""

    async def finish(self, within_s: float) -> None:
        """Stop sending; wait for what was due in the window where that matters; hang up."""


class _Connections:
    """Connections to one port; one that ends is replaced."""

    def __init__(self, port: int, requests: Sequence[bytes], seen: Seen) -> None:
        self._port = port
        self._requests = requests
        self._next = 0
        self._ending = False
        self.seen = seen
        self.all: set[ClientConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Open one more connection."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: ClientConnection(self._answered, self._lost), "127.0.0.1", self._port
        )
        connection.on_events = self.seen.took_events
        self.all.add(connection)
        self._ready(connection)

    def hang_up(self) -> None:
        """Close everything."""
        self._ending = True
        for connection in tuple(self.all):
            connection.close()

    def send(self, connection: ClientConnection, intended_ns: int) -> None:
        """Send the next request."""
        request = self._requests[self._next]
        self._next = (self._next + 1) % len(self._requests)
        connection.send(request, intended_ns)

    def _ready(self, connection: ClientConnection) -> None:
        raise NotImplementedError

    def _answered(self, connection: ClientConnection) -> None:
        raise NotImplementedError

    def _lost(self, connection: ClientConnection) -> None:
        self.all.discard(connection)
        if self._ending:
            return
        self.seen.errors += connection.busy and (self.seen.in_window or self.seen.was_due(connection.intended_ns))
        task = asyncio.get_running_loop().create_task(self._connect_again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect_again(self) -> None:
        await asyncio.sleep(_RECONNECT_S)
        await self.connect()


class ClosedLoop(_Connections):
    """Every connection asks again as soon as it has its answer: finds out how much a gateway can do."""

    _started = False

    def start(self) -> None:
        """Begin to send."""
        self._started = True
        for connection in tuple(self.all):
            self.send(connection, perf_counter_ns())

    async def finish(self, within_s: float) -> None:
        """Hang up: an answer that was cut is in no figure."""
        self.hang_up()

    def _ready(self, connection: ClientConnection) -> None:
        if self._started:
            self.send(connection, perf_counter_ns())

    def _answered(self, connection: ClientConnection) -> None:
        self.seen.took(connection, by_intended=False)
        self.send(connection, connection.ended_ns)


class OpenLoop(_Connections):
    """Requests are due at a fixed rate; one that finds no free connection waits, and its waiting counts.

    A thread tells the time: the event loop's timers are up to 1 ms late, which is more than most gateways take.
    """

    def __init__(self, port: int, requests: Sequence[bytes], seen: Seen, rate: float) -> None:
        super().__init__(port, requests, seen)
        self._every_ns = int(1e9 / rate)
        self._due = 0
        self._begin_ns = 0
        self._stopped = False
        self._idle: deque[ClientConnection] = deque()  # used in turn, as by many clients
        self._waiting: deque[int] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._clock = threading.Thread(target=self._ring, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        asyncio.get_running_loop().add_reader(self._bell, self._send_due)
        self._begin_ns = perf_counter_ns() + self._every_ns
        self._clock.start()

    async def finish(self, within_s: float) -> None:
        """Wait for the answers that were due in the window; what is missing then is an error."""
        self._stopped = True
        deadline = perf_counter_ns() + int(within_s * 1e9)
        while (missing := self._missing()) and perf_counter_ns() < deadline:
            await asyncio.sleep(0.02)
        self.seen.errors += missing
        self.hang_up()
        await asyncio.to_thread(self._clock.join)
        asyncio.get_running_loop().remove_reader(self._bell)

    def _missing(self) -> int:
        due = [connection.intended_ns for connection in self.all if connection.busy]
        return sum(map(self.seen.was_due, (*due, *self._waiting)))

    def _ring(self) -> None:
        number = 0
        while not self._stopped:
            wait = self._begin_ns + number * self._every_ns - perf_counter_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            os.eventfd_write(self._bell, 1)
            number += 1

    def _send_due(self) -> None:
        for _ in range(os.eventfd_read(self._bell)):
            intended = self._begin_ns + self._due * self._every_ns
            self._due += 1
            if self._idle:
                self.send(self._idle.popleft(), intended)
            else:
                self._waiting.append(intended)

    def _ready(self, connection: ClientConnection) -> None:
        if self._waiting:
            self.send(connection, self._waiting.popleft())
        else:
            self._idle.append(connection)

    def _answered(self, connection: ClientConnection) -> None:
        self.seen.took(connection, by_intended=True)
        self._ready(connection)

    def _lost(self, connection: ClientConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
        super()._lost(connection)
