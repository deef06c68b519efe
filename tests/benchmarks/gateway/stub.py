"""The stub engine, a process of its own: answers at once or at a pace, and checks nothing.

A body with `"stream": true` gets a stream with `"seed"` microseconds between its pieces (timers have the event loop's
resolution of 1 ms); everything else gets the same completion. A general HTTP server would cost more than some of the
gateways that are measured before it.
"""

import argparse
import asyncio
import gc
import re

import uvloop

from tests.benchmarks.gateway.answers import completion, stream

_COMPLETION = completion()
_STREAM = stream()
_WHOLE_STREAM = b"".join(_STREAM)
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_STREAMED = re.compile(rb'"stream":\s*true')
_PACE = re.compile(rb'"seed":\s*(\d+)')


class StubConnection(asyncio.Protocol):
    """One connection from a gateway; it never pipelines."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._held = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
        body = request_body(data)
        if body is None:
            self._held = data
            return
        self._held = b""
        self._answer(body)

    def _answer(self, body: bytes) -> None:
        if not body:
            self._transport.write(_HEALTHY)
        elif _STREAMED.search(body) is None:
            self._transport.write(_COMPLETION)
        else:
            pace = _PACE.search(body)
            every_s = int(pace[1]) / 1e6 if pace else 0.0
            if every_s:
                self._write_piece(0, every_s, self._loop.time())
            else:
                self._transport.write(_WHOLE_STREAM)

    def _write_piece(self, number: int, every_s: float, due: float) -> None:
        self._transport.write(_STREAM[number])
        number += 1
        if number < len(_STREAM):
            due += every_s  # from when it was due, so that a late timer does not slow the stream down
            self._timer = self._loop.call_at(due, self._write_piece, number, every_s, due)
        else:
            self._timer = None


def request_body(data: bytes) -> bytes | None:
    """The body of the one request in `data`, or None when it is not all there."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end].lower()
    start = head.find(b"\r\ncontent-length:")
    if start >= 0:
        stop = head.find(b"\r\n", start + 2)
        length = int(head[start + 17 : stop if stop > 0 else end])
        return data[end + 4 :] if len(data) >= end + 4 + length else None
    if b"\r\ntransfer-encoding: chunked" in head:  # a JSON document has no line end followed by "0"
        return data[end + 4 :] if data.endswith(b"0\r\n\r\n") else None
    return b""


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: StubConnection(loop), "127.0.0.1", port, backlog=4096)
    gc.freeze()
    await server.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gateway.stub")
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
