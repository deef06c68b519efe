"""Bytes through the gateway, over real sockets: exact, and at once."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.records import StreamEnd
from tests.gateway_streams import (
    CHAT,
    HASTY,
    STREAM,
    WITH_USAGE,
    playing,
    read_all,
)
from tests.gateway_stub import USAGE_CHUNK, Peer, RunningGateway, StubEngine, answer_fine, delta, sse

pytestmark = pytest.mark.anyio


@pytest.fixture
def times() -> dict[str, float]:
    return HASTY


@pytest.mark.parametrize(
    "name",
    [
        "D-16_usage_only_last_chunk.sse",
        "D-17_comments_keepalive.sse",
        "D-19_cut_without_finish.sse",
        "D-21_n2_interleaved.sse",
    ],
)
@pytest.mark.parametrize("crlf", [False, True])
async def test_recorded_streams_pass_byte_for_byte(
    shared: Path, engine: StubEngine, gateway: RunningGateway, client: httpx.AsyncClient, name: str, crlf: bool
) -> None:
    data = (shared / "data/cases/sse" / name).read_bytes()
    data = data.replace(b"\n", b"\r\n") if crlf else data
    engine.script = playing(*(data[start : start + 37] for start in range(0, len(data), 37)))
    assert await read_all(client, WITH_USAGE) == (data, True)
    (logged,) = await gateway.logged()
    expected = {
        "D-16": ({0: "您好，已为您查询。"}, StreamEnd.COMPLETE),
        "D-17": ({0: "好的"}, StreamEnd.COMPLETE),
        "D-19": ({0: "退款流程分三步：第一步打开"}, StreamEnd.UPSTREAM_CUT),
        "D-21": ({0: "A1A2A3", 1: "B1B2"}, StreamEnd.COMPLETE),
    }[name[:4]]
    assert ({choice.index: choice.message["content"] for choice in logged.choices}, logged.stream_end) == expected


async def test_recorded_documents_pass_byte_for_byte(
    shared: Path, engine: StubEngine, gateway: RunningGateway, client: httpx.AsyncClient
) -> None:
    wire = shared / "data/openai_wire"
    files = [wire / f"tensorzero_chat_completions_{name}.json" for name in ("example", "function_example")]
    for number, file in enumerate(files, start=1):

        async def script(peer: Peer, data: bytes = file.read_bytes()) -> None:
            await peer.raw_json(data)

        engine.script = script
        response = await client.post("/v1/chat/completions", json=CHAT)
        assert response.content == file.read_bytes()
        logged = (await gateway.logged(number))[-1]
        assert logged.choices[0].message == json.loads(file.read_bytes())["choices"][0]["message"]
    for number, line in enumerate((wire / "vllm_production_stack_batch.jsonl").read_bytes().splitlines(), start=3):
        body = json.loads(line)["body"]
        engine.script = answer_fine
        await client.post("/v1/chat/completions", json=body | {"model": "support"})
        assert engine.seen[-1].body["messages"] == body["messages"]
        assert (await gateway.logged(number))[-1].request == body | {"model": "support"}


PIECES = st.binary(min_size=1, max_size=50) | st.sampled_from([sse(delta("你好🌟")), sse(delta(finish="stop"))])


@given(st.lists(PIECES))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_bytes_come_the_client_gets_them(
    engine: StubEngine, client: httpx.AsyncClient, pieces: list[bytes]
) -> None:
    engine.script = playing(*pieces)
    for body in (WITH_USAGE, STREAM):
        assert await read_all(client, body) == (b"".join(pieces), True)


async def test_the_first_byte_is_there_before_the_last_is_sent(
    engine: StubEngine, client: httpx.AsyncClient, shared: Path, gateway: RunningGateway
) -> None:
    lines = (shared / "data/cases/sse/D-18_utf8_split.parts.jsonl").read_text().splitlines()
    parts = [bytes.fromhex(json.loads(line)["hex"]) for line in lines]
    received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.start()
        for part in parts:
            await peer.chunk(part)
            await asyncio.wait_for(received.wait(), 5)  # the client has this part before the next is sent
            received.clear()
        await peer.end()

    engine.script = script
    got = b""
    async with client.stream("POST", "/v1/chat/completions", json=STREAM) as response:
        async for piece in response.aiter_raw():
            got += piece
            received.set()
    assert got == b"".join(parts)
    assert (await gateway.logged())[0].choices[0].message["content"] == "修复方法：重启路由器🌟"


async def test_the_usage_chunk_is_hidden_from_who_did_not_ask_and_logged_for_both(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    answer = sse(delta("fine"), delta(finish="stop"), USAGE_CHUNK)
    engine.script = playing(answer)
    assert await read_all(client, WITH_USAGE) == (answer, True)
    assert await read_all(client, STREAM) == (sse(delta("fine"), delta(finish="stop")), True)
    for logged in await gateway.logged(2):
        assert logged.usage is not None
        assert (logged.usage.prompt_tokens, logged.usage.completion_tokens) == (12, 8)
    assert engine.seen[1].body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("framing", ["close", "length", "continue"])
async def test_other_framings_of_an_answer(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway, framing: str
) -> None:
    data = sse(delta("fine"), delta(finish="stop"))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"

    async def script(peer: Peer) -> None:
        if framing == "close":
            peer.writer.write(head + b"\r\n" + data)
            peer.cut()
        elif framing == "length":
            peer.writer.write(head + b"content-length: %d\r\n\r\n" % len(data) + data)
        else:
            peer.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await peer.stream(data)

    engine.script = script
    for _ in range(2):
        assert await read_all(client, STREAM) == (data, True)
    assert [logged.stream_end for logged in await gateway.logged(2)] == [StreamEnd.COMPLETE] * 2
