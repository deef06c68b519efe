"""Simulated users: they ask through the gateway with the OpenAI client and leave feedback by the planted preference.

`plan_visits` says who asks what; `run_visits` carries a plan out; `canary_traffic` keeps fresh users coming while a
rollout is on; `count` sums up what was planted. A repeated run of one plan posts the same event ids, so nothing
is counted twice; it opens new sessions (`attempt`), because the same prompt again in one session is a regeneration.
"""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import httpx
import openai
from openai.types.chat import ChatCompletionMessageParam
from pydantic import JsonValue

from evals.worlds.content import Content, Question, obeys
from evals.worlds.world import Habit
from examples.demo.tally import Reply, Tally, VisitResult, count
from examples.demo.visits import Quirk, Visit, plan_visits
from pipeline.records import Record

__all__ = [
    "CanaryReply",
    "Reaction",
    "Reply",
    "Tally",
    "User",
    "Visit",
    "VisitResult",
    "canary_traffic",
    "count",
    "plan_visits",
    "rate_every_fifth",
    "run_visits",
    "visit",
]


class CanaryReply(Record):
    """One request of the traffic behind a canary."""

    user_id: str
    reply: Reply | None
    error: str | None = None


class User:
    """One user at the gateway: asks and posts feedback."""

    def __init__(
        self, client: openai.AsyncOpenAI, feedback: httpx.AsyncClient, content: Content, user_id: str, session: str
    ) -> None:
        self.client, self.feedback, self.content = client, feedback, content
        self.user_id, self.session = user_id, session
        self.posted: list[str] = []

    async def ask(
        self,
        question: Question,
        *,
        seed: int,
        temperature: float = 0.0,
        stream: bool = False,
        abort: bool = False,
        regenerates: str | None = None,
    ) -> Reply:
        headers = {"X-Session-Id": self.session, "X-User-Id": self.user_id}
        if regenerates:
            headers["X-Regenerates"] = regenerates
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": self.content.system},
            {"role": "user", "content": question.text},
        ]
        create = self.client.chat.completions.with_raw_response.create
        arguments: dict[str, Any] = {
            "model": self.content.business,
            "messages": messages,
            "max_tokens": self.content.max_tokens,
            "temperature": temperature,
            "seed": seed,
            "extra_headers": headers,
        }
        if stream:
            raw = await create(**arguments, stream=True)
            text = await _read(raw.parse(), abort)
        else:
            raw = await create(**arguments)
            text = raw.parse().choices[0].message.content or ""
        return Reply(
            interaction_id=raw.headers["x-interaction-id"],
            model_version=raw.headers["x-model-version"],
            arm=raw.headers["x-arm"],
            text=text,
            obeyed=obeys(text, self.content, question.topic),
        )

    async def say(
        self, reply: Reply, event_id: str, kind: str, value: JsonValue, reason: str | None = None, times: int = 1
    ) -> None:
        """Post one event, `times` times over."""
        event = {
            "event_id": event_id,
            "interaction_id": reply.interaction_id,
            "kind": kind,
            "value": value,
            "user_id": self.user_id,
            "occurred_at": datetime.now(UTC).isoformat(),
        }
        if reason:
            event["reason"] = reason
        for _ in range(times):
            response = await self.feedback.post("/v1/feedback", json=event)
            response.raise_for_status()
            self.posted.append(kind)


Reaction: TypeAlias = Callable[[User, int, Question, Reply], Awaitable[None]]
"""What the user of such a number does with the answer to a question."""


async def _read(stream: openai.AsyncStream[openai.types.chat.ChatCompletionChunk], abort: bool) -> str:
    """The streamed text; with `abort`, the connection is closed after the first piece."""
    text = ""
    async with stream:
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                text += chunk.choices[0].delta.content
                if abort:
                    break
    return text


async def visit(
    client: openai.AsyncOpenAI, feedback: httpx.AsyncClient, planned: Visit, content: Content, attempt: str
) -> VisitResult:
    """Carry one visit out.

    Args:
        client: OpenAI client whose base URL is the gateway's `/v1`; best with `max_retries=0`, since every retry is
            another interaction.
        feedback: HTTP client with the gateway's base URL and the same `Authorization` header.
        planned: the visit.
        content: its business.
        attempt: name of this run of the plan; goes into the session.

    Raises:
        openai.APIError, httpx.HTTPError: the gateway or an engine failed.
    """
    user = User(client, feedback, content, planned.user_id, f"{planned.visit_id}-{attempt}")
    reply = await user.ask(
        planned.question,
        seed=planned.seed,
        temperature=planned.temperature,
        stream=planned.stream,
        abort=planned.habit is Habit.LEAVE,
    )
    replies = [reply]
    if planned.habit is Habit.REGENERATE and not reply.obeyed:
        await user.say(reply, planned.event_id("thumb", 1), "thumb", "down")
        again = await user.ask(
            planned.question,
            seed=planned.seed + 50_000,
            temperature=0.8,
            stream=planned.stream,
            regenerates=reply.interaction_id,
        )
        replies.append(again)
        await user.say(reply, planned.event_id("regenerate"), "regenerate", again.interaction_id)
    await _react(user, planned, replies[-1])
    return VisitResult(visit_id=planned.visit_id, replies=tuple(replies), feedback=tuple(user.posted))


