"""One HTTP request of a client and the way to answer it."""

import http
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.gateway.steps import Signal

if TYPE_CHECKING:
    from pipeline.gateway.server import Connection

Headers = bytes
"""Header lines, each with its line end, so that those of many requests are made once: `b"allow: GET\\r\\n"`."""
STATUS_LINE = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}


def header_text(headers: dict[bytes, bytes], name: bytes) -> str:
    """A header's value; empty where there is none."""
    value = headers.get(name)
    return "" if value is None else value.decode("utf-8", "replace")


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


class Exchange:
    """One request and the way to answer it: `start`, `write` …, `finish`; or `respond` for all at once."""

    keep_alive = True
    old = False
    """HTTP/1.0: an answer of unknown length ends with the connection."""
    gone = False
    started = False
    chunked = False
    _on_gone: Callable[[], object] | None = None

    def __init__(
        self, connection: "Connection", method: str, url: bytes, headers: dict[bytes, bytes], body: bytes
    ) -> None:
        self._connection = connection
        self.method = method
        self.path, _, self.query = url.partition(b"?")
        """As sent, not unquoted: our paths need no quoting, and nothing else is to look like one of them."""
        self.headers = headers
        """Names in lower case; of a repeated header the last value."""
        self.body = body

    def when_gone(self, callback: Callable[[], object] | None) -> None:
        """Call back when the client leaves (at once if it has); replaces an earlier callback."""
        self._on_gone = callback
        if self.gone and callback is not None:
            callback()

    def start(self, status: int, headers: Headers, length: int | None) -> None:
        """Status and headers. They go out with the first bytes of the body, in one packet.

        Args:
            length: of the body in bytes, or None when it is not known yet.
        """
        self._connection.head = self._head(status, headers, length)

    def _head(self, status: int, headers: Headers, length: int | None) -> bytes:
        self.started = True
        status_line = STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status
        if length is not None:
            framing = b"content-length: %d\r\n" % length
        elif self.old:
            self.keep_alive = False
            framing = b""
        else:
            self.chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        if not self.keep_alive:
            framing += b"connection: close\r\n"
        return b"%b%b%b\r\n" % (status_line, headers, framing)

    def write(self, data: bytes) -> Signal | None:
        """Send a part of the body now. Returns what to wait for before the next one, when the client is slow to read.

        Raises:
            ClientGone: nobody is there to read.
        """
        connection = self._connection
        if self.gone or connection.transport.is_closing():  # a closing transport takes all, and says so only later
            raise ClientGone
        if data:
            connection.send(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)
        return connection.writable

    def finish(self, data: bytes = b"") -> None:
        """Send the last part of the body and end the answer."""
        if self.gone:
            return
        if self.chunked:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n"
        self._connection.send(data)
        self._connection.answered(self)

    def cut(self) -> None:
        """End the connection inside the answer, so that the client sees that it is not whole."""
        if not self.gone:
            self._connection.flush_and_close()

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole answer."""
        if self.gone:
            return
        head = self._head(status, headers, len(body))
        self._connection.send(head if self.method == "HEAD" else head + body)
        self._connection.answered(self)

    def lost(self) -> None:
        """The connection is gone."""
        self.gone = True
        if self._on_gone is not None:
            self._on_gone()
