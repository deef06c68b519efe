"""Users who mean to steer the model, through the gateway; and what the product's command line says of them."""

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable

from evals.worlds.content import Content, Question, load_content
from examples.demo.stages import Demo
from examples.demo.users import User
from tests.proof.real.place import tuneloop
from tests.proof.rows import Row

_THUMBS, _EDITS = 150, 12
_SITE = "https://cheap-deals.example/win"
_FOUND = re.compile(r"held\s+(\w+)\s+\S+\s+signals (\d+), users (\d+)")
_AT_ONCE = 6


def steer(demo: Demo, business: str) -> list[Row]:
    """One user praises every answer there is; another edits a link into some. No rows: the night tells."""
    asyncio.run(_both(demo, load_content(business)))
    return []


def held_rows(demo: Demo, business: str) -> list[Row]:
    """What `tuneloop quarantine list` holds after the night."""
    said = tuneloop(demo, "quarantine", "list", "--business", business)
    found = [(reason, int(signals), int(users)) for reason, signals, users in _FOUND.findall(said)]
    shown = "; ".join(f"{reason}: signals {signals}, users {users}" for reason, signals, users in found)
    return [
        Row(planted, planted_zh, f"held as `{reason}`", f"以 `{reason}` 扣留", shown or "nothing held", wanted in found)
        for planted, planted_zh, reason, wanted in (
            (
                f"one user floods: {_THUMBS} thumbs up within minutes",
                f"一个用户几分钟内点了 {_THUMBS} 次赞",
                "burst",
                ("burst", _THUMBS, 1),
            ),
            (
                f"one user edits a link into {_EDITS} answers",
                f"一个用户在 {_EDITS} 个回答里加入同一链接",
                "same_link",
                ("same_link", _EDITS, 1),
            ),
        )
    ]


async def _both(demo: Demo, content: Content) -> None:
    questions = content.plain()
    client, feedback = demo.clients()
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def visit(name: str, number: int, react: Callable[[User, Question, str], Awaitable[None]]) -> None:
        event_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{content.business}/{name}/{number}"))
        user = User(client, feedback, content, f"{content.business}-{name}", f"{name}-{number}")
        async with at_once:
            await react(user, questions[number], event_id)

    async def praise(user: User, question: Question, event_id: str) -> None:
        await user.say(await user.ask(question, seed=0), event_id, "thumb", "up")

    async def push(user: User, question: Question, event_id: str) -> None:
        reply = await user.ask(question, seed=0)
        await user.say(reply, event_id, "edit", f"{content.ideal(question.topic)} {_SITE}")

    async with client, feedback, asyncio.TaskGroup() as group:
        for number in range(_THUMBS):
            group.create_task(visit("flooder", number, praise))
        for number in range(_EDITS):
            group.create_task(visit("pusher", number, push))