async def _react(user: User, planned: Visit, reply: Reply) -> None:
    """What the user says about the last answer."""
    good = reply.obeyed
    match planned.habit:
        case Habit.EDIT | Habit.REGENERATE if good:
            await user.say(reply, planned.event_id("thumb"), "thumb", "up")
        case Habit.EDIT | Habit.REGENERATE:
            ideal = user.content.ideal(planned.question.topic)
            await user.say(reply, planned.event_id("edit"), "edit", ideal)
        case Habit.VOTE:
            await _vote(user, planned, reply)
        case Habit.OUTCOME:
            await user.say(reply, planned.event_id("outcome"), "outcome", "passed" if good else "failed")
        case Habit.RATING:
            words = user.content.comments.up if good else user.content.comments.down
            await user.say(reply, planned.event_id("rating"), "rating", 5 if good else 1)
            await user.say(reply, planned.event_id("comment"), "comment", words[planned.seed % len(words)])
        case Habit.LEAVE:
            await user.say(reply, planned.event_id("abort"), "abort", True)
        case Habit.SILENT:
            pass


async def _vote(user: User, planned: Visit, reply: Reply) -> None:
    """A thumb, with the visit's quirk."""
    right, wrong = ("up", "down") if reply.obeyed else ("down", "up")
    words = user.content.comments.up if reply.obeyed else user.content.comments.down
    reason = words[planned.seed % len(words)]
    if planned.quirk is Quirk.FLIP:
        await user.say(reply, planned.event_id("thumb", 1), "thumb", wrong)
    times = 2 if planned.quirk is Quirk.RESEND else 1
    await user.say(reply, planned.event_id("thumb"), "thumb", right, reason, times)
    if planned.quirk is Quirk.WITHDRAW:
        await user.say(reply, planned.event_id("thumb", 2), "thumb", None)


async def run_visits(
    client: openai.AsyncOpenAI,
    feedback: httpx.AsyncClient,
    visits: Sequence[Visit],
    content: Content,
    attempt: str,
    *,
    concurrency: int = 4,
    on_done: Callable[[VisitResult], None] = lambda _: None,
) -> list[VisitResult]:
    """Carry a plan out, a few visits at a time, in its order. A visit that fails is a result with an `error`.

    `on_done` is called once per finished visit (progress, and a journal to go on from after a kill).
    """
    gate = asyncio.Semaphore(concurrency)

    async def one(planned: Visit) -> VisitResult:
        async with gate:
            try:
                result = await visit(client, feedback, planned, content, attempt)
            except (openai.APIError, httpx.HTTPError, KeyError) as error:
                result = VisitResult(visit_id=planned.visit_id, error=f"{type(error).__name__}: {error}")
            on_done(result)
            return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(planned)) for planned in visits]
    return [task.result() for task in tasks]


async def rate_every_fifth(user: User, number: int, _question: Question, reply: Reply) -> None:
    """Every fifth user leaves a thumb."""
    if number % 5 == 0:
        event_id = str(uuid.uuid5(uuid.NAMESPACE_OID, user.user_id))
        await user.say(reply, event_id, "thumb", "up" if reply.obeyed else "down")


async def canary_traffic(
    client: openai.AsyncOpenAI,
    feedback: httpx.AsyncClient,
    content: Content,
    stop: asyncio.Event,
    attempt: str,
    *,
    concurrency: int = 3,
    react: Reaction = rate_every_fifth,
    on_reply: Callable[[CanaryReply], None] = lambda _: None,
) -> int:
    """Let fresh users ask, one question each, until `stop` is set; returns how many asked.

    `attempt` makes the users of one rollout new to the system: another attempt's users are others.
    """
    numbers = itertools.count()
    questions = content.plain()

    async def one(number: int) -> CanaryReply:
        user_id = f"{content.business}-canary-{attempt}-{number:05d}"
        user = User(client, feedback, content, user_id, user_id)
        try:
            question = questions[number * 31 % len(questions)]
            reply = await user.ask(question, seed=number, stream=number % 2 == 0)
            await react(user, number, question, reply)
        except (openai.APIError, httpx.HTTPError, KeyError) as error:
            return CanaryReply(user_id=user_id, reply=None, error=f"{type(error).__name__}: {error}")
        return CanaryReply(user_id=user_id, reply=reply)

    async def worker() -> None:
        while not stop.is_set():
            outcome = await one(next(numbers))
            on_reply(outcome)
            if outcome.error:  # a gateway that refuses at once must not be hammered
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 1.0)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker())
    return next(numbers)
