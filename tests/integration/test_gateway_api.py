"""Who may do what, where requests go, and what stays when things fail."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.config import BurstConfig, ControllerConfig
from pipeline.gateway.auth import revoke_key
from pipeline.records import Arm, Route, Routes, Target
from tests.gateway_stub import (
    ADMIN,
    BASE,
    NOW,
    Peer,
    RunningGateway,
    StubEngine,
    answer_fine,
    canary,
    completion,
    running_gateway,
    stub_engine,
)

pytestmark = pytest.mark.anyio
CANDIDATE = "support-v2-abcdef01"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def gateway(engine: StubEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, engine.url, burst=BurstConfig(failures=3, within_s=60)) as running:
        yield running


async def put_routes(gateway: RunningGateway, routes: Routes) -> httpx.Response:
    async with httpx.AsyncClient(headers=ADMIN) as admin:
        return await admin.put(gateway.admin_url + "/admin/routes", content=routes.model_dump_json())


async def ask(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post("/v1/chat/completions", json=CHAT, headers=named)


# keys and tenancy


@pytest.mark.parametrize(
    "model",
    [
        "sales", BASE, CANDIDATE, "sales-v1-00000000", "support/..", "../support", "ｓupport", "suppоrt", "SUPPORT",
        "support ", "",
    ],
)  # fmt: skip
async def test_only_the_key_s_own_business_is_a_model(
    engine: StubEngine, client: httpx.AsyncClient, model: str
) -> None:
    response = await client.post("/v1/chat/completions", json=CHAT | {"model": model})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert engine.seen == []


async def test_nothing_but_the_key_and_the_body_names_the_model(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    response = await client.post(
        "/v1/chat/completions?model=sales",
        json=CHAT | {"cache_salt": "theirs"},
        headers={"x-model": "sales", "model": "sales"},
    )
    assert response.status_code == 200
    other = await client.post(
        "/v1/chat/completions", json=CHAT | {"model": "sales"}, headers={"authorization": f"Bearer {gateway.both_key}"}
    )
    assert other.status_code == 200
    first, second = (peer.body for peer in engine.seen)
    assert (first["model"], second["model"]) == (BASE, BASE)
    assert len({first["cache_salt"], second["cache_salt"], "theirs"}) == 3
    assert engine.seen[0].path == "/v1/chat/completions"
    assert engine.seen[0].headers["authorization"] == "Bearer engine-key"
    assert [logged.business for logged in await gateway.logged(2)] == ["support", "sales"]


async def test_who_has_several_businesses_must_name_one(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    both = {"authorization": f"Bearer {gateway.both_key}"}
    response = await client.post("/v1/chat/completions", json=CHAT, headers=both)
    assert response.status_code == 400
    assert "sales, support" in response.json()["error"]["message"]
    models = (await client.get("/v1/models", headers=both)).json()["data"]
    assert [model["id"] for model in models] == ["sales", "support"]


async def test_a_revoked_key_stops_working(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    name = next(iter({key.name for key in gateway.api_keys() if key.businesses == ("support",)}))
    revoke_key(gateway.database, name, NOW)
    async with asyncio.timeout(10):
        while (await client.get("/v1/models")).status_code != 401:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/feedback"])
async def test_without_a_key_nothing_is_served(engine: StubEngine, gateway: RunningGateway, path: str) -> None:
    async with httpx.AsyncClient() as client:
        for headers in ({}, {"authorization": "Bearer tk-wrong"}, ADMIN):
            assert (await client.post(gateway.url + path, json=CHAT, headers=headers)).status_code == 401
        assert (await client.get(gateway.url + path)).status_code == 405
    assert engine.seen == []


async def test_the_admin_api_has_its_own_key_and_port(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    for path in ("/admin/routes", "/admin/arms?business=support", "/admin/trips"):
        assert (await client.get(path, headers=ADMIN)).status_code == 404
        for headers in ({}, gateway.auth):
            assert (await client.get(gateway.admin_url + path, headers=headers)).status_code == 401
        assert (await client.get(gateway.admin_url + path, headers=ADMIN)).status_code == 200
    assert (await client.post(gateway.admin_url + "/v1/chat/completions", json=CHAT)).status_code == 401


# routes and arms


async def test_old_and_wrong_routes_are_refused(engine: StubEngine, gateway: RunningGateway) -> None:
    assert (await put_routes(gateway, canary(engine.url, generation=3))).status_code == 200
    assert (await put_routes(gateway, canary(engine.url, generation=3))).status_code == 200
    old = await put_routes(gateway, canary(engine.url, generation=2))
    assert (old.status_code, old.json()) == (409, {"generation": 3, "taken": False})
    foreign = Target(model="sales-v1-00000000", version=1, replicas=(engine.url,))
    bad = await put_routes(gateway, Routes(generation=9, routes=(Route(business="support", stable=foreign),)))
    assert bad.status_code == 422
    async with httpx.AsyncClient(headers=ADMIN) as admin:
        for body in (b"", b"{}", b'{"generation": 9, "routes": [{}]}'):
            assert (await admin.put(gateway.admin_url + "/admin/routes", content=body)).status_code == 422
        routes = Routes.model_validate((await admin.get(gateway.admin_url + "/admin/routes")).json())
    assert routes.generation == 3
    assert {route.business for route in routes.routes} == {"support", "sales"}


async def arms_of(client: httpx.AsyncClient, count: int, prefix: str) -> list[str]:
    return [(await ask(client, x_session_id=f"{prefix}{n}", x_user_id=f"u{n}")).headers["x-arm"] for n in range(count)]


async def test_conversations_keep_their_arm_and_rollback_is_the_exception(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    assert set(await arms_of(client, 30, "old")) == {"stable"}
    await put_routes(gateway, canary(engine.url, generation=1, share=0.2))
    assert set(await arms_of(client, 30, "old")) == {"stable"}  # they lived before the rollout
    first = await arms_of(client, 30, "new")
    assert set(first) == {"stable", "control", "candidate"}
    await put_routes(gateway, canary(engine.url, generation=2, share=0.5))
    assert await arms_of(client, 30, "new") == first
    wider = await arms_of(client, 30, "newer")
    assert "stable" not in wider
    for before, after in zip(first, wider, strict=True):
        assert before in ("stable", after)
    answer = await httpx.AsyncClient(headers=ADMIN).post(
        gateway.admin_url + "/admin/rollback", json={"business": "support"}
    )
    assert answer.json() == {"business": "support", "model": CANDIDATE}
    seen = len(engine.seen)
    assert "candidate" not in await arms_of(client, 30, "newer") + await arms_of(client, 30, "newest")
    assert all(peer.body["model"] == BASE for peer in engine.seen[seen:])


async def test_arms_routes_and_the_bar_survive_a_restart_without_a_controller(
    engine: StubEngine, tmp_path: Path
) -> None:
    async with running_gateway(tmp_path, engine.url) as gateway, httpx.AsyncClient(base_url=gateway.url) as client:
        client.headers.update(gateway.auth)
        await put_routes(gateway, canary(engine.url, generation=1, share=0.2))
        before = await arms_of(client, 20, "s")
        await put_routes(gateway, canary(engine.url, generation=2, share=0.5))
    async with running_gateway(tmp_path, engine.url) as gateway, httpx.AsyncClient(base_url=gateway.url) as client:
        client.headers.update(gateway.auth)
        assert await arms_of(client, 20, "s") == before
        listed = (await client.get(gateway.admin_url + "/admin/arms?business=support", headers=ADMIN)).json()["arms"]
        assert {arm["share"] for arm in listed} == {0.2}
        await client.post(gateway.admin_url + "/admin/rollback", json={"business": "support"}, headers=ADMIN)
    async with running_gateway(tmp_path, engine.url) as gateway, httpx.AsyncClient(base_url=gateway.url) as client:
        client.headers.update(gateway.auth)
        assert "candidate" not in await arms_of(client, 20, "s") + await arms_of(client, 20, "t")


async def test_the_logged_share_is_that_of_the_assignment(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    await ask(client, x_session_id="s")
    await put_routes(gateway, canary(engine.url, generation=1, share=0.3))
    await ask(client, x_session_id="s")
    await ask(client, x_session_id="t")
    await put_routes(gateway, canary(engine.url, generation=2, share=0.5))
    await ask(client, x_session_id="t")
    logged = await gateway.logged(4)
    assert [(one.share, one.rollout_salt) for one in logged] == [(0.0, ""), (0.0, ""), (0.3, "r1"), (0.3, "r1")]


async def test_sessions_users_and_regenerations_are_logged(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    await ask(client)
    await client.post("/v1/chat/completions", json=CHAT, headers=[("x-user-id", "李".encode())])
    await ask(client, x_session_id="s1", x_regenerates="01a-b")
    await client.post("/v1/chat/completions", json=CHAT | {"user": "李"})
    anonymous, named, session, by_body = await gateway.logged(4)
    assert (anonymous.session_known, anonymous.user_key, anonymous.regenerates) == (False, None, None)
    assert (session.session_known, session.regenerates) == (True, "01a-b")
    assert named.user_key
    assert (named.user_key, named.session, named.user_group) == (by_body.user_key, by_body.session, by_body.user_group)
    assert "user" not in by_body.request
    assert anonymous.prompt_hash == session.prompt_hash
    assert len({anonymous.session, named.session, session.session}) == 3


async def test_routes_are_polled_from_the_controller(engine: StubEngine, tmp_path: Path) -> None:
    async def controller(peer: Peer) -> None:
        assert (peer.path, peer.headers["authorization"]) == ("/routes", "Bearer admin-key")
        await peer.json(canary(engine.url, generation=7).model_dump(mode="json"))

    async with stub_engine(controller) as stub:
        port = int(stub.url.rsplit(":", 1)[1])
        async with running_gateway(tmp_path, engine.url, controller=ControllerConfig(port=port)) as gateway:
            async with asyncio.timeout(10):
                while gateway.generation() != 7:
                    await asyncio.sleep(0.02)


async def test_requests_spread_over_replicas_and_a_conversation_stays(tmp_path: Path) -> None:
    async with (
        stub_engine(answer_fine) as one,
        stub_engine(answer_fine) as two,
        running_gateway(tmp_path, one.url, two.url) as gateway,
        httpx.AsyncClient(base_url=gateway.url, headers=gateway.auth) as client,
    ):
        for number in range(20):
            await ask(client, x_session_id=f"s{number}")
        assert one.seen
        assert two.seen
        before = (len(one.seen), len(two.seen))
        for _ in range(5):
            await ask(client, x_session_id="s0")
        assert sorted((len(one.seen) - before[0], len(two.seen) - before[1])) == [0, 5]


# guard


async def failing_candidate(peer: Peer) -> None:
    if peer.body["model"] == CANDIDATE:
        await peer.json({"error": {"message": "boom"}}, status=500)
    else:
        await answer_fine(peer)


async def empty_candidate(peer: Peer) -> None:
    await peer.json(completion("" if peer.body["model"] == CANDIDATE else "fine"))


async def client_errors(peer: Peer) -> None:
    await peer.json({"error": {"message": "too long"}}, status=400)


async def trips(gateway: RunningGateway) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(headers=ADMIN) as admin:
        found: list[dict[str, Any]] = (await admin.get(gateway.admin_url + "/admin/trips")).json()["trips"]
        return found


@pytest.mark.parametrize("script", [failing_candidate, empty_candidate])
async def test_a_burst_of_hard_failures_stops_a_candidate_with_no_controller(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway, script: Any
) -> None:
    engine.script = script
    await put_routes(gateway, canary(engine.url, share=1.0))
    arms = [(await ask(client, x_session_id=f"s{number}")).headers["x-arm"] for number in range(6)]
    assert arms == ["candidate"] * 3 + ["stable"] * 3
    assert (await ask(client, x_session_id="s0")).headers["x-arm"] == "stable"
    (trip,) = await trips(gateway)
    assert (trip["business"], trip["model"], trip["failures"]) == ("support", CANDIDATE, 3)
    await put_routes(gateway, canary(engine.url, generation=2, candidate=False))
    assert await trips(gateway) == []


async def test_a_client_s_own_mistakes_stop_no_candidate(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    engine.script = client_errors
    await put_routes(gateway, canary(engine.url, share=1.0))
    for number in range(6):
        assert (await ask(client, x_session_id=f"s{number}")).headers["x-arm"] == "candidate"
    assert await trips(gateway) == []
    assert all(logged.arm is Arm.CANDIDATE for logged in await gateway.logged(6))


# feedback


async def test_feedback_is_durable_when_it_is_acknowledged(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    interaction = (await ask(client, x_user_id="u1")).headers["x-interaction-id"]
    base = {"interaction_id": interaction, "user_id": "u1"}
    events = [
        base | {"event_id": "e1", "kind": "thumb", "value": "up"},
        base | {"event_id": "e2", "kind": "edit", "value": "so"},
    ]
    response = await client.post("/v1/feedback", json=events)
    assert (response.status_code, response.json()) == (202, {"accepted": 2, "event_ids": ["e1", "e2"]})
    stored = gateway.feedback()
    assert [event.event_id for event in stored] == ["e1", "e2"]
    (logged,) = gateway.interactions()  # commits keep the order: what came before is on disk too
    assert {event.user_key for event in stored} == {logged.user_key}
    assert {event.interaction_id for event in stored} == {logged.interaction_id}


async def test_feedback_on_another_business_interaction_is_refused(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    interaction = (await ask(client)).headers["x-interaction-id"]
    event = {"event_id": "e1", "interaction_id": interaction, "kind": "thumb", "value": "up"}
    response = await client.post("/v1/feedback", json=event, headers={"authorization": f"Bearer {gateway.other_key}"})
    assert response.status_code == 403
    both = await client.post("/v1/feedback", json=event, headers={"authorization": f"Bearer {gateway.both_key}"})
    assert both.status_code == 202
    assert [stored.business for stored in gateway.feedback()] == ["support"]


async def test_a_full_disk_refuses_feedback_and_serves_chats(
    client: httpx.AsyncClient, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {"event_id": "e1", "interaction_id": "i1", "kind": "thumb", "value": "up"}

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        refused = await client.post("/v1/feedback", json=event)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_durable")
        assert (await ask(client)).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        assert "tuneloop_log_failing 1.0" in (await client.get("/metrics")).text
    assert (await client.post("/v1/feedback", json=event)).status_code == 202
    assert [stored.event_id for stored in gateway.feedback()] == ["e1"]
    assert len(await gateway.logged()) == 1
    assert (await client.get("/readyz")).status_code == 200


async def test_metrics_tell_arms_and_versions_apart(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    await put_routes(gateway, canary(engine.url, share=1.0))
    await ask(client)
    await client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    text = (await client.get("/metrics")).text
    labels = f'arm="candidate",business="support",model_version="{CANDIDATE}"'
    assert f'tuneloop_requests_total{{{labels},stream_end="complete"}} 2.0' in text
    assert f"tuneloop_completion_tokens_total{{{labels}}} 10.0" in text
    assert f"tuneloop_ttft_seconds_count{{{labels}}} 2.0" in text
    assert "tuneloop_routes_generation 1.0" in text


async def test_unknown_paths_and_methods(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v1/chat/completions/", "/v1//chat/completions", "/v1/chat%2fcompletions", "/admin/routes"):
        assert (await client.post(path, json=CHAT)).status_code == 404
    assert (await client.put("/v1/chat/completions", json=CHAT)).headers["allow"] == "POST"
    head = await client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")


async def test_legacy_completions(engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    async def script(peer: Peer) -> None:
        assert peer.path == "/v1/completions"
        await peer.json({"choices": [{"index": 0, "text": "fine", "finish_reason": "stop"}]})

    engine.script = script
    response = await client.post("/v1/completions", json={"prompt": "say", "max_tokens": 3})
    assert response.json()["choices"][0]["text"] == "fine"
    (logged,) = await gateway.logged()
    assert logged.choices[0].message == {"role": "assistant", "content": "fine"}
    assert json.loads(json.dumps(logged.request)) == {"prompt": "say", "max_tokens": 3}
