"""Limits of a business over real sockets: who waits, who is refused, and that nobody else notices."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from pipeline.config import LimitsConfig
from tests.gateway_stub import Peer, RunningGateway, answer_fine, completion, running_gateway, stub_engine

pytestmark = pytest.mark.anyio

CHAT = {"messages": [{"role": "user", "content": "hello"}]}


async def ask(client: httpx.AsyncClient, gateway: RunningGateway, key: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key or gateway.key}"}
    return await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT, headers=headers)


async def test_above_its_rate_a_business_gets_429_and_another_is_served(tmp_path: Path) -> None:
    limits = {"support": LimitsConfig(requests_per_minute=2)}
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path, engine.url, limits=limits) as gateway,
        httpx.AsyncClient() as client,
    ):
        statuses = [(await ask(client, gateway)).status_code for _ in range(2)]
        refused = await ask(client, gateway)
        other = await ask(client, gateway, gateway.other_key)
        metrics = (await client.get(f"{gateway.url}/metrics")).text
    assert statuses == [200, 200]
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert refused.json()["error"]["code"] == "requests_per_minute"
    assert other.status_code == 200
    assert 'tuneloop_refused_total{business="support",code="requests_per_minute"} 1.0' in metrics
    assert len(gateway.interactions()) == 3


async def test_tokens_are_charged_when_the_engine_has_counted_them(tmp_path: Path) -> None:
    limits = {"support": LimitsConfig(tokens_per_minute=4)}  # the stub's answer counts 5
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path, engine.url, limits=limits) as gateway,
        httpx.AsyncClient() as client,
    ):
        answers = [await ask(client, gateway) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].json()["error"]["code"] == "tokens_per_minute"


async def test_above_its_concurrency_a_business_waits_alone(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def slow_for_support(peer: Peer) -> None:
        if peer.headers["x-slow"] == "yes":
            await release.wait()
        await peer.json(completion())

    async def script(peer: Peer) -> None:
        peer.headers["x-slow"] = "yes" if json.loads(peer.raw)["messages"][0]["content"] == "slow" else "no"
        await slow_for_support(peer)

    limits = {"support": LimitsConfig(concurrent=1, waiting=1)}
    async with (
        stub_engine(script) as engine,
        running_gateway(tmp_path, engine.url, limits=limits) as gateway,
        httpx.AsyncClient() as client,
    ):
        url, slow = f"{gateway.url}/v1/chat/completions", {"messages": [{"role": "user", "content": "slow"}]}
        first = asyncio.create_task(client.post(url, json=slow, headers=gateway.auth))
        while not engine.seen:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(ask(client, gateway))
        while 'tuneloop_waiting{business="support"} 1.0' not in (await client.get(f"{gateway.url}/metrics")).text:
            await asyncio.sleep(0.01)
        refused = await ask(client, gateway)
        other = await ask(client, gateway, gateway.other_key)
        waited = not second.done()
        release.set()
        answers = await asyncio.gather(first, second)
        logged = await gateway.logged(3)
    assert refused.json()["error"]["code"] == "concurrent"
    assert other.status_code == 200
    assert waited
    assert [answer.status_code for answer in answers] == [200, 200]
    assert max(one.timings.queue_ms for one in logged) > 10 * min(one.timings.queue_ms for one in logged)


async def test_who_waits_too_long_is_told_and_who_leaves_frees_his_place(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await release.wait()
        await peer.json(completion())

    limits = {"support": LimitsConfig(concurrent=1, waiting=1)}
    async with (
        stub_engine(script) as engine,
        running_gateway(tmp_path, engine.url, limits=limits, queue_timeout_s=0.3) as gateway,
        httpx.AsyncClient() as client,
    ):
        first = asyncio.create_task(ask(client, gateway))
        while not engine.seen:
            await asyncio.sleep(0.01)
        async with httpx.AsyncClient() as leaving:
            gone = asyncio.create_task(ask(leaving, gateway))
            while 'tuneloop_waiting{business="support"} 1.0' not in (await client.get(f"{gateway.url}/metrics")).text:
                await asyncio.sleep(0.01)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        while 'tuneloop_waiting{business="support"} 0.0' not in (await client.get(f"{gateway.url}/metrics")).text:
            await asyncio.sleep(0.01)
        late = await ask(client, gateway)
        release.set()
        answered = await first
        again = await ask(client, gateway)
    assert late.json()["error"]["code"] == "queue_timeout"
    assert [answered.status_code, again.status_code] == [200, 200]


async def test_feedback_counts_against_the_rate_and_is_not_taken_above_it(tmp_path: Path) -> None:
    limits = {"support": LimitsConfig(requests_per_minute=1)}
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path, engine.url, limits=limits) as gateway,
        httpx.AsyncClient(base_url=gateway.url, headers=gateway.auth) as client,
    ):
        event = {"interaction_id": "i", "kind": "thumb", "value": "up"}
        answers = [await client.post("/v1/feedback", json=event | {"event_id": name}) for name in ("e1", "e2")]
        metrics = (await client.get(f"{gateway.admin_url}/metrics")).text
    assert [answer.status_code for answer in answers] == [202, 429]
    assert [one.event_id for one in gateway.feedback()] == ["e1"]
    assert 'tuneloop_refused_total{business="support",code="requests_per_minute"} 1.0' in metrics
