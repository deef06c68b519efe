"""The HTTP/1.1 client towards the engines, on llhttp (`httptools`) and asyncio protocols.

General clients cost 60 to 1,600 µs of CPU a request, this one about 10; and it hands over body bytes exactly as they
arrive. It speaks what engines speak: keep-alive, chunked, `Content-Length` or until close; no redirects, no cookies,
no compression.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from pipeline.gateway.exchange import Headers
from pipeline.gateway.steps import Signal

_HOP_BY_HOP = b"connection keep-alive proxy-authenticate te trailer transfer-encoding upgrade"
_NOT_RELAYED = frozenset((*_HOP_BY_HOP.split(), b"content-length"))
_PAUSE_BYTES = 256 * 1024
_MAX_HEADER_BYTES = 64 * 1024
_NEVER = float("inf")
_SWEEP_S = 0.25
"""How often time limits are looked at."""


class UpstreamError(Exception):
    """The engine's answer did not come, or not whole."""


class Unreachable(UpstreamError):
    """No connection, or it ended before the first byte of the answer: the same request may go to another replica."""


class NoConnection(Unreachable):
    """The request was never sent."""


class Cut(UpstreamError):
    """The connection ended, or stopped being HTTP, inside the answer."""


class Expired(UpstreamError):
    """A time limit passed."""


class Aborted(UpstreamError):
    """`Call.abort` was called."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds."""

    connect: float
    first_byte: float
    """From the request to the first byte of the answer's body."""
    between: float
    """Between two pieces of the body."""


