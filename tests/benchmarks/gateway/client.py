"""The load generator's side of one connection: it reads just enough of an answer to count it."""

import asyncio
from collections.abc import Callable
from time import perf_counter_ns

_CONTENT_LENGTH = b"\r\ncontent-length:"
_DONE = b"[DONE]"
_EVENT = b"data: "
_LAST_CHUNK = b"0\r\n\r\n"
_TAIL = 5
"""So many bytes of the last read are kept: one less than `_EVENT` and `_DONE` have, so that neither is found twice."""


class ClientConnection(asyncio.Protocol):
    """Sends a request, then calls `answered` with itself; `lost` when the connection ends."""

    def __init__(
        self, answered: Callable[["ClientConnection"], None], lost: Callable[["ClientConnection"], None]
    ) -> None:
        self._answered = answered
        self._lost = lost
        self._transport: asyncio.Transport
        self._held = b""
        self._left = -1
        """Bytes of the body still to come; -1 for a chunked body."""
        self._in_head = True
        self.busy = False
        self.intended_ns = 0
        """When the request was due; it may have gone out later."""
        self.first_ns = 0
        """When the first byte of the body came."""
        self.ended_ns = 0
        self.ok = False
        """Status 200."""
        self.events = 0
        self.done = False
        """[DONE] was seen."""
        self.on_events: Callable[[int], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)

    def send(self, request: bytes, intended_ns: int) -> None:
        """Send one request; the connection must not be busy."""
        self.busy = True
        self._in_head = True
        self._held = b""
        self.intended_ns = intended_ns
        self.first_ns = 0
        self.events = 0
        self.done = False
        self._transport.write(request)

    def close(self) -> None:
        """Leave, in the middle of an answer too."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            head_end = self._read_head(data)
            if head_end < 0:
                return
            data = (self._held + data)[head_end:]
            self._held = b""
        if not data and self._left != 0:
            return
        if self.first_ns == 0:
            self.first_ns = perf_counter_ns()
        if self._left >= 0:
            self._left -= len(data)
            if self._left <= 0:
                self._end()
        else:
            self._read_chunked(data)

    def _read_head(self, data: bytes) -> int:
        """Where the body starts in what was held and `data`; -1 when it is not there yet."""
        whole = self._held + data
        end = whole.find(b"\r\n\r\n")
        if end < 0:
            self._held = whole
            return -1
        self._in_head = False
        self.ok = whole[9:12] == b"200"
        head = whole[:end].lower()
        start = head.find(_CONTENT_LENGTH)
        if start < 0:
            self._left = -1
        else:
            stop = head.find(b"\r\n", start + 2)
            self._left = int(head[start + len(_CONTENT_LENGTH) : stop if stop > 0 else end])
        return end + 4

    def _read_chunked(self, data: bytes) -> None:
        whole = self._held + data
        count = whole.count(_EVENT)
        if count:
            self.events += count
            if self.on_events is not None:
                self.on_events(count)
        if _DONE in whole:
            self.done = True
        if whole.endswith(_LAST_CHUNK):
            self._end()
        else:
            self._held = whole[-_TAIL:]

    def _end(self) -> None:
        self.ended_ns = perf_counter_ns()
        self.busy = False
        self._answered(self)
