"""The HTTP server of the data port against clients that are slow, wrong or hostile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.gateway.exchange import Exchange
from pipeline.gateway.server import Limits, Server
from tests.gateway_stub import free_socket

pytestmark = pytest.mark.anyio
LIMITS = Limits(
    header_bytes=4096, body_bytes=10_000, header_s=0.4, body_s=0.4, idle_s=0.4, stall_s=0.5, linger_s=0.2, sweep_s=0.05
)  # fmt: skip


@dataclass
class Echo:
    """A server whose handler answers with method, path and body, or as the path says."""

    port: int = 0
    server: Server | None = None
    seen: list[dict[bytes, bytes]] = field(default_factory=list)
    """Headers of every request."""
    gone: list[str] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, exchange: Exchange) -> None:
        path = exchange.path.decode("latin-1")
        exchange.when_gone(lambda: self.gone.append(path))
        self.seen.append(exchange.headers)
        if path == "/wait":
            await self.release.wait()
        elif path == "/fail":
            raise RuntimeError("planned")
        elif path == "/stream":
            exchange.start(200, b"", None)
            exchange.write(b"one")
            exchange.write(b"two")
            exchange.finish(b"three")
            return
        elif path == "/fail-late":
            exchange.start(200, b"", None)
            exchange.write(b"one")
            raise RuntimeError("planned")
        elif path == "/flood":
            exchange.start(200, b"", None)
            while True:
                slow = exchange.write(b"x" * 65536)
                if slow is not None:
                    await slow
        exchange.respond(
            200,
            b"x-query: %b\r\n" % exchange.query,
            b"%b %b %b" % (exchange.method.encode(), exchange.path, exchange.body),
        )

    async def talk(self, data: bytes) -> bytes:
        """Send bytes; read until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), 10)
        except ConnectionResetError:
            return b"reset"
        finally:
            writer.transport.abort()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    running = Echo()
    running.server = Server(running.handle, LIMITS)
    sock = free_socket()
    running.port = sock.getsockname()[1]
    await running.server.listen(sock)
    yield running
    running.release.set()
    await running.server.drain(1.0)


async def test_requests_on_one_connection_are_answered_in_order(echo: Echo) -> None:
    first = b"POST /a?q=1 HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
    second = b"POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
    third = b"GET /stream HTTP/1.1\r\n\r\n"
    last = b"GET /c HTTP/1.1\r\nconnection: close\r\n\r\n"
    answer = await echo.talk(first + second + third + last)
    places = [answer.index(part) for part in (b"POST /a abc", b"POST /b def", b"three", b"GET /c ")]
    assert places == sorted(places)
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 4
    assert b"x-query: q=1\r\n" in answer
    assert b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n" in answer


