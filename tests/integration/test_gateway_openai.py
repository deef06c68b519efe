"""The official client through the gateway."""

import asyncio
from typing import Any

import httpx
import openai
import pytest

from pipeline.records import Arm
from tests.gateway_streams import (
    CHAT,
    HASTY,
    cut_in_stream,
    hang,
    playing,
    refuse_json,
)
from tests.gateway_stub import ADMIN, BASE, USAGE_CHUNK, RunningGateway, StubEngine, canary, delta, sse

pytestmark = pytest.mark.anyio


@pytest.fixture
def times() -> dict[str, float]:
    return HASTY


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
