"""The HTTP/1.1 server of the data port, on llhttp (`httptools`) and asyncio protocols.

It is our own because the gateway needs three things that ASGI servers do not give: to be told at once when a client
has left, a limit on header bytes, and time limits on slow senders and slow readers. It does no TLS and no HTTP/2
(leave those to the load balancer) and it never forwards a client's framing: upstream requests are written anew.
"""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import httptools

from pipeline.gateway.exchange import STATUS_LINE, ClientGone, Exchange
from pipeline.gateway.steps import Signal, run

log = logging.getLogger(__name__)

_NEVER = float("inf")
_MOST_WAITING = 16
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may take; times in seconds."""

    header_bytes: int = 32 * 1024
    body_bytes: int = 8 * 1024 * 1024
    header_s: float = 15.0
    """From a request's first byte to the end of its headers."""
    body_s: float = 60.0
    """For the whole body."""
    idle_s: float = 75.0
    """Between two requests."""
    stall_s: float = 60.0
    """During which a client with a full buffer reads nothing."""
    linger_s: float = 2.0
    """How long a refused client may go on sending what it had begun."""
    sweep_s: float = 0.5
    """How often time limits are looked at."""


Handler = Callable[[Exchange], Coroutine[Any, Any, None]]


class Server:
    """Serves a handler on a listening socket."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.handler = handler
        self.limits = limits
        self.connections: set[Connection] = set()
        self.active = 0
        """Requests whose handler runs."""
        self._quiet = asyncio.Event()
        self.draining = False
        self.loop = asyncio.get_running_loop()
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def listen(self, sock: socket.socket) -> None:
        """Begin to accept connections."""
        self._listener = await self.loop.create_server(lambda: Connection(self), sock=sock, backlog=2048)
        self._sweeper = self.loop.create_task(self._sweep())

    async def drain(self, timeout_s: float) -> int:
        """Accept nothing more, let running answers finish, cut what is not done in time; returns how many were cut."""
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self.connections):
            connection.close_if_idle()
        await self._all_answered(timeout_s)
        cut = self.active
        for connection in tuple(self.connections):
            connection.transport.abort()
        await self._all_answered(5.0)
        if self._sweeper is not None:
            self._sweeper.cancel()
        return cut

    async def _all_answered(self, timeout_s: float) -> None:
        self._quiet.clear()
        if self.active:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), timeout_s)

    def ended(self, exchange: Exchange, _: None, error: BaseException | None) -> None:
        """A handler has ended; whatever it did, the client gets an end."""
        if error is not None and not isinstance(error, ClientGone):
            log.error("request failed: %s", exchange.method, exc_info=error)
            if exchange.started:
                exchange.cut()
            else:
                body = b'{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}'
                exchange.respond(500, b"content-type: application/json\r\n", body)
        self.active -= 1
        if self.draining and not self.active:
            self._quiet.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.limits.sweep_s)
            now = self.loop.time()
            for connection in [one for one in self.connections if one.deadline < now]:
                connection.expire()


class Connection(asyncio.Protocol):
    """One client connection; httptools calls the `on_…` methods."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = server.loop
        self.current: Exchange | None = None
        self.waiting: deque[Exchange] = deque()
        """Requests behind the current one, which were sent before its answer."""
        self._starting = False
        self._reading = True
        self.head = b""
        self.writable: Signal | None = None
        self.deadline = self.loop.time() + server.limits.header_s
        self._closing = False
        self._in_headers = True
        self._size = 0
        self._url = b""
        self._sent: dict[bytes, bytes] = {}
        """Headers as the client writes them."""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_size = 0
        self.on_header = self._sent.__setitem__  # httptools stores headers with no Python code in between
        self.parser = httptools.HttpRequestParser(self)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.server.connections.add(self)
        if self.server.draining:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        unanswered = [*self.waiting] if self.current is None else [self.current, *self.waiting]
        self.waiting.clear()
        for exchange in unanswered:
            exchange.lost()
        self.resume_writing()
        self.current = None

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._answer_no_more()  # it is answered as an ordinary request; the parser takes nothing more
        except httptools.HttpParserError:
            self.refuse(400, b"this is not an HTTP/1.1 request")
        if self.waiting:
            if len(self.waiting) >= _MOST_WAITING:  # not earlier: who does not read does not see a client leave
                self._reading = False
                self.transport.pause_reading()
            self._serve()
        elif self._in_headers:
            if self._size == 0:
                self.deadline = self.loop.time() + self.server.limits.header_s
            self._size += len(data)
            if self._size > self.server.limits.header_bytes:
                self.refuse(431, b"headers too large")

    def pause_writing(self) -> None:
        self.writable = Signal()
        self.deadline = self.loop.time() + self.server.limits.stall_s

    def resume_writing(self) -> None:
        waiter, self.writable = self.writable, None
        self.deadline = _NEVER if self.current is not None else self.loop.time() + self.server.limits.idle_s
        if waiter is not None:
            waiter.set()

    # httptools

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_headers_complete(self) -> None:
        limits = self.server.limits
        self._in_headers = False
        self._size = 0
        self._headers = headers = {name.lower(): value for name, value in self._sent.items()}
        if int(headers.get(b"content-length", b"0")) > limits.body_bytes:
            self.refuse(413, b"body too large: at most %d bytes" % limits.body_bytes)
        if self.current is None:
            self.deadline = self.loop.time() + limits.body_s
            if b"expect" in headers and headers[b"expect"].lower() == b"100-continue" and not self._closing:
                self.transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_size += len(body)
        if self._body_size > self.server.limits.body_bytes:
            self.refuse(413, b"body too large: at most %d bytes" % self.server.limits.body_bytes)

    def on_message_complete(self) -> None:
        self._in_headers = True
        if self._closing:
            return
        parser, pieces = self.parser, self._body
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        exchange = Exchange(self, parser.get_method().decode(), self._url, self._headers, body)
        exchange.old = parser.get_http_version() == "1.0"
        exchange.keep_alive = parser.should_keep_alive() and not self.server.draining
        self._url = b""
        self._sent.clear()  # now, because trailers have come behind the body
        self._body = []
        self._body_size = 0
        self.waiting.append(exchange)  # served when the parser is done with what has come

    # for Exchange and Server

    def send(self, data: bytes) -> None:
        """Write to the client, headers first if they are still due."""
        if self.head:
            data, self.head = self.head + data, b""
        if data:
            self.transport.write(data)

    def answered(self, exchange: Exchange) -> None:
        """The current answer is complete: close, go on with the next request, or wait for one."""
        self.current = None
        exchange.when_gone(None)
        if not exchange.keep_alive or self.server.draining or (self._closing and not self.waiting):
            self.flush_and_close()
        elif self.waiting:
            self._serve()
        else:
            self.deadline = self.loop.time() + self.server.limits.idle_s

    def refuse(self, status: int, message: bytes) -> None:
        """Answer a request that cannot be read, and close."""
        if self._closing:
            return
        if self._answer_no_more():
            return
        body = b'{"error":{"message":"%b","type":"invalid_request_error","param":null,"code":null}}' % message
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        # Closing now would reset the connection under a client that still sends, before it has read why.
        self.deadline = self.loop.time() + self.server.limits.linger_s

    def _answer_no_more(self) -> bool:
        """Close behind the last request that was read; returns whether there is one to answer."""
        self._closing = True
        last = self.waiting[-1] if self.waiting else self.current
        if last is not None:
            last.keep_alive = False
        return last is not None

    def expire(self) -> None:
        """A time limit has passed."""
        self.deadline = _NEVER
        if self.writable is not None or self.current is not None:
            self.transport.abort()
        elif not self._closing and (self._size or not self._in_headers):
            self.refuse(408, b"request not received in time")
        else:
            self.transport.close()

    def flush_and_close(self) -> None:
        """Send what is written, then close."""
        self._closing = True
        self.transport.close()
        self.deadline = self.loop.time() + self.server.limits.stall_s

    def close_if_idle(self) -> None:
        """For draining: nothing is asked, so nothing is lost."""
        if self.current is None and self._in_headers and self._size == 0:
            self.transport.close()

    def _serve(self) -> None:
        """Serve what waits, in order; a handler that answers at once makes room for the next."""
        if self._starting:
            return
        self._starting = True
        while self.waiting and self.current is None:
            self.current = exchange = self.waiting.popleft()
            self.deadline = _NEVER
            if not self._reading and len(self.waiting) < _MOST_WAITING:
                self._reading = True
                self.transport.resume_reading()
            self.server.active += 1
            run(self.server.handler(exchange), partial(self.server.ended, exchange))
        self._starting = False