async def test_trailers_are_headers_of_no_request(echo: Echo) -> None:
    chunked = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-User-Id: someone\r\n\r\n"
    await echo.talk(chunked + b"GET /b HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert echo.seen == [{b"transfer-encoding": b"chunked"}, {b"connection": b"close"}]


async def test_many_pipelined_requests_are_all_answered(echo: Echo) -> None:
    wanted = b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(3000))
    answer = await echo.talk(wanted + b"GET /end HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 3001
    assert answer.endswith(b"GET /end ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/3.7\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 8000, 431),
        (b"GET /" + b"a" * 8000, 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 2000, 431),
        (b"POST / HTTP/1.1\r\ncontent-length: 10001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 3, 413),
        (b"GET / HTTP/1.1\r\nx:", 408),
        (b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc", 408),
    ],
)  # fmt: skip
async def test_bad_oversized_and_unfinished_requests_get_their_status_and_an_end(
    echo: Echo, data: bytes, status: int
) -> None:
    answer = await echo.talk(data)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"content-length") == 1
    assert b"connection: close" in answer


async def test_a_large_body_that_is_refused_can_still_be_sent_to_its_end(echo: Echo) -> None:
    body = b"x" * 5_000_000
    answer = await echo.talk(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_silent_and_idle_connections_are_closed(echo: Echo) -> None:
    assert await echo.talk(b"") == b""
    assert (await echo.talk(b"GET /a HTTP/1.1\r\n\r\n")).endswith(b"GET /a ")


async def test_a_header_sent_drop_by_drop_does_not_hold_a_connection(echo: Echo) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)

    async def drip() -> None:
        writer.write(b"GET / HTTP/1.1\r\nx: ")
        while True:
            writer.write(b"a")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)  # the close behind it may well be a reset
    dripping.cancel()
    writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_takes_nothing_is_let_go(echo: Echo) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", echo.port, limit=1024)
    writer.write(b"GET /flood HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(10):
        while echo.gone != ["/flood"]:
            await asyncio.sleep(0.02)
    writer.transport.abort()


async def test_a_leaving_client_is_noticed_at_once(echo: Echo) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    writer.write(b"GET /wait HTTP/1.1\r\n\r\nGET /behind HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(10):
        while not (echo.server and echo.server.active):
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while echo.gone != ["/wait"]:
            await asyncio.sleep(0.01)


async def test_a_handler_that_fails_gives_an_error_or_a_cut(echo: Echo) -> None:
    assert (await echo.talk(b"GET /fail HTTP/1.1\r\nconnection: close\r\n\r\n")).startswith(b"HTTP/1.1 500 ")
    late = await echo.talk(b"GET /fail-late HTTP/1.1\r\n\r\n")
    assert late.endswith(b"3\r\none\r\n")


async def test_old_clients_and_upgrades(echo: Echo) -> None:
    old = await echo.talk(b"GET /stream HTTP/1.0\r\n\r\n")
    assert b"chunked" not in old
    assert old.endswith(b"\r\n\r\nonetwothree")
    upgrade = await echo.talk(b"GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    assert upgrade.endswith(b"GET /a ")


async def test_expect_100_continue(echo: Echo) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    writer.write(b"POST /a HTTP/1.1\r\ncontent-length: 3\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n")
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await asyncio.wait_for(reader.read(), 5)).endswith(b"POST /a abc")
    writer.close()


async def test_drain_finishes_what_runs_and_takes_nothing_new(echo: Echo) -> None:
    assert echo.server
    running = asyncio.create_task(echo.talk(b"GET /wait HTTP/1.1\r\n\r\n"))
    async with asyncio.timeout(10):
        while not echo.server.active:
            await asyncio.sleep(0.01)
    draining = asyncio.create_task(echo.server.drain(5.0))
    await asyncio.sleep(0.05)
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", echo.port)
    echo.release.set()
    assert (await running).endswith(b"GET /wait ")
    assert await draining == 0


async def test_drain_has_an_end(echo: Echo) -> None:
    assert echo.server
    running = asyncio.create_task(echo.talk(b"GET /flood HTTP/1.1\r\n\r\n"))
    async with asyncio.timeout(10):
        while not echo.server.active:
            await asyncio.sleep(0.01)
    assert await echo.server.drain(0.1) == 1
    await running


SNIPPETS = st.sampled_from(
    [b"GET ", b"POST ", b"/", b"/a", b" HTTP/1.1\r\n", b"\r\n", b"\r\n\r\n", b"content-length: 5\r\n", b"x: y\r\n",
     b"\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n", b"5\r\nabcde\r\n", b"connection: close\r\n", b"abcde"]
)  # fmt: skip


@given(st.lists(SNIPPETS | st.binary(max_size=20), max_size=12), st.integers(1, 40))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_bytes_in_any_pieces_end_in_whole_answers(echo: Echo, snippets: list[bytes], size: int) -> None:
    data = b"".join(snippets)
    reader, writer = await asyncio.open_connection("127.0.0.1", echo.port)
    for start in range(0, len(data), size):
        writer.write(data[start : start + size])
        await asyncio.sleep(0)
    writer.write_eof()
    try:
        answer = await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        answer = b""
    finally:
        writer.transport.abort()
    assert not answer or answer.startswith(b"HTTP/1.1 ")
