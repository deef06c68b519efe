"""What stands in a request reaches the engine and the log as it was sent, or is refused; it never breaks the log."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway_stub import RunningGateway, StubEngine

pytestmark = pytest.mark.anyio


async def test_tool_turns_without_content_are_forwarded_and_logged_as_they_came(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    def call(name: str, arguments: str) -> list[dict[str, Any]]:
        return [{"id": name, "type": "function", "function": {"name": "q", "arguments": arguments}}]

    messages = [
        {"role": "user", "content": "查订单 77"},
        {"role": "assistant", "content": None, "tool_calls": call("c1", '{"id":77}')},
        {"role": "tool", "tool_call_id": "c1", "content": '{"s":"已发货"}'},
        {"role": "assistant", "tool_calls": call("c2", "{}")},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
    ]
    answer = await client.post("/v1/chat/completions", json={"messages": messages})
    assert answer.status_code == 200
    assert engine.seen[-1].body["messages"] == messages
    assert (await gateway.logged())[0].request["messages"] == messages


async def test_a_large_body_goes_through_and_a_larger_one_is_refused(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    text = "好" * 400_000
    body = {"messages": [{"role": "user", "content": text}]}
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    assert engine.seen[-1].body["messages"] == body["messages"]
    assert (await gateway.logged())[0].request["messages"] == body["messages"]
    refused = await client.post("/v1/chat/completions", content=b"x" * (9 * 1024 * 1024))
    assert refused.status_code == 413


async def test_half_a_surrogate_pair_is_stored_as_text(
    shared: Path, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    lines = (shared / "data/cases/encoding/D-08_lone_surrogate.jsonl").read_bytes().splitlines()
    for line in lines:
        body = b'{"messages":[{"role":"user","content":%b}]}' % line.split(b'"prompt":')[1].split(b',"answer"')[0]
        assert (await client.post("/v1/chat/completions", content=body)).status_code == 200
    contents: list[Any] = [logged.request["messages"] for logged in await gateway.logged(3)]
    assert contents[2][0]["content"] == "x\ufffdy"


async def test_a_request_that_no_reader_could_take_is_logged_without_its_content(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    deep = b'{"messages":[],"metadata":' + b"[" * 400 + b"]" * 400 + b"}"
    assert (await client.post("/v1/chat/completions", content=deep)).status_code == 200
    (logged,) = await gateway.logged()
    assert logged.request == {"unreadable": True}


async def test_half_a_surrogate_pair_in_a_comment_is_stored_and_read_again(
    shared: Path, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    asked = await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
    about = asked.headers["x-interaction-id"].encode()
    lines = (shared / "data/cases/encoding/D-08_lone_surrogate.jsonl").read_bytes().splitlines()
    for number, line in enumerate(lines):
        value = line.split(b'"answer":')[1].split(b',"rating"')[0]
        body = b'{"event_id":"e%d","interaction_id":"%b","kind":"comment","value":%b}' % (number, about, value)
        assert (await client.post("/v1/feedback", content=body)).status_code == 202
    assert sorted(str(event.value) for event in gateway.feedback()) == sorted(["好的 \ufffd", "🍸 干杯", "ok"])


async def test_a_comment_beyond_the_limit_is_refused_and_names_it(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    body = {"interaction_id": "import-1", "kind": "comment", "event_id": "e1", "user_id": "u"}
    refused = await client.post("/v1/feedback", json=body | {"value": "长" * 350_000})
    assert refused.status_code in (400, 413, 422)
    assert "20000" in refused.text.replace(",", "")
    assert gateway.feedback() == []
