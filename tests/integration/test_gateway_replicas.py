"""Several replicas, of which some are broken, idle, or lack the adapter."""

from pathlib import Path

import httpx
import pytest

from tests.gateway_streams import CHAT, HASTY, drop, fail_json, half_document
from tests.gateway_stub import Peer, StubEngine, answer_fine, completion, running_gateway, stub_engine

pytestmark = pytest.mark.anyio


@pytest.fixture
def times() -> dict[str, float]:
    return HASTY


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
