"""Copies for a version in shadow, over real sockets: users never notice them, and they go nowhere but into the log."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from evals.online import arm_evidence
from pipeline.config import BurstConfig, LimitsConfig, ShadowConfig
from pipeline.events.lake import compact
from pipeline.events.read import read_events
from pipeline.gateway.ids import Ids
from pipeline.records import Arm, Route, Routes, StreamEnd, Target
from tests.gateway_stub import (
    ADMIN,
    BASE,
    NOW,
    Peer,
    RunningGateway,
    StubEngine,
    answer_fine,
    completion,
    running_gateway,
    stub_engine,
)

pytestmark = pytest.mark.anyio

CHAT: dict[str, Any] = {"model": "support", "messages": [{"role": "user", "content": "Hi"}]}
CANDIDATE = "support-v2-abcdef01"
SHADOW = ShadowConfig(share=1.0, tokens_per_hour=10_000, max_answer_tokens=50)


@pytest.fixture
async def shadow_engine() -> AsyncIterator[StubEngine]:
    async with stub_engine(answer_fine) as stub:
        yield stub


def in_shadow(engine: StubEngine, shadow: StubEngine, *, generation: int = 1, share: float = 1.0) -> Routes:
    """Both businesses are served by the base model and have a version of their own in shadow."""
    routes = [
        Route(
            business=business,
            stable=Target(model=BASE, version=None, replicas=(engine.url,)),
            candidate=Target(model=f"{business}-v2-abcdef01", version=2, replicas=(shadow.url,)),
            salt=f"r-{business}",
            shadow=share,
        )
        for business in ("support", "sales")
    ]
    return Routes(generation=generation, routes=tuple(routes))


async def put(client: httpx.AsyncClient, gateway: RunningGateway, routes: Routes) -> None:
    response = await client.put(f"{gateway.admin_url}/admin/routes", headers=ADMIN, json=routes.model_dump(mode="json"))
    assert response.status_code == 200


async def ask(client: httpx.AsyncClient, gateway: RunningGateway, key: str | None = None, **body: Any) -> bytes:
    headers = {"authorization": f"Bearer {key or gateway.key}", "x-user-id": "ann"}
    response = await client.post(f"{gateway.url}/v1/chat/completions", headers=headers, json=CHAT | body)
    assert response.status_code == 200
    return response.content


async def counted(client: httpx.AsyncClient, gateway: RunningGateway, fate: str, number: int = 1) -> None:
    """Wait until so many copies of `support` had this fate."""
    line = f'tuneloop_shadow_copies_total{{business="support",fate="{fate}"}} {float(number)}'
    async with asyncio.timeout(10):
        while line not in (await client.get(f"{gateway.url}/metrics")).text:
            await asyncio.sleep(0.01)


async def test_a_request_is_repeated_on_the_candidate_and_recorded_beside_the_interaction(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async def other(peer: Peer) -> None:
        await peer.json(completion("another answer"))

    shadow_engine.script = other
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        streamed = await ask(
            client, gateway, stream=True, user="ann", cache_salt="mine", temperature=0.5, min_tokens=60, max_tokens=80
        )
        await counted(client, gateway, "answered")
        tokens = (await client.get(f"{gateway.admin_url}/metrics")).text
        (served,) = await gateway.logged()
    (shadow,) = gateway.shadows()
    assert b"[DONE]" in streamed
    (copied,) = shadow_engine.seen
    salt = Ids("salt").cache_salt("support")
    assert copied.body == {
        "model": CANDIDATE,
        "messages": CHAT["messages"],
        "temperature": 0.5,
        "max_tokens": 50,
        "cache_salt": salt,
    }
    assert copied.headers["authorization"] == "Bearer engine-key"
    assert (served.arm, served.model_version) == (Arm.STABLE, BASE)
    assert (shadow.interaction_id, shadow.session, shadow.user_key, shadow.rollout_salt) == (
        served.interaction_id,
        served.session,
        served.user_key,
        "r-support",
    )
    assert (shadow.model_version, shadow.status, shadow.stream_end) == (CANDIDATE, 200, StreamEnd.COMPLETE)
    assert shadow.choices[0].message["content"] == "another answer"
    assert shadow.usage is not None
    assert 'tuneloop_shadow_tokens_total{business="support"} 5.0' in tokens


async def test_a_shadow_is_no_interaction_and_no_arm_counts_it(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        await ask(client, gateway)
        await counted(client, gateway, "answered")
    (shadow,) = gateway.shadows()
    window = (shadow.started_at - timedelta(hours=1), shadow.started_at + timedelta(hours=1))
    events_dir = gateway.state_dir / "events"
    before = read_events(events_dir, "support", *window)
    assert compact(events_dir, shadow.started_at + timedelta(days=1)) == 1
    assert read_events(events_dir, "support", *window) == before
    assert [one.model_version for one in before.interactions] == [BASE]
    assert (before.unmatched_feedback, before.bad_lines) == (0, 0)
    evidence = arm_evidence(
        before.interactions, (), salt="r-support", candidate_model=CANDIDATE, since=NOW, max_ttft_ms=1.0
    )
    assert (evidence.candidate.requests, evidence.control.requests) == (0, 0)


async def test_users_have_their_answers_while_the_candidate_hangs_and_the_line_is_full(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async def hang(peer: Peer) -> None:
        await peer.hung_up()

    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        plain = await ask(client, gateway)
        shadow_engine.script = hang
        await put(client, gateway, in_shadow(engine, shadow_engine))
        answers = [await ask(client, gateway) for _ in range(40)]
        await counted(client, gateway, "queue_full", 40 - 1 - 32)  # one runs, 32 wait
        assert len(shadow_engine.seen) == 1  # and it has not ended
        assert set(answers) == {plain}
        stopping = asyncio.create_task(gateway.gateway.stop())
        while shadow_engine.open_connections:
            await asyncio.sleep(0.01)
        await stopping
    assert gateway.shadows() == []
    assert len(gateway.interactions()) == 41


async def test_a_gateway_that_stops_lets_users_finish_and_repeats_nothing_more(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    release = asyncio.Event()

    async def wait(peer: Peer) -> None:
        await release.wait()
        await answer_fine(peer)

    engine.script = wait
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        asked = asyncio.create_task(ask(client, gateway))
        while not engine.seen:
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(gateway.gateway.stop())
        await asyncio.sleep(0.05)  # it has closed what is in shadow, and waits for the answer
        release.set()
        assert b"fine" in await asked
        await stopping
    assert shadow_engine.seen == []
    assert len(gateway.interactions()) == 1


async def test_a_copy_leaves_only_after_the_users_answer_has_left(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    order: list[str] = []

    async def slow(peer: Peer) -> None:
        await peer.start()
        await peer.chunk(b"data: [")
        order.append("user half")
        await asyncio.sleep(0.05)
        order.append("user whole")
        await peer.chunk(b"DONE]\n\n")
        await peer.end()

    async def note(peer: Peer) -> None:
        order.append("shadow")
        await peer.json(completion())

    async def served(peer: Peer) -> None:
        order.append("user")
        await answer_fine(peer)

    engine.script, shadow_engine.script = served, note
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        for number in range(1, 4):
            await ask(client, gateway, stream=True)
            await counted(client, gateway, "answered", number)
        engine.script = slow  # without an answer there is nothing to compare with
        await ask(client, gateway, stream=True)
    assert order == ["user", "shadow"] * 3 + ["user half", "user whole"]


async def test_each_business_has_its_own_candidate_cache_and_line(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async def hang_for_support(peer: Peer) -> None:
        if peer.body["model"] == CANDIDATE:
            await peer.hung_up()
        await peer.json(completion())

    shadow_engine.script = hang_for_support
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW, "sales": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        await ask(client, gateway)
        await ask(client, gateway, gateway.other_key, model="sales", messages=[{"role": "user", "content": "Sell"}])
        async with asyncio.timeout(10):
            while not gateway.shadows():
                await asyncio.sleep(0.01)
    (shadow,) = gateway.shadows()
    assert (shadow.business, shadow.model_version) == ("sales", "sales-v2-abcdef01")
    bodies = {peer.body["model"]: peer.body for peer in shadow_engine.seen}
    for business, text in (("support", "Hi"), ("sales", "Sell")):
        body = bodies[f"{business}-v2-abcdef01"]
        assert body["cache_salt"] == Ids("salt").cache_salt(business)
        assert body["messages"][0]["content"] == text


async def test_nothing_is_repeated_without_a_shadow_in_the_route_or_in_the_configuration(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine, share=0.0))
        await ask(client, gateway)
        await put(client, gateway, in_shadow(engine, shadow_engine, generation=2))
        await ask(client, gateway, gateway.other_key, model="sales")
        metrics = (await client.get(f"{gateway.url}/metrics")).text
    assert shadow_engine.seen == []
    assert "tuneloop_shadow_copies_total{" not in metrics


async def test_the_budget_holds_the_longest_answer_that_may_come_and_survives_a_restart(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    tight = ShadowConfig(share=1.0, tokens_per_hour=60, max_answer_tokens=50)  # a copy: 3 and at most 50; takes 5
    for worker_starts in range(2):
        async with (
            running_gateway(tmp_path, engine.url, shadows={"support": tight}) as gateway,
            httpx.AsyncClient() as client,
        ):
            await put(client, gateway, in_shadow(engine, shadow_engine, generation=1 + worker_starts))
            if not worker_starts:
                await ask(client, gateway)
                await counted(client, gateway, "answered")
                await ask(client, gateway)  # 5 + 53 fit
                await counted(client, gateway, "answered", 2)
            await ask(client, gateway)  # 10 + 53 do not
            await counted(client, gateway, "budget")
    assert len(shadow_engine.seen) == 2


async def test_copies_give_way_to_users_and_to_limits(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    release = asyncio.Event()

    async def wait(peer: Peer) -> None:
        if peer.body["messages"][0]["content"] == "slow":
            await release.wait()
        await answer_fine(peer)

    engine.script = wait
    limits = {"support": LimitsConfig(requests_per_minute=3)}
    section: dict[str, Any] = {"shadows": {"support": SHADOW}, "limits": limits, "shadow_busy_at": 1}
    async with running_gateway(tmp_path, engine.url, **section) as gateway, httpx.AsyncClient() as client:
        await put(client, gateway, in_shadow(engine, engine))  # the same replica serves both
        slow = asyncio.create_task(ask(client, gateway, messages=[{"role": "user", "content": "slow"}]))
        while not engine.seen:
            await asyncio.sleep(0.01)
        await ask(client, gateway)
        await counted(client, gateway, "busy")
        release.set()
        await slow
        await counted(client, gateway, "answered")
        await ask(client, gateway)  # its third in this minute
        await counted(client, gateway, "limits")


async def test_a_candidate_that_fails_in_a_burst_is_barred_and_gets_no_more_copies(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async def fail(peer: Peer) -> None:
        await peer.json({"error": {"message": "out of memory"}}, status=500)

    shadow_engine.script = fail
    burst = BurstConfig(failures=2, within_s=60)
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}, burst=burst) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        for number in (1, 2):
            await ask(client, gateway)
            await counted(client, gateway, "failed", number)
        await ask(client, gateway)
        await counted(client, gateway, "barred")
        trips = (await client.get(f"{gateway.admin_url}/admin/trips", headers=ADMIN)).json()["trips"]
    assert [(trip["business"], trip["model"], trip["failures"]) for trip in trips] == [("support", CANDIDATE, 2)]
    assert [(one.status, one.stream_end, one.choices) for one in gateway.shadows()] == [
        (500, StreamEnd.UPSTREAM_ERROR, ())
    ] * 2


async def test_an_engine_that_is_down_or_lacks_the_candidate_says_nothing_of_it(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async def unknown(peer: Peer) -> None:
        await peer.json({"error": {"message": f"no model {peer.body['model']}"}}, status=404)

    shadow_engine.script = unknown
    tight = ShadowConfig(share=1.0, tokens_per_hour=60, max_answer_tokens=50)  # room for one copy at a time
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": tight}) as gateway,
        httpx.AsyncClient() as client,
    ):
        down = StubEngine(answer_fine, url="http://127.0.0.1:1")
        await put(client, gateway, in_shadow(engine, shadow_engine))
        await ask(client, gateway)
        await counted(client, gateway, "away")
        await put(client, gateway, in_shadow(engine, down, generation=2))
        for number in range(2, 8):
            await ask(client, gateway)
            await counted(client, gateway, "away", number)
        trips = (await client.get(f"{gateway.admin_url}/admin/trips", headers=ADMIN)).json()["trips"]
    assert trips == []
    assert gateway.shadows() == []


async def test_what_waits_when_the_shadow_ends_is_not_sent(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    release = asyncio.Event()

    async def wait(peer: Peer) -> None:
        await release.wait()
        await peer.json(completion())

    shadow_engine.script = wait
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        await ask(client, gateway)
        await ask(client, gateway)
        while not shadow_engine.seen:
            await asyncio.sleep(0.01)
        await put(client, gateway, in_shadow(engine, shadow_engine, generation=2, share=0.0))
        release.set()
        await counted(client, gateway, "over")
    assert len(shadow_engine.seen) == 1


async def test_a_request_for_several_answers_has_no_pair(
    tmp_path: Path, engine: StubEngine, shadow_engine: StubEngine
) -> None:
    async def two(peer: Peer) -> None:
        answer = completion()
        answer["choices"].append(answer["choices"][0] | {"index": 1})
        await peer.json(answer)

    engine.script = two
    async with (
        running_gateway(tmp_path, engine.url, shadows={"support": SHADOW}) as gateway,
        httpx.AsyncClient() as client,
    ):
        await put(client, gateway, in_shadow(engine, shadow_engine))
        await ask(client, gateway, n=2)
        await counted(client, gateway, "no_pair")
    assert shadow_engine.seen == []
