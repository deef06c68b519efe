"""Bytes through the gateway, over real sockets: exact, at once, and every end told apart."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.records import Arm, StreamEnd
from tests.gateway_stub import (
    ADMIN,
    BASE,
    USAGE_CHUNK,
    Peer,
    RunningGateway,
    StubEngine,
    answer_fine,
    canary,
    completion,
    delta,
    running_gateway,
    sse,
    stub_engine,
)

pytestmark = pytest.mark.anyio
CHAT: dict[str, Any] = {"model": "support", "messages": [{"role": "user", "content": "你好"}]}
STREAM = CHAT | {"stream": True}
WITH_USAGE = STREAM | {"stream_options": {"include_usage": True}}


@pytest.fixture
async def gateway(engine: StubEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    times = {"connect_timeout_s": 1.0, "first_token_timeout_s": 1.5, "between_tokens_timeout_s": 0.3}
    async with running_gateway(tmp_path, engine.url, **times) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, headers=gateway.auth, timeout=10) as http:
        yield http


async def read_all(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[bytes, bool]:
    """The answer's bytes, and whether it ended properly."""
    received = b""
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        try:
            async for piece in response.aiter_raw():
                received += piece
        except httpx.RemoteProtocolError:
            return received, False
    return received, True


def playing(*pieces: bytes) -> Callable[[Peer], Awaitable[None]]:
    async def script(peer: Peer) -> None:
        await peer.stream(*pieces)

    return script


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


async def cut_in_stream(peer: Peer) -> None:
    await peer.start()
    await peer.chunk(sse(delta("half"), done=False))
    peer.cut()


async def hang_in_stream(peer: Peer) -> None:
    await peer.start()
    await peer.chunk(sse(delta("half"), done=False))
    await peer.hung_up()


async def talk_nonsense(peer: Peer) -> None:
    await peer.start()
    await peer.chunk(sse(delta("half"), done=False))
    peer.writer.write(b"this is no chunk\r\n")
    await peer.hung_up()


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


async def refuse_json(peer: Peer) -> None:
    await peer.json({"error": {"message": "too long", "code": 400}}, status=400)


async def fail_json(peer: Peer) -> None:
    await peer.json({"error": {"message": "boom"}}, status=502)


async def drop(peer: Peer) -> None:
    peer.cut()


async def hang(peer: Peer) -> None:
    await peer.hung_up()


async def half_document(peer: Peer) -> None:
    peer.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n")
    await peer.writer.drain()
    peer.cut()


async def no_http(peer: Peer) -> None:
    peer.writer.write(b"SSH-2.0-OpenSSH\r\n")
    await peer.hung_up()


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


async def lacks_the_adapter(peer: Peer) -> None:
    await peer.json({"error": {"message": "The model does not exist.", "code": 404}}, 404)


async def test_a_broken_replica_is_replaced_before_the_first_byte(tmp_path: Path) -> None:
    for broken in (drop, fail_json, half_document):
        async with stub_engine(broken) as bad, stub_engine(answer_fine) as good:
            folder = tmp_path / broken.__name__
            folder.mkdir()
            async with running_gateway(folder, bad.url, good.url) as gateway, httpx.AsyncClient() as client:
                for number in range(6):
                    headers = gateway.auth | {"x-session-id": f"s{number}"}
                    response = await client.post(gateway.url + "/v1/chat/completions", json=CHAT, headers=headers)
                    assert response.status_code == 200
                assert bad.seen
                assert len(good.seen) == 6
                metrics = (await client.get(gateway.url + "/metrics")).text
                assert f"tuneloop_retries_total {len(bad.seen)}" in metrics


async def test_retries_are_rationed(tmp_path: Path) -> None:
    async with (
        stub_engine(drop) as one,
        stub_engine(drop) as two,
        running_gateway(tmp_path, one.url, two.url) as gateway,
        httpx.AsyncClient() as client,
    ):
        for _ in range(30):
            response = await client.post(gateway.url + "/v1/chat/completions", json=CHAT, headers=gateway.auth)
            assert response.status_code == 502
        assert len(one.seen) + len(two.seen) <= 30 + 10 + 3 + 1


async def test_engines_that_do_no_work_are_passed_over_for_as_long_as_nobody_takes_them_out(tmp_path: Path) -> None:
    """Two of three were killed, and one of these is back without its adapters; the controller is down as well."""

    async with (
        stub_engine(lacks_the_adapter) as empty,
        stub_engine(answer_fine) as good,
        running_gateway(tmp_path, "http://127.0.0.1:1", empty.url, good.url) as gateway,
        httpx.AsyncClient(headers=gateway.auth) as client,
    ):
        url = gateway.url + "/v1/chat/completions"
        answers = [await client.post(url, json=CHAT, headers={"x-session-id": f"s{n}"}) for n in range(60)]
        assert {answer.status_code for answer in answers} == {200}
        assert empty.seen


