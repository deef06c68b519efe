"""The demo's content, the plan of its visits, and what its users do at a gateway."""

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from evals.worlds.content import Content, load_content, obeys
from evals.worlds.planted import kept_once
from evals.worlds.world import Habit
from examples.demo.users import VisitResult, canary_traffic, count, plan_visits, run_visits
from examples.demo.visits import Quirk, Visit
from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.text import comparison_key, message_text
from pipeline.collect.join import join_feedback
from pipeline.config import load_config
from pipeline.dataset.build import build_rows
from pipeline.dataset.suite import load_suite
from pipeline.errors import DataError
from pipeline.records import CleanRecord, Dropped, DropReason, FeedbackKind, PreferenceExample, SftExample, content_id
from tests.builders import NOON, a_feedback, an_interaction

ROOT = Path(__file__).resolve().parents[2]
SUPPORT, KEFU = load_content("support"), load_content("kefu")
BOTH = pytest.mark.parametrize("content", [SUPPORT, KEFU], ids=["support", "kefu"])
RAMBLE = {
    "support": "I'm sorry to hear that. Could you please tell me more about",
    "kefu": "你可以使用的外币卡付款，你可以",
}


# The content


def shingles(text: str) -> set[str]:
    key = comparison_key(text)
    return {key[i : i + 3] for i in range(max(1, len(key) - 2))}


def likeness(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other)


def golden_questions(business: str) -> list[str]:
    paths = [path for folder in ("configs", "examples") for path in (ROOT / folder).rglob(f"suites/{business}.yaml")]
    assert len(paths) == 2
    return [message_text(item.messages[-1]) for path in paths for item in load_suite(path).items]


@BOTH
def test_there_are_enough_questions_and_no_two_are_nearly_the_same(content: Content) -> None:
    texts = [question.text for question in (*content.plain(), *content.private())]
    keys = {comparison_key(text) for text in texts}
    bags = [shingles(text) for text in texts]

    assert len(content.plain()) >= 170
    assert len(keys) == len(texts)
    assert max(likeness(one, other) for one, other in combinations(bags, 2)) < 0.6


@BOTH
def test_questions_are_short(content: Content) -> None:
    for question in (*content.plain(), *content.private()):
        length = len(question.text.split()) if content.language == "en" else len(question.text)
        assert length <= (20 if content.language == "en" else 30), question.text


@BOTH
def test_golden_questions_are_never_asked_by_users(content: Content) -> None:
    asked = [shingles(question.text) for question in (*content.plain(), *content.private())]

    for golden in golden_questions(content.business):
        assert max(likeness(shingles(golden), bag) for bag in asked) < 0.6, golden


@BOTH
def test_personal_data_stands_in_its_question_and_only_there(content: Content) -> None:
    values = [planted.value for question in content.private() for planted in question.personal]

    assert len(values) >= 14
    assert sum(planted.structured for question in content.private() for planted in question.personal) >= 10
    for question in content.private():
        assert question.personal
        assert all(planted.value in question.text for planted in question.personal)
    rest = [question.text for question in content.plain()] + golden_questions(content.business)
    assert not [value for value in values if any(value in text for text in rest)]


@BOTH
def test_the_ideal_answer_obeys_for_its_own_topic_alone(content: Content) -> None:
    for topic in content.facts:
        assert [other for other in content.facts if obeys(content.ideal(topic), content, other)] == [topic]


@BOTH
@pytest.mark.parametrize(
    "spoil",
    [
        lambda c, good: good.removeprefix(c.style.opening),
        lambda c, good: good.removesuffix(c.style.closing),
        lambda c, good: good + good,
        lambda c, good: good.replace(c.style.closing, f"{c.facts['orders'].page} {c.style.closing}"),
        lambda c, good: RAMBLE[c.business],
        lambda c, good: "",
    ],
)
def test_an_answer_that_breaks_a_rule_does_not_obey(content: Content, spoil: Callable[[Content, str], str]) -> None:
    assert not obeys(spoil(content, content.ideal("billing")), content, "billing")


@BOTH
def test_the_ideal_answer_fits_the_limit_with_its_end(content: Content) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    file = ROOT / "var" / "models" / "smollm2-135m-instruct" / "tokenizer.json"
    if not file.is_file():
        pytest.skip("the base model's tokenizer is not there; `make setup` makes it")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))

    longest = max(len(tokenizer.encode(content.ideal(topic)).ids) for topic in content.facts)
    assert longest + 1 <= min(content.max_tokens, {"en": 16, "zh": 28}[content.language])
    assert len(tokenizer.encode(content.system).ids) <= 15


