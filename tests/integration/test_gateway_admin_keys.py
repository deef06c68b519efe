"""API keys with the scope `admin` open the admin API's port, and nothing that their businesses do not."""

import asyncio

import httpx
import pytest

from pipeline.gateway.auth import create_key, revoke_key
from tests.gateway_stub import (
    NOW,
    RunningGateway,
    StubEngine,
    canary,
)

pytestmark = pytest.mark.anyio
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


async def known(client: httpx.AsyncClient, url: str, status: int) -> None:
    """Wait until a gateway has heard of a change of the keys."""
    async with asyncio.timeout(10):
        while (await client.get(url)).status_code != status:
            await asyncio.sleep(0.05)


async def test_an_admin_key_reads_and_steers_until_it_is_revoked(engine: StubEngine, gateway: RunningGateway) -> None:
    key = create_key(gateway.database, "ops", [], NOW, admin=True)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=10) as client:
        routes = gateway.admin_url + "/admin/routes"
        await known(client, routes, 200)
        assert (await client.put(routes, content=canary(engine.url).model_dump_json())).status_code == 200
        rolled = await client.post(gateway.admin_url + "/admin/rollback", json={"business": "support"})
        assert rolled.json()["business"] == "support"
        for path in ("/admin/arms?business=support", "/admin/trips"):
            assert (await client.get(gateway.admin_url + path)).status_code == 200
        revoke_key(gateway.database, "ops", NOW)
        await known(client, routes, 401)
        assert (await client.post(gateway.admin_url + "/admin/rollback", json={"business": "sales"})).status_code == 401


async def test_an_admin_key_without_businesses_is_for_the_admin_port_only(
    engine: StubEngine, gateway: RunningGateway
) -> None:
    key = create_key(gateway.database, "ops", [], NOW, admin=True)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=10) as client:
        await known(client, gateway.url + "/v1/models", 403)
        for path, body in (("/v1/chat/completions", CHAT), ("/v1/feedback", {}), ("/v1/feedback-links", {})):
            answer = await client.post(gateway.url + path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_business")
    assert engine.seen == []


async def test_an_admin_key_with_a_business_does_both(gateway: RunningGateway) -> None:
    key = create_key(gateway.database, "both", ["sales"], NOW, admin=True)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=10) as client:
        await known(client, gateway.admin_url + "/admin/routes", 200)
        assert (await client.post(gateway.url + "/v1/chat/completions", json=CHAT)).status_code == 200
        other = await client.post(gateway.url + "/v1/chat/completions", json=CHAT | {"model": "support"})
        assert other.status_code == 404
