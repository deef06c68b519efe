"""The controller's client against a real gateway."""

import asyncio
from pathlib import Path

import httpx
import pytest

from flows.controller.gateways import Gateways, GatewayUnavailable
from tests.gateway_stub import canary, running_gateway


def test_a_gateway_takes_newer_routes_and_says_when_it_is_ahead(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_gateway(tmp_path, "http://127.0.0.1:1") as gateway:
            client = Gateways((gateway.admin_url,), "admin-key")
            routes = canary("http://127.0.0.1:1", generation=7)
            await asyncio.to_thread(client.push, routes)
            assert gateway.generation() == 7
            await asyncio.to_thread(client.push, routes)  # the same again is no error
            with pytest.raises(GatewayUnavailable, match="409"):
                await asyncio.to_thread(client.push, routes.model_copy(update={"generation": 3}))
            assert gateway.generation() == 7

    asyncio.run(play())


def test_a_gateway_s_alarm_is_read(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_gateway(tmp_path, "http://127.0.0.1:1") as gateway:
            client = Gateways((gateway.admin_url,), "admin-key")
            assert await asyncio.to_thread(client.trips) == ()
            routes = canary("http://127.0.0.1:1", generation=1)
            await asyncio.to_thread(client.push, routes)
            candidate = routes.routes[0].candidate
            assert candidate is not None
            async with httpx.AsyncClient(headers=gateway.auth) as users:
                for number in range(60):
                    body = {"model": "support", "messages": [{"role": "user", "content": "How?"}]}
                    headers = {"X-User-Id": f"user {number}"}
                    await users.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers)
            (trip,) = await asyncio.to_thread(client.trips)
            assert (trip.business, trip.model, trip.failures) == ("support", candidate.model, 5)

    asyncio.run(play())


def test_a_wrong_key_or_a_silent_gateway_is_one_line(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_gateway(tmp_path, "http://127.0.0.1:1") as gateway:
            for client in (Gateways((gateway.admin_url,), "guess"), Gateways(("http://127.0.0.1:9",), "admin-key")):
                with pytest.raises(GatewayUnavailable) as push:
                    await asyncio.to_thread(client.push, canary("http://127.0.0.1:1"))
                with pytest.raises(GatewayUnavailable) as trips:
                    await asyncio.to_thread(client.trips)
                assert "\n" not in str(push.value) + str(trips.value)

    asyncio.run(play())
