"""Feedback over sockets: lists, links and look-ups, and what nobody can forge."""

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.events.lake import compact
from pipeline.gateway.auth import create_key, revoke_key
from pipeline.gateway.ids import Ids
from pipeline.gateway.links import Link, make_token
from pipeline.gateway.lookup import MOST_AT_ONCE, MOST_WAITING, Lookups
from pipeline.records import FeedbackKind
from tests.gateway_stub import (
    BASE,
    NOW,
    Peer,
    RunningGateway,
    StubEngine,
    delta,
    running_gateway,
    sse,
)

pytestmark = pytest.mark.anyio
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
IDS = Ids("salt")
UP: dict[str, Any] = {"kind": "thumb", "value": "up"}


@pytest.fixture
async def stranger(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody without a key."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=10) as http:
        yield http


def client_of(gateway: RunningGateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.url, headers=gateway.auth, timeout=10)


async def ask(client: httpx.AsyncClient, *, user: str = "u1", key: str = "", **fields: Any) -> str:
    headers = {"x-user-id": user} | ({"authorization": f"Bearer {key}"} if key else {})
    response = await client.post("/v1/chat/completions", json=CHAT | fields, headers=headers)
    return str(response.headers["x-interaction-id"])


async def link(client: httpx.AsyncClient, interaction_id: str, *kinds: str, **more: Any) -> str:
    body = {"interaction_id": interaction_id, "kinds": kinds or ("thumb",)} | more
    response = await client.post("/v1/feedback-links", json=body)
    assert response.status_code == 201, response.text
    return str(response.json()["path"])


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


# lists


async def test_a_list_is_taken_whole_or_not_at_all(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    interaction = await ask(client)
    events = [UP | {"event_id": f"e{n}", "interaction_id": interaction} for n in range(1001)]
    for bad in ([], events):
        assert code(await client.post("/v1/feedback", json=bad)) == (400, "invalid_feedback")
    with_mistakes = [*events[:500], events[0] | {"value": "UP"}, *events[500:900], {"kind": "like"}]
    refused = await client.post("/v1/feedback", json=with_mistakes)
    assert code(refused) == (400, "invalid_feedback")
    message = refused.json()["error"]["message"]
    assert "[500] value: " in message
    assert "[901] event_id: " in message
    assert "[0]" not in message
    assert gateway.feedback() == []
    taken = await client.post("/v1/feedback", json=events[:1000])
    assert (taken.status_code, taken.json()["accepted"]) == (202, 1000)
    assert [event.event_id for event in gateway.feedback()] == [f"e{n}" for n in range(1000)]


async def test_an_event_twice_in_a_list_is_counted_once(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    event = UP | {"event_id": "e1", "interaction_id": await ask(client)}
    answer = await client.post("/v1/feedback", json=[event, event | {"value": "down"}, event])
    assert answer.json() == {"accepted": 1, "event_ids": ["e1"]}
    assert [stored.value for stored in gateway.feedback()] == ["up"]
    assert 'tuneloop_feedback_total{business="support",kind="thumb"} 1.0' in (await client.get("/metrics")).text


async def test_a_list_over_businesses_needs_a_key_for_all_of_them(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    own, other = await ask(client), await ask(client, key=gateway.other_key)
    events = [UP | {"event_id": f"e{n}", "interaction_id": one} for n, one in enumerate((own, other))]
    refused = await client.post("/v1/feedback", json=events)
    assert code(refused) == (403, "not_your_interaction")
    assert "[1] interaction_id" in refused.json()["error"]["message"]
    assert gateway.feedback() == []
    both = {"authorization": f"Bearer {gateway.both_key}"}
    assert (await client.post("/v1/feedback", json=events, headers=both)).status_code == 202
    assert [event.business for event in gateway.feedback()] == ["support", "sales"]
    assert len({event.user_key for event in gateway.feedback()}) == 1  # nobody was named


@pytest.mark.parametrize(
    "forged",
    [{"received_at": "2020-01-01T00:00:00Z"}, {"user_key": "0" * 32}, {"business": "sales"}, {"business": "nobody"}],
)
async def test_the_envelope_cannot_be_forged(
    client: httpx.AsyncClient, gateway: RunningGateway, forged: dict[str, str]
) -> None:
    event = UP | {"event_id": "e1", "interaction_id": await ask(client)}
    assert (await client.post("/v1/feedback", json=event | forged)).status_code in (400, 403)
    assert gateway.feedback() == []
    before = datetime.now(UTC)
    assert (await client.post("/v1/feedback", json=event | {"business": "support", "user_id": "u1"})).status_code == 202
    (stored,) = gateway.feedback()
    assert before <= stored.received_at <= datetime.now(UTC)
    assert (stored.business, stored.user_key) == ("support", IDS.user_key("support", "u1"))


# links


async def test_a_link_takes_its_kinds_for_its_interaction_and_user_without_a_key(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    interaction = await ask(client)
    made = await client.post(
        "/v1/feedback-links",
        json={"interaction_id": interaction, "kinds": ["outcome", "thumb"], "days": 90, "user_id": "u1"},
    )
    assert made.status_code == 201
    told = made.json()
    assert set(told) == {"token", "path", "expires_at"}
    assert told["path"] == f"/v1/feedback/{told['token']}"
    assert timedelta(days=89, hours=23) < datetime.fromisoformat(told["expires_at"]) - datetime.now(UTC)
    answer = await stranger.post(told["path"], json={"kind": "outcome", "value": "passed"})
    assert answer.status_code == 202
    (stored,) = gateway.feedback()
    (logged,) = gateway.interactions()
    assert answer.json() == {"accepted": 1, "event_ids": [stored.event_id]}
    assert (stored.interaction_id, stored.business, stored.kind) == (interaction, "support", FeedbackKind.OUTCOME)
    assert stored.user_key == logged.user_key
    assert code(await stranger.post(told["path"], json={"kind": "edit", "value": "so"})) == (403, "not_of_this_link")


@pytest.mark.parametrize("named", ["interaction_id", "business", "user_id"])
async def test_who_holds_a_link_can_speak_of_nothing_else(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, gateway: RunningGateway, named: str
) -> None:
    interaction, other = await ask(client), await ask(client)
    path = await link(client, interaction, user_id="u1")
    values = {"interaction_id": other, "business": "sales", "user_id": "u2"}
    assert code(await stranger.post(path, json=UP | {named: values[named]})) == (403, "not_of_this_link")
    assert gateway.feedback() == []


async def test_a_redelivery_to_a_link_has_the_same_event_id(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient
) -> None:
    path = await link(client, await ask(client))
    answers = [(await stranger.post(path, json=body)).json()["event_ids"] for body in (UP, UP, UP | {"value": "down"})]
    assert answers[0] == answers[1] != answers[2]


async def test_a_bad_link_is_404_and_an_ended_one_410(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    interaction = await ask(client)
    path = await link(client, interaction)
    token = path.rpartition("/")[2]
    prefix = next(key.prefix for key in gateway.api_keys() if key.businesses == ("support",))
    ended = make_token(Link(interaction, "support", (FeedbackKind.THUMB,), 1, None, prefix), IDS)
    foreign = make_token(Link(interaction, "support", (FeedbackKind.THUMB,), 2**40, None, prefix), Ids("other"))
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    bent = base64.urlsafe_b64encode(raw.replace(b"thumb", b"ratin")).rstrip(b"=").decode()
    for bad in (
        "x",
        token[:-1],
        token + "A",
        token.swapcase(),
        bent,
        foreign,
        f"{token}/",
        f"{token}/x",
        "%00",
        "a" * 9000,
    ):
        answer = await stranger.post(f"/v1/feedback/{bad}", json=UP)
        assert answer.status_code == 404, bad
        assert answer.headers["access-control-allow-origin"] == "*"
    assert code(await stranger.post(f"/v1/feedback/{ended}", json=UP)) == (410, "link_expired")
    assert code(await stranger.post(path, json=[UP])) == (400, "invalid_feedback")
    assert gateway.feedback() == []
    assert (await stranger.post(path, json=UP)).status_code == 202


async def test_a_link_dies_with_the_key_that_made_it(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    path = await link(client, await ask(client))
    name = next(key.name for key in gateway.api_keys() if key.businesses == ("support",))
    create_key(gateway.database, "another", ["support"], NOW)
    revoke_key(gateway.database, name, NOW)
    async with asyncio.timeout(10):
        while (answer := await stranger.post(path, json=UP)).status_code == 202:
            await asyncio.sleep(0.05)
    assert code(answer) == (410, "link_revoked")


async def test_links_are_made_by_keys_and_for_their_own_interactions(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    other = await ask(client, key=gateway.other_key)
    body = {"interaction_id": other, "kinds": ["thumb"]}
    assert code(await client.post("/v1/feedback-links", json=body)) == (403, "not_your_interaction")
    assert code(await stranger.post("/v1/feedback-links", json=body)) == (401, "invalid_api_key")
    path = await link(client, await ask(client))
    token = {"authorization": f"Bearer {path.rpartition('/')[2]}"}
    assert (await stranger.post("/v1/feedback", json=UP, headers=token)).status_code == 401


async def test_pages_of_any_origin_may_use_a_link_and_nothing_else(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient
) -> None:
    path = await link(client, await ask(client))
    asked = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    preflight = await stranger.options(path, headers=asked | {"access-control-request-headers": "content-type"})
    assert (preflight.status_code, preflight.content) == (200, b"")
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert preflight.headers["access-control-allow-headers"] == "content-type"
    wrong = await stranger.get(path)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST, OPTIONS")
    answers = [preflight, wrong, await stranger.post(path, json=UP), await stranger.post(path, content=b"{")]
    assert [answer.status_code for answer in answers] == [200, 405, 202, 400]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers
    for other in ("/v1/feedback", "/v1/feedback-links", "/v1/models", "/v1/chat/completions"):
        answer = await client.options(other, headers=asked)
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers
        assert "access-control-allow-origin" not in (await client.post(other, json={})).headers


# look-ups


async def test_an_application_reads_its_own_interaction_and_what_was_said(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    interaction = await ask(client, temperature=0)
    other = await ask(client)
    posted = [
        UP | {"event_id": "e1", "interaction_id": interaction, "user_id": "u1", "reason": "fast"},
        UP | {"event_id": "e2", "interaction_id": other},
        UP | {"event_id": "e1", "interaction_id": interaction, "value": "down"},
    ]
    for event in posted:
        assert (await client.post("/v1/feedback", json=event)).status_code == 202
    answer = await client.get(f"/v1/interactions/{interaction}")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    (logged,) = (one for one in gateway.interactions() if one.interaction_id == interaction)
    assert told["request"] == CHAT | {"temperature": 0}
    assert told["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}
    ]
    assert {key: told[key] for key in ("interaction_id", "business", "model_version", "arm", "status")} == {
        "interaction_id": interaction, "business": "support", "model_version": BASE, "arm": "stable", "status": 200,
    }  # fmt: skip
    assert (told["stream_end"], told["finish_reasons"]) == ("complete", ["stop"])
    assert told["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}
    assert told["timings"]["total_ms"] == logged.timings.total_ms
    assert told["timings"]["gap_p50_ms"] is None
    assert datetime.fromisoformat(told["started_at"]) == logged.started_at
    (said,) = told["feedback"]
    assert {key: said[key] for key in ("event_id", "kind", "value", "choice_index", "reason")} == {
        "event_id": "e1", "kind": "thumb", "value": "up", "choice_index": 0, "reason": "fast",
    }  # fmt: skip
    (searched,) = told["feedback_searched"]
    assert datetime.fromisoformat(searched["from"]) <= logged.started_at <= datetime.fromisoformat(searched["to"])
    (hidden,) = {logged.user_key} - {None}
    for secret in (hidden, logged.session, "user_key", "session", "salt", "prompt_hash"):
        assert secret not in answer.text


async def test_a_foreign_interaction_is_not_told_from_one_that_never_was(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    own, other = await ask(client), await ask(client, key=gateway.other_key)
    await gateway.logged(2)
    answers = [
        await client.get(f"/v1/interactions/{name}")
        for name in (
            other,
            IDS.new_interaction("sales"),
            "x",
            own.upper(),
            f"{own}x",
            "%00",
            Ids("o").new_interaction("support"),
        )
    ]
    assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
    assert (await stranger.get(f"/v1/interactions/{own}")).status_code == 401
    both = {"authorization": f"Bearer {gateway.both_key}"}
    for name in (own, other):
        assert (await client.get(f"/v1/interactions/{name}", headers=both)).status_code == 200
    head = await client.head(f"/v1/interactions/{own}")
    assert (head.status_code, head.content) == (200, b"")


async def test_what_is_not_on_disk_yet_says_so(
    engine: StubEngine, client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.start()
        await peer.chunk(sse(delta("fi"), done=False))
        await release.wait()
        await peer.chunk(sse(delta("ne", finish="stop")))
        await peer.end()

    engine.script = script
    async with client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as response:
        interaction = response.headers["x-interaction-id"]
        early = await client.get(f"/v1/interactions/{interaction}")
        assert code(early) == (404, "not_recorded")
        release.set()
        await response.aread()
    await gateway.logged()
    told = (await client.get(f"/v1/interactions/{interaction}")).json()
    assert told["choices"][0]["message"]["content"] == "fine"
    assert told["usage"] is None
    assert told["timings"]["gap_max_ms"] is not None


async def test_a_compacted_interaction_is_found_with_feedback_from_lake_and_segments(
    engine: StubEngine, tmp_path: Path
) -> None:
    async with running_gateway(tmp_path, engine.url) as gateway, client_of(gateway) as client:
        interaction = await ask(client)
        first = UP | {"event_id": "e1", "interaction_id": interaction}
        assert (await client.post("/v1/feedback", json=first)).status_code == 202
    assert compact(tmp_path / "state" / "events", datetime.now(UTC) + timedelta(hours=3)) > 0
    async with running_gateway(tmp_path, engine.url, worker="w2") as gateway, client_of(gateway) as client:
        second = first | {"event_id": "e2", "value": None}
        assert (await client.post("/v1/feedback", json=second)).status_code == 202
        told = (await client.get(f"/v1/interactions/{interaction}")).json()
    assert told["request"] == CHAT
    assert [(said["event_id"], said["value"]) for said in told["feedback"]] == [("e1", "up"), ("e2", None)]


async def test_few_look_ups_run_at_once_a_bounded_number_waits_and_the_rest_is_told_to_come_again(
    client: httpx.AsyncClient, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    interaction = await ask(client)
    await gateway.logged()
    release, running, most = threading.Event(), 0, 0
    lock = threading.Lock()

    def slow(self: Lookups, business: str, name: str) -> bytes:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait(10)
        with lock:
            running -= 1
        return b"{}"

    monkeypatch.setattr(Lookups, "_find", slow)
    path = f"/v1/interactions/{interaction}"
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=gateway.url, headers=gateway.auth, timeout=20, limits=limits) as many:
        tasks = [asyncio.create_task(many.get(path)) for _ in range(MOST_AT_ONCE + MOST_WAITING + 3)]
        async with asyncio.timeout(10):
            while sum(task.done() for task in tasks) < 3:
                await asyncio.sleep(0.01)
        assert (await ask(client)) != interaction  # chats do not wait
        release.set()
        answers = await asyncio.gather(*tasks)
    assert sorted(answer.status_code for answer in answers) == [200] * (MOST_AT_ONCE + MOST_WAITING) + [503] * 3
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert (code(refused), refused.headers["retry-after"]) == ((503, "lookups_busy"), "1")
    assert most == MOST_AT_ONCE
    assert json.loads((await client.get("/healthz")).content) == {"status": "ok"}