async def test_an_adapter_that_no_engine_holds_is_a_503_that_clients_repeat(
    engine: StubEngine, client: httpx.AsyncClient
) -> None:
    engine.script = lacks_the_adapter
    answer = await client.post("/v1/chat/completions", json=CHAT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_replica")


async def test_a_connection_that_the_engine_closed_while_idle_is_no_failure(
    engine: StubEngine, client: httpx.AsyncClient
) -> None:
    served = 0

    async def script(peer: Peer) -> None:
        nonlocal served
        served += 1
        if served % 2:
            await peer.json(completion())
        else:
            peer.cut()  # as if the keep-alive time had run out just now

    engine.script = script
    for _ in range(4):
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200


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


# the official client


def openai_client(gateway: RunningGateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=gateway.key, max_retries=0, timeout=10)


async def test_the_official_client_async(engine: StubEngine, gateway: RunningGateway) -> None:
    async with openai_client(gateway) as client:
        messages: Any = CHAT["messages"]
        answer = await client.chat.completions.with_raw_response.create(model="support", messages=messages)
        assert answer.parse().choices[0].message.content == "fine"
        assert answer.headers["x-interaction-id"]
        text = ""
        async for chunk in await client.chat.completions.create(model="support", messages=messages, stream=True):
            assert chunk.choices
            text += chunk.choices[0].delta.content or ""
        assert text == "fine"
        options: Any = {"include_usage": True}
        stream = await client.chat.completions.create(
            model="support", messages=messages, stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].usage is not None
        assert [model.id async for model in client.models.list()] == ["support"]


async def test_the_official_client_sync_with_tools(engine: StubEngine, gateway: RunningGateway) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "find", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": '{"order": 77}'}}
    engine.script = playing(
        sse(delta(None, role="assistant", tool_calls=[call]), done=False),
        sse(delta(None, tool_calls=[rest]), delta(finish="tool_calls"), USAGE_CHUNK),
    )
    tools: Any = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]

    def talk() -> str:
        with openai.OpenAI(base_url=gateway.url + "/v1", api_key=gateway.key, timeout=10) as client:
            messages: Any = CHAT["messages"]
            stream = client.chat.completions.create(model="support", messages=messages, tools=tools, stream=True)
            parts = [chunk.choices[0].delta.tool_calls for chunk in stream]
            return "".join(part[0].function.arguments or "" for part in parts if part and part[0].function)

    assert await asyncio.to_thread(talk) == '{"order": 77}'
    (logged,) = await gateway.logged()
    assert logged.request["tools"] == tools
    calls: Any = logged.choices[0].message["tool_calls"]
    assert calls[0]["function"] == {"name": "find", "arguments": '{"order": 77}'}


async def test_the_official_client_sees_errors_and_time_outs(engine: StubEngine, gateway: RunningGateway) -> None:
    async with openai_client(gateway) as client:
        messages: Any = CHAT["messages"]
        with pytest.raises(openai.NotFoundError, match="sales"):
            await client.chat.completions.create(model="sales", messages=messages)
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="tk-x").chat.completions.create(model="support", messages=messages)
        engine.script = refuse_json
        with pytest.raises(openai.BadRequestError, match="too long"):
            await client.chat.completions.create(model="support", messages=messages)
        engine.script = hang
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="support", messages=messages, timeout=0.1)
        engine.script = cut_in_stream
        stream = await client.chat.completions.create(model="support", messages=messages, stream=True)
        with pytest.raises((openai.APIError, httpx.RemoteProtocolError)):
            async for _ in stream:
                pass


async def test_a_candidate_and_its_arm_are_dispatched_and_logged(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    await client.put(gateway.admin_url + "/admin/routes", content=canary(engine.url).model_dump_json(), headers=ADMIN)
    for number in range(20):
        await client.post("/v1/chat/completions", json=CHAT, headers={"x-user-id": f"u{number}"})
    logged = await gateway.logged(20)
    sent = [peer.body["model"] for peer in engine.seen]
    assert {(one.arm, one.model_version) for one in logged} == {
        (Arm.CANDIDATE, "support-v2-abcdef01"),
        (Arm.CONTROL, BASE),
    }
    assert sorted(sent) == sorted(one.model_version for one in logged)
    assert all((one.share, one.rollout_salt) == (0.5, "r1") for one in logged)