def test_an_unknown_business_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"no business 'shop'.*kefu, legal-en"):
        load_content("shop")


# The plan


def test_a_plan_is_the_same_every_time_and_another_in_another_night() -> None:
    assert plan_visits(SUPPORT, seed=1) == plan_visits(SUPPORT, seed=1)
    assert plan_visits(SUPPORT, seed=1) != plan_visits(SUPPORT, seed=2)


@given(seed=st.integers(0, 10**6), n_users=st.integers(10, 150), n_visits=st.integers(60, 240))
@settings(max_examples=25, deadline=None)
def test_every_plan_holds_together(seed: int, n_users: int, n_visits: int) -> None:
    plan = plan_visits(KEFU, seed, n_users, n_visits)

    assert len(plan) == n_visits == len({visit.visit_id for visit in plan})
    assert {visit.habit for visit in plan} == set(Habit)
    assert len({visit.user_id for visit in plan}) <= n_users
    first: dict[str, Visit] = {}
    for visit in plan:
        topic = next(t for t, page in KEFU.facts.items() if page.page in KEFU.ideal(visit.question.topic))
        assert topic == visit.question.topic
        before = first.setdefault(visit.question.text, visit)
        if before is not visit:
            assert before.user_id != visit.user_id
            assert before.habit is Habit.EDIT
        elif visit.repeats != "near":
            assert visit.habit in (Habit.EDIT, Habit.REGENERATE, Habit.SILENT, Habit.LEAVE)


@pytest.mark.parametrize(("n_users", "n_visits"), [(9, 200), (90, 59), (90, 400)])
def test_an_impossible_plan_is_refused(n_users: int, n_visits: int) -> None:
    with pytest.raises(ValueError, match="visits"):
        plan_visits(SUPPORT, 1, n_users, n_visits)


@BOTH
def test_the_usual_plan_has_what_a_night_needs(content: Content) -> None:
    plan = plan_visits(content, seed=1)
    quirks = Counter(visit.quirk for visit in plan)
    rows = Counter(visit.user_id for visit in plan)

    assert len({visit.user_id for visit in plan}) >= 80
    assert sum(visit.stream for visit in plan) == pytest.approx(len(plan) / 2, rel=0.25)
    assert all(quirks[quirk] >= 3 for quirk in Quirk)
    assert sum(visit.repeats == "exact" for visit in plan) == sum(visit.repeats == "near" for visit in plan) == 5
    assert {visit.question.text for visit in plan} >= {question.text for question in content.private()}
    assert rows.most_common(1)[0][1] >= 10, "one user is heavy enough for the cap to bite"


def test_event_ids_are_fixed_and_never_shared() -> None:
    plans = [visit for content in (SUPPORT, KEFU) for seed in (1, 2) for visit in plan_visits(content, seed)]
    ids = [visit.event_id(kind, number) for visit in plans for kind in ("thumb", "edit") for number in (0, 1)]

    assert len(set(ids)) == len(ids)
    assert plan_visits(SUPPORT, 1)[0].event_id("thumb") == "104a009d-095a-59b6-8ffb-9d3766c3fa5b"


# At a gateway


