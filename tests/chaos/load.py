"""The users: conversations of several turns over both gateways, streamed, with feedback. Each notes what it saw."""

import asyncio
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.chaos.history import Turn, Vote
from tests.chaos.schedule import GATEWAYS

_USERS = 400
_ANSWER_LIMIT_S = 30.0
_TRIES = 12


@dataclass
class Load:
    """Some people at once; each begins a new conversation when the last one is over.

    Args:
        seed: of what they do; when their answers come is up to the machine.
        urls: of the gateways, by name.
        people: how many.
    """

    seed: int
    urls: Mapping[str, str]
    key: str
    people: int = 20
    turns: list[Turn] = field(default_factory=list)
    votes: list[Vote] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Let conversations end with the turn under way."""
        self._stop.set()

    async def run(self) -> None:
        """Until it is stopped."""
        limits = httpx.Limits(max_connections=None, keepalive_expiry=2.0)
        headers = {"authorization": f"Bearer {self.key}"}
        async with (
            httpx.AsyncClient(headers=headers, limits=limits, timeout=_ANSWER_LIMIT_S) as client,
            asyncio.TaskGroup() as people,
        ):
            for number in range(self.people):
                people.create_task(self._person(client, number))

    async def _person(self, client: httpx.AsyncClient, number: int) -> None:
        draw = random.Random(f"{self.seed}/person {number}")
        await asyncio.sleep(draw.uniform(0.0, 1.0))
        count = 0
        while not self._stop.is_set():
            count += 1
            await self._talk(client, draw, f"c{number}-{count}")

    async def _talk(self, client: httpx.AsyncClient, draw: random.Random, conversation: str) -> None:
        """One conversation: by session id, by user, by both, or by its first words alone."""
        headers: dict[str, str] = {}
        form = draw.choice(("session", "user", "both", "neither"))
        if form in ("session", "both"):
            headers["x-session-id"] = conversation
        if form in ("user", "both"):
            headers["x-user-id"] = f"u{draw.randrange(_USERS)}"
        messages: list[dict[str, str]] = []
        for number in range(draw.randint(1, 5)):
            messages.append({"role": "user", "content": f"{conversation} asks question {number}"})
            turn = await self._ask(client, draw, conversation, headers, messages)
            if turn is None or self._stop.is_set():
                return
            messages.append({"role": "assistant", "content": "fine"})
            if draw.random() < 0.6:
                await self._vote(client, draw, turn.interaction_id)
            await asyncio.sleep(draw.uniform(0.2, 2.0))

    async def _ask(
        self,
        client: httpx.AsyncClient,
        draw: random.Random,
        conversation: str,
        headers: dict[str, str],
        messages: list[dict[str, str]],
    ) -> Turn | None:
        """Ask until there is a whole answer, at the other gateway after each failure; None after many."""
        body = {"model": "support", "messages": messages, "stream": draw.random() < 0.8}
        gateway = draw.choice(GATEWAYS)
        for _ in range(_TRIES):
            turn = Turn(conversation, gateway, time.time())
            self.turns.append(turn)
            try:
                await _answer(client, self.urls[gateway], headers, body, turn)
            except (httpx.HTTPError, ValueError) as error:
                turn.end = "cut" if turn.status == 200 else "unreachable"
                turn.detail = f"{type(error).__name__} {error}"[:200]
            turn.ended = time.time()
            if turn.end == "complete":
                return turn
            if self._stop.is_set():
                return None
            gateway = GATEWAYS[1 - GATEWAYS.index(gateway)]
            await asyncio.sleep(draw.uniform(0.2, 1.0))
        return None

    async def _vote(self, client: httpx.AsyncClient, draw: random.Random, interaction_id: str) -> None:
        """Send until it is accepted; now and then once more, as a client does that did not hear the answer."""
        vote = Vote(f"e-{interaction_id}", interaction_id, draw.choice(GATEWAYS), time.time())
        self.votes.append(vote)
        event = {
            "event_id": vote.event_id,
            "interaction_id": interaction_id,
            "kind": "thumb",
            "value": draw.choice(("up", "up", "down")),
        }
        again = draw.random() < 0.25
        for _ in range(_TRIES):
            try:
                answer = await client.post(f"{self.urls[vote.gateway]}/v1/feedback", json=event)
                if answer.status_code == 202:
                    vote.accepted = True
                    if not again:
                        return
                    again = False
            except httpx.HTTPError:
                pass  # its gateway is down: the other one is asked
            vote.gateway, vote.at = GATEWAYS[1 - GATEWAYS.index(vote.gateway)], time.time()
            await asyncio.sleep(draw.uniform(0.1, 0.5))


async def _answer(
    client: httpx.AsyncClient, url: str, headers: dict[str, str], body: dict[str, Any], turn: Turn
) -> None:
    """Fill in what came.

    Raises:
        httpx.HTTPError: the connection ended before the answer did.
        ValueError: what came has no end, or is no answer.
    """
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers) as response:
        turn.status = response.status_code
        turn.interaction_id = response.headers.get("x-interaction-id", "")
        turn.arm = response.headers.get("x-arm", "")
        turn.model = response.headers.get("x-model-version", "")
        if turn.status != 200:
            turn.end = "refused"
            turn.detail = (await response.aread()).decode(errors="replace")[:200]
            return
        text, done = "", not body["stream"]
        if body["stream"]:
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    done = True
                elif line.startswith("data: "):
                    text += _delta(json.loads(line.removeprefix("data: ")))
                    _note_speaker(turn, text)
        else:
            text = json.loads(await response.aread())["choices"][0]["message"]["content"]
            _note_speaker(turn, text)
        if not done:
            raise ValueError("the stream ended without [DONE]")
        turn.end = "complete"


def _delta(chunk: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))


def _note_speaker(turn: Turn, text: str) -> None:
    """An answer begins with the engine's name and the digest of what it answers from."""
    words = text.split(" ", 2)
    if len(words) > 2:
        turn.engine, turn.content = words[0], words[1]
