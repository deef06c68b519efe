"""Every end told apart: engines that fail, cut and hang, clients that leave or read slowly."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.records import StreamEnd
from tests.gateway_streams import (
    CHAT,
    HASTY,
    STREAM,
    cut_in_stream,
    drop,
    fail_json,
    half_document,
    hang,
    hang_in_stream,
    no_http,
    playing,
    read_all,
    refuse_json,
    talk_nonsense,
)
from tests.gateway_stub import Peer, RunningGateway, StubEngine, delta, running_gateway, sse

pytestmark = pytest.mark.anyio


@pytest.fixture
def times() -> dict[str, float]:
    return HASTY


@pytest.mark.parametrize(
    ("script", "proper", "end"),
    [
        (playing(sse(delta("half"))), True, StreamEnd.ENGINE_ABORT),
        (playing(sse(delta("half"), {"error": {"message": "oom"}})), True, StreamEnd.UPSTREAM_ERROR),
        (playing(sse(delta("half"), done=False)), True, StreamEnd.UPSTREAM_CUT),
        (playing(sse(delta("half"), delta(finish="stop"), done=False)), True, StreamEnd.COMPLETE),
        (cut_in_stream, False, StreamEnd.UPSTREAM_CUT),
        (talk_nonsense, False, StreamEnd.UPSTREAM_CUT),
        (hang_in_stream, False, StreamEnd.TIMEOUT),
    ],
)
async def test_ends_of_streams_are_told_apart_and_the_client_sees_what_the_gateway_saw(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway, script: Any, proper: bool, end: StreamEnd
) -> None:
    engine.script = script
    received, ended_properly = await read_all(client, STREAM)
    assert ended_properly is proper
    assert received.startswith(sse(delta("half"), done=False))
    (logged,) = await gateway.logged()
    assert (logged.stream_end, logged.status) == (end, 200)
    assert logged.choices[0].message["content"] == "half"


@pytest.mark.parametrize(
    ("script", "status", "end"),
    [
        (refuse_json, 400, StreamEnd.UPSTREAM_ERROR),
        (fail_json, 502, StreamEnd.UPSTREAM_ERROR),
        (drop, 502, StreamEnd.UPSTREAM_ERROR),
        (half_document, 502, StreamEnd.UPSTREAM_CUT),
        (no_http, 502, StreamEnd.UPSTREAM_CUT),
        (hang, 504, StreamEnd.TIMEOUT),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_before_the_first_byte_every_failure_has_its_status(
    engine: StubEngine,
    client: httpx.AsyncClient,
    gateway: RunningGateway,
    script: Any,
    status: int,
    end: StreamEnd,
    stream: bool,
) -> None:
    engine.script = script
    response = await client.post("/v1/chat/completions", json=CHAT | {"stream": stream})
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert response.headers["x-arm"] == "stable"
    (logged,) = await gateway.logged()
    assert (logged.status, logged.stream_end, logged.choices) == (status, end, ())
    assert logged.interaction_id == response.headers["x-interaction-id"]


async def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, "http://127.0.0.1:1") as gateway, httpx.AsyncClient() as client:
        response = await client.post(gateway.url + "/v1/chat/completions", json=CHAT, headers=gateway.auth)
        assert (response.status_code, response.json()["error"]["code"]) == (502, "engine_unreachable")


async def abort_after(gateway: RunningGateway, body: dict[str, Any], wanted: bytes) -> None:
    """Send a request, read until `wanted` has come, and reset the connection."""
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.key}\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    got = b""
    try:
        while wanted not in got:
            got += await asyncio.wait_for(reader.read(65536), 5)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_the_first_token_frees_the_engine(
    engine: StubEngine, gateway: RunningGateway, stream: bool
) -> None:
    asked, freed = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        asked.set()
        await peer.hung_up()
        freed.set()

    engine.script = script
    sending = asyncio.create_task(abort_after(gateway, CHAT | {"stream": stream}, b"never comes"))
    await asyncio.wait_for(asked.wait(), 5)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await asyncio.wait_for(freed.wait(), 5)
    (logged,) = await gateway.logged()
    assert logged.stream_end is StreamEnd.CLIENT_ABORT_BEFORE_FIRST_TOKEN


@pytest.mark.parametrize(
    ("first", "end"),
    [
        (sse(delta("", role="assistant"), done=False), StreamEnd.CLIENT_ABORT_BEFORE_FIRST_TOKEN),
        (sse(delta("eins"), done=False), StreamEnd.CLIENT_ABORT),
    ],
)
async def test_a_client_that_leaves_inside_a_stream_frees_the_engine(
    engine: StubEngine, gateway: RunningGateway, first: bytes, end: StreamEnd
) -> None:
    freed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.start()
        await peer.chunk(first)
        await peer.hung_up()
        freed.set()

    engine.script = script
    await abort_after(gateway, STREAM, first)
    await asyncio.wait_for(freed.wait(), 5)
    (logged,) = await gateway.logged()
    assert logged.stream_end is end


async def test_a_slow_reader_holds_the_engine_back(engine: StubEngine, gateway: RunningGateway) -> None:
    sent = 0
    stalled = asyncio.Event()
    piece = sse(delta("x" * 60_000), done=False)

    async def script(peer: Peer) -> None:
        nonlocal sent
        peer.writer.transport.set_write_buffer_limits(high=0)
        await peer.start()
        for _ in range(2000):  # 120 MB, far more than sockets and buffers on the way hold
            peer.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            try:
                await asyncio.wait_for(peer.writer.drain(), 1.0)
            except TimeoutError:
                stalled.set()
                return
            sent += 1

    engine.script = script
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    data = json.dumps(STREAM).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.key}\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    await asyncio.wait_for(stalled.wait(), 30)
    assert sent < 500
    writer.transport.abort()