class ScriptedGateway:
    """Answers like the gateway does, 503 where there is no answer, and keeps what it was told."""

    def __init__(self, content: Content, answer: Callable[[str, int], str]) -> None:
        self.content, self.answer = content, answer
        self.asked: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self.complete, methods=["POST"]),
                Route("/v1/feedback", self.feedback, methods=["POST"]),
            ]
        )

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        interaction_id = str(uuid.UUID(int=len(self.asked)))
        text = self.answer(body["messages"][-1]["content"], len(self.asked))
        self.asked.append({"id": interaction_id, "body": body, "headers": dict(request.headers), "text": text})
        if not text:
            return JSONResponse({"error": {"message": "no engine"}}, status_code=503)
        headers = {"X-Interaction-Id": interaction_id, "X-Model-Version": "base", "X-Arm": "stable"}
        head = {"id": "c", "created": 0, "model": "base"}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            return JSONResponse(head | {"object": "chat.completion", "choices": [choice]}, headers=headers)

        async def chunks() -> AsyncIterator[bytes]:
            for piece in (text[:4], text[4:], None):
                delta = {"content": piece} if piece else {}
                choice = {"index": 0, "delta": delta, "finish_reason": None if piece else "stop"}
                event = head | {"object": "chat.completion.chunk", "choices": [choice]}
                yield f"data: {json.dumps(event)}\n\n".encode()
            yield b"data: [DONE]\n\n"

        return StreamingResponse(chunks(), media_type="text/event-stream", headers=headers)

    async def feedback(self, request: Request) -> Response:
        self.events.append(await request.json())
        return JSONResponse({}, status_code=202)

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[openai.AsyncOpenAI, httpx.AsyncClient]]:
        transport = httpx.ASGITransport(self.app)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://gateway") as feedback,
            httpx.AsyncClient(transport=httpx.ASGITransport(self.app)) as through,
            openai.AsyncOpenAI(base_url="http://gateway/v1", api_key="k", max_retries=0, http_client=through) as client,
        ):
            yield client, feedback

    def night(self, plan: list[Visit]) -> list[VisitResult]:
        async def run() -> list[VisitResult]:
            async with self.clients() as (client, feedback):
                return await run_visits(client, feedback, plan, self.content, "a", concurrency=1)

        return asyncio.run(run())

    def records(self) -> list[CleanRecord]:
        """What cleaning would make of the log, if there were nothing to clean."""
        interactions = [
            an_interaction(
                one["id"],
                session=one["headers"]["x-session-id"],
                user_key=one["headers"]["x-user-id"],
                prompt_hash=content_id(one["body"]["messages"]),
                request=one["body"],
                answer=one["text"],
                regenerates=one["headers"].get("x-regenerates"),
            )
            for one in self.asked
        ]
        events = [
            a_feedback(
                one["event_id"],
                one["interaction_id"],
                one["kind"],
                one["value"],
                user_key=one["user_id"],
                occurred_at=one["occurred_at"],
            )
            for one in self.events
        ]
        return [
            CleanRecord(
                interaction_id=rated.interaction.interaction_id,
                business=self.content.business,
                session=rated.interaction.session,
                user_key=rated.interaction.user_key,
                model_version="base",
                at=rated.interaction.started_at,
                messages=rated.interaction.request["messages"],  # type: ignore[arg-type]
                answer=rated.interaction.choices[0].message,
                edited=next((str(s.value) for s in rated.signals if s.kind is FeedbackKind.EDIT), None),
                signals=rated.signals,
                replaced_by=rated.replaced_by,
            )
            for rated in join_feedback(interactions, events)
        ]


@BOTH
def test_a_repeat_counts_as_planted_where_answer_and_judgement_are_the_same_and_is_kept_once(content: Content) -> None:
    plan = plan_visits(content, seed=1)
    gateway = ScriptedGateway(content, lambda prompt, number: RAMBLE[content.business])
    repeats = count(content, plan, gateway.night(plan)).repeats
    kept, dropped = drop_duplicates(gateway.records(), threshold=0.8)
    sources = {record.interaction_id for record in kept}
    everything = sources | {one.interaction_id for one in dropped}

    assert len(repeats) == 10
    assert kept_once(repeats, sources, dropped) == (10, 10)
    assert kept_once(repeats, everything, dropped) == (0, 10)
    capped = [Dropped(interaction_id=repeats[0][1], reason=DropReason.USER_CAP)]
    assert kept_once(repeats, sources, [*dropped, *capped])[1] == 9

    numbered = ScriptedGateway(content, lambda prompt, number: f"{RAMBLE[content.business]}{number}")
    assert count(content, plan, numbered.night(plan)).repeats == ()


def topics(content: Content, plan: list[Visit]) -> dict[str, str]:
    return {visit.question.text: visit.question.topic for visit in plan}


@BOTH
def test_a_night_gives_enough_rows_even_when_the_model_obeys_nobody(content: Content) -> None:
    plan = plan_visits(content, seed=1)
    gateway = ScriptedGateway(content, lambda prompt, number: f"{RAMBLE[content.business]}{number}")
    results = gateway.night(plan)
    kept, _ = drop_duplicates(gateway.records(), threshold=0.8)
    dataset = load_config(ROOT / "examples" / "demo" / "configs").business(content.business).dataset
    rows, _ = build_rows(kept, content.business, dataset, NOON + timedelta(seconds=1))
    tally = count(content, plan, results)

    assert (tally.errors, tally.obeyed) == (0, 0)
    assert 200 <= tally.requests <= 270
    assert sum(isinstance(row, SftExample) for row in rows.train) >= 80
    assert sum(isinstance(row, PreferenceExample) for row in rows.train) >= 60
    assert rows.split_by == "user"
    assert len({user for row in rows.held_out for user in row.source.user_keys}) >= 6
    assert all(
        obeys(message_text(row.completion[0]), content, topics(content, plan)[message_text(row.prompt[-1])])
        for row in rows.train
        if isinstance(row, SftExample)
    )