class Engines:
    """Connections to all engines, by base URL."""

    def __init__(self, timeouts: Timeouts, *, idle_s: float = 4.0) -> None:
        self.timeouts = timeouts
        self._idle_s = idle_s  # uvicorn, which engines run on, closes an idle connection after 5 s
        self._loop = asyncio.get_running_loop()
        self._pools: dict[str, _Pool] = {}
        self._running: set[Call] = set()
        self._sweep_s = min(_SWEEP_S, timeouts.first_byte / 4, timeouts.between / 4)
        self._sweeper: asyncio.TimerHandle | None = None

    def call(self, base_url: str, method: bytes, path: bytes, headers: Headers, body: bytes) -> "Call":
        """Prepare a request; `Call.first` sends it."""
        pool = self._pools.get(base_url)
        if pool is None:
            pool = self._pools[base_url] = _Pool(base_url, self._loop, self._idle_s)
        request = b"%b %b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n\r\n%b" % (
            method,
            path,
            pool.host_header,
            headers,
            len(body),
            body,
        )
        return Call(self, pool, request)

    def watch(self, call: "Call") -> None:
        """Look after the call's time limit until it is over. One timer serves all calls, instead of one that is
        set and cancelled for each."""
        self._running.add(call)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    def over(self, call: "Call") -> None:
        """The call has ended."""
        self._running.discard(call)

    def _sweep(self) -> None:
        now = self._loop.time()
        for call in [call for call in self._running if call.deadline < now]:
            call.expire()
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep) if self._running else None

    def close(self) -> None:
        """Close idle connections; running calls go on."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for pool in self._pools.values():
            for connection in tuple(pool.idle):
                connection.transport.close()


class Call:
    """One request and its answer. `first`, then `read` until it gives `b""`."""

    deadline = _NEVER
    done = False
    """The answer is whole; what came of it may still have to be read."""
    bytes_seen = False
    """Whether anything of the answer came: from then on the request must not be sent again."""
    headed = False
    status = 0
    headers: Headers = b""
    """As the engine sent them, without those that are about the connection or the length."""
    content_type = b""
    length: int | None = None
    """Of the body, where the engine said it."""
    _connection: "_Connection | None" = None
    _error: UpstreamError | None = None
    _size = 0

    def __init__(self, engines: Engines, pool: "_Pool", data: bytes) -> None:
        self._engines = engines
        self._pool = pool
        self._timeouts = engines.timeouts
        self._data = data
        self._pieces: list[bytes] = []
        self._news = Signal()

    async def first(self) -> bytes:
        """Send the request and return the first bytes of the answer's body; `b""` when it has none.

        Raises:
            UpstreamError: one of its kinds.
        """
        while True:
            if self._error is not None:
                raise self._error
            connection = self._pool.take()
            reused = connection is not None
            if connection is None:
                connection = await asyncio.ensure_future(self._connect())
            self._connection = connection
            connection.call = self
            self.deadline = self._pool.loop.time() + self._timeouts.first_byte
            self._engines.watch(self)
            connection.transport.write(self._data)
            try:
                while (piece := self._come()) is None:
                    await self._news
                self._data = b""  # never sent again: a long answer need not hold its request
                return piece
            except Unreachable:
                if not reused:
                    raise
                self._error = None  # the engine closed an idle connection at the moment it was used: take a fresh one

    async def read(self) -> bytes:
        """The next bytes of the body, as they came; `b""` at its end.

        Raises:
            UpstreamError: one of its kinds, after all bytes that came before it.
        """
        while (piece := self._come()) is None:
            await self._news
        return piece

    async def whole(self) -> bytes:
        """Send the request and return the whole body.

        Raises:
            UpstreamError: one of its kinds.
        """
        pieces = [await self.first()]
        while pieces[-1]:
            pieces.append(await self.read())
        return b"".join(pieces)

    def _come(self) -> bytes | None:
        """What has come since the last time; None while there is nothing."""
        if not self._pieces:
            if self._error is not None:
                raise self._error
            return b"" if self.done else None
        pieces = self._pieces
        self._pieces = []
        self._size = 0
        connection = self._connection
        if connection is not None and connection.paused:
            connection.paused = False
            connection.transport.resume_reading()
            self.deadline = self._pool.loop.time() + self._timeouts.between
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def abort(self) -> None:
        """Give up: the connection is reset, so that the engine stops at once. Harmless when all is over."""
        if not self.done:
            self.fail(Aborted("given up"))

    # for the connection

    def take(self, piece: bytes) -> None:
        """A piece of the body has come."""
        self._pieces.append(piece)
        self._size += len(piece)

    def taken(self) -> None:
        """All that the network delivered at once is taken: set the next time limit, hold a fast engine back."""
        connection = self._connection
        if connection is not None and self._pieces:
            if self._size > _PAUSE_BYTES and not connection.paused:
                connection.paused = True
                connection.transport.pause_reading()
                self.deadline = _NEVER  # now it is the client who is slow
            else:
                self.deadline = self._pool.loop.time() + self._timeouts.between
        self._news.set()

    def complete(self) -> None:
        """The answer is whole. Its reader hears of it by `taken`."""
        self.done = True
        self._release()

    def fail(self, error: UpstreamError) -> None:
        """The answer will not be whole."""
        if self.done or self._error is not None:
            return
        self._error = error
        connection = self._connection
        self._release()
        if connection is not None:
            connection.call = None
            connection.transport.abort()
        self._news.set()

    async def _connect(self) -> "_Connection":
        try:
            async with asyncio.timeout(self._timeouts.connect):
                connection = await self._pool.connect()
        except TimeoutError as error:
            raise NoConnection(f"{self._pool.base_url}: no connection within {self._timeouts.connect} s") from error
        except OSError as error:
            raise NoConnection(f"{self._pool.base_url}: {error.strerror or error}") from error
        if self._error is not None:  # given up while connecting
            connection.transport.abort()
            raise self._error
        return connection

    def expire(self) -> None:
        """The time limit has passed."""
        self.fail(Expired(f"{self._pool.base_url}: no {'further' if self.headed else 'first'} byte in time"))

    def _release(self) -> None:
        self._connection = None
        self._engines.over(self)


class _Pool:
    """Connections to one engine; the one used last is used first."""

    def __init__(self, base_url: str, loop: asyncio.AbstractEventLoop, idle_s: float) -> None:
        parts = urlsplit(base_url)
        self.base_url = base_url
        self.loop = loop
        self.idle: deque[_Connection] = deque()
        self.host_header = parts.netloc.encode()
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._idle_s = idle_s

    def take(self) -> "_Connection | None":
        oldest = self.loop.time() - self._idle_s
        while self.idle and self.idle[0].idle_since < oldest:
            self.idle.popleft().transport.close()
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    async def connect(self) -> "_Connection":
        _, connection = await self.loop.create_connection(
            lambda: _Connection(self), self._host, self._port, ssl=self._ssl
        )
        return connection

    def give_back(self, connection: "_Connection") -> None:
        connection.idle_since = self.loop.time()
        self.idle.append(connection)


class _Connection(asyncio.Protocol):
    """One connection to an engine; httptools calls the `on_…` methods."""

    transport: asyncio.Transport

    def __init__(self, pool: _Pool) -> None:
        self.pool = pool
        self.call: Call | None = None
        self.paused = False
        self.idle_since = 0.0
        self.parser = httptools.HttpResponseParser(self)
        self._headers: list[bytes] = []
        self._header_bytes = 0
        self._content_type = b""
        self._length: int | None = None
        self._framed = False
        self._until_close = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        call = self.call
        if call is None:  # an engine that speaks unasked is not one to trust with the next request
            self.transport.abort()
            return
        call.bytes_seen = True
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            call.fail(Cut(f"{self.pool.base_url}: not HTTP/1.1 ({type(error).__name__})"))
            return
        if self.call is call and not call.headed:
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES:
                call.fail(Cut(f"{self.pool.base_url}: headers too large"))
                return
        call.taken()

    def connection_lost(self, exc: Exception | None) -> None:
        call, self.call = self.call, None
        if call is None:
            with contextlib.suppress(ValueError):
                self.pool.idle.remove(self)
        elif self._until_close and exc is None:
            call.complete()
            call.taken()
        elif call.bytes_seen:
            call.fail(Cut(f"{self.pool.base_url}: connection ended inside the answer"))
        else:
            call.fail(Unreachable(f"{self.pool.base_url}: connection ended before the answer"))

    def on_message_begin(self) -> None:
        self._headers = []
        self._header_bytes = 0
        self._content_type = b""
        self._length = None
        self._framed = False
        self._until_close = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name not in _NOT_RELAYED:
            self._headers += (name, b": ", value, b"\r\n")
            if name == b"content-type":
                self._content_type = value
        elif name == b"content-length":
            self._length = int(value)
            self._framed = True
        elif name == b"transfer-encoding":
            self._framed = True

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        call = self.call
        if call is None or status < 200:  # 100 and 103 come before the answer
            return
        call.status = status
        call.headers = b"".join(self._headers)
        call.content_type = self._content_type
        call.length = self._length
        call.headed = True
        self._until_close = not self._framed and status not in (204, 304)

    def on_body(self, body: bytes) -> None:
        if self.call is not None:
            self.call.take(body)

    def on_message_complete(self) -> None:
        call = self.call
        if call is None or not call.headed:
            return
        self.call = None
        if self.paused:
            self.paused = False
            self.transport.resume_reading()
        if self.parser.should_keep_alive():
            self.pool.give_back(self)
        else:
            self.transport.close()
        call.complete()
