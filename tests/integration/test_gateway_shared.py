"""Gateways of two hosts with one Redis: one conversation keeps its arm, one limit holds for both."""

import asyncio
from pathlib import Path

import httpx
import pytest

from pipeline.config import LimitsConfig
from tests.gateway_stub import ADMIN, RunningGateway, answer_fine, canary, running_gateway, stub_engine

pytestmark = pytest.mark.anyio


async def ask(client: httpx.AsyncClient, gateway: RunningGateway, session: str) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    headers = gateway.auth | {"x-session-id": session}
    return await client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers)


async def test_a_conversation_keeps_its_arm_on_another_host(tmp_path: Path, redis_url: str) -> None:
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path / "one", engine.url, redis_url=redis_url) as one,
        running_gateway(tmp_path / "other", engine.url, redis_url=redis_url) as other,
        httpx.AsyncClient() as client,
    ):
        sessions = [f"session-{number}" for number in range(20)]
        for gateway, share in ((one, 0.1), (other, 0.5)):  # the other host has stepped up already
            routes = canary(engine.url, share=share).model_dump(mode="json")
            await client.put(f"{gateway.admin_url}/admin/routes", json=routes, headers=ADMIN)
        first = {session: (await ask(client, one, session)).headers["x-arm"] for session in sessions}
        then = {session: (await ask(client, other, session)).headers["x-arm"] for session in sessions}
        fresh = {f"new-{number}": (await ask(client, other, f"new-{number}")).headers["x-arm"] for number in range(20)}
    assert then == first
    assert list(fresh.values()).count("candidate") > list(first.values()).count("candidate")


async def test_a_rate_holds_for_both_hosts_together(tmp_path: Path, redis_url: str) -> None:
    limits = {"support": LimitsConfig(requests_per_minute=6)}
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path / "one", engine.url, redis_url=redis_url, limits=limits) as one,
        running_gateway(tmp_path / "other", engine.url, redis_url=redis_url, limits=limits) as other,
        httpx.AsyncClient() as client,
    ):
        await asyncio.sleep(1.2)  # both have read the totals once
        answers = [(await ask(client, one, f"s{number}")).status_code for number in range(6)]
        async with asyncio.timeout(10):
            while (refused := await ask(client, other, "s")).status_code == 200:
                await asyncio.sleep(0.3)
    assert answers == [200] * 6
    assert refused.json()["error"]["code"] == "requests_per_minute"


async def test_without_its_redis_a_gateway_serves_on(tmp_path: Path) -> None:
    limits = {"support": LimitsConfig(requests_per_minute=60)}
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path, engine.url, redis_url="redis://127.0.0.1:1/0", limits=limits) as gateway,
        httpx.AsyncClient() as client,
    ):
        assert (await ask(client, gateway, "s")).status_code == 200