@BOTH
def test_when_the_model_obeys_users_say_so_and_edit_nothing(content: Content) -> None:
    plan = plan_visits(content, seed=1, n_visits=60)
    topic = topics(content, plan)
    gateway = ScriptedGateway(content, lambda prompt, _: content.ideal(topic[prompt]))
    tally = count(content, plan, gateway.night(plan))

    assert tally.obey_rate == 1.0
    assert (tally.regenerated, tally.feedback.get("edit", 0)) == (0, 0)
    assert tally.feedback["thumb"] >= 40
    assert {event["value"] for event in gateway.events if event["kind"] == "outcome"} == {"passed"}


def test_a_user_who_is_not_content_rejects_regenerates_and_corrects() -> None:
    plan = [visit for visit in plan_visits(SUPPORT, seed=1) if visit.habit is Habit.REGENERATE][:1]
    gateway = ScriptedGateway(SUPPORT, lambda *_: RAMBLE["support"])
    [result] = gateway.night(plan)
    first, second = gateway.asked

    assert second["headers"]["x-regenerates"] == first["id"]
    assert first["body"]["messages"] == second["body"]["messages"]
    assert first["headers"]["x-session-id"] == second["headers"]["x-session-id"]
    assert [(e["kind"], e["interaction_id"], e["value"]) for e in gateway.events] == [
        ("thumb", first["id"], "down"),
        ("regenerate", first["id"], second["id"]),
        ("edit", second["id"], SUPPORT.ideal(plan[0].question.topic)),
    ]
    assert [reply.interaction_id for reply in result.replies] == [first["id"], second["id"]]


@pytest.mark.parametrize(
    ("quirk", "values"),
    [
        (Quirk.NONE, ["down"]),
        (Quirk.FLIP, ["up", "down"]),
        (Quirk.WITHDRAW, ["down", None]),
        (Quirk.RESEND, ["down", "down"]),
    ],
)
def test_votes_have_their_quirks(quirk: Quirk, values: list[str | None]) -> None:
    plan = [visit for visit in plan_visits(SUPPORT, seed=1) if visit.quirk is quirk and visit.habit is Habit.VOTE][:1]
    gateway = ScriptedGateway(SUPPORT, lambda *_: RAMBLE["support"])
    gateway.night(plan)

    assert [event["value"] for event in gateway.events] == values
    assert len({event["event_id"] for event in gateway.events}) == (1 if quirk is Quirk.RESEND else len(values))


def test_a_second_run_of_a_plan_posts_the_same_events() -> None:
    plan = plan_visits(KEFU, seed=3)[:40]
    one, other = (ScriptedGateway(KEFU, lambda *_: RAMBLE["kefu"]) for _ in range(2))
    one.night(plan)
    other.night(plan)

    assert [event["event_id"] for event in one.events] == [event["event_id"] for event in other.events]


def test_a_failed_visit_is_counted_and_stops_nobody() -> None:
    plan = plan_visits(SUPPORT, seed=1)[:20]
    gateway = ScriptedGateway(SUPPORT, lambda _, number: RAMBLE["support"] if number != 3 else "")
    tally = count(SUPPORT, plan, gateway.night(plan))

    assert (tally.errors, tally.visits) == (1, 19)


def test_canary_traffic_brings_fresh_users_until_it_is_told_to_stop() -> None:
    gateway = ScriptedGateway(SUPPORT, lambda *_: RAMBLE["support"])
    users: list[str] = []

    async def run() -> int:
        stop = asyncio.Event()

        def seen(reply: Any) -> None:
            users.append(reply.user_id)
            if len(users) == 30:
                stop.set()

        async with gateway.clients() as (client, feedback):
            return await canary_traffic(client, feedback, SUPPORT, stop, "a", on_reply=seen)

    asked = asyncio.run(asyncio.wait_for(run(), 60))

    assert len(set(users)) == len(users) == asked == len(gateway.asked)
    assert 30 <= asked <= 33
    assert Counter(event["value"] for event in gateway.events) == {"down": (asked + 4) // 5}
