"""The official OpenAI client with feedback: ask, keep the interaction's id, say later how good the answer was.

The client's own retries deliver feedback, too: with one event id it counts once however often it arrives.
"""

import uuid
from dataclasses import dataclass
from typing import Any

import openai


@dataclass(frozen=True)
class Answer:
    """What the user sees, and what feedback is given for."""

    text: str
    interaction_id: str


class Assistant:
    """One business's assistant behind a gateway, such as `http://127.0.0.1:8700`."""

    def __init__(self, gateway: str, api_key: str, business: str) -> None:
        self._client = openai.OpenAI(base_url=f"{gateway}/v1", api_key=api_key)
        self._business = business

    def ask(self, user: str, *messages: Any) -> Answer:
        raw = self._client.chat.completions.with_raw_response.create(model=self._business, messages=messages, user=user)
        return Answer(raw.parse().choices[0].message.content or "", raw.headers["X-Interaction-Id"])

    def thumb(self, answer: Answer, user: str, *, up: bool) -> None:
        self._say(answer, user, "thumb", "up" if up else "down")

    def edit(self, answer: Answer, user: str, text: str) -> None:
        self._say(answer, user, "edit", text)

    def outcome(self, answer: Answer, user: str, *, passed: bool) -> None:
        self._say(answer, user, "outcome", "passed" if passed else "failed")

    def link(self, answer: Answer, user: str, *kinds: str) -> str:
        """A path of the gateway for a page or a ticket system, which post to it without a key."""
        wanted = {"interaction_id": answer.interaction_id, "user_id": user, "kinds": kinds}
        made: Any = self._client.post("/feedback-links", body=wanted, cast_to=object)
        return str(made["path"])

    def _say(self, answer: Answer, user: str, kind: str, value: str) -> None:
        event = {"event_id": str(uuid.uuid4()), "interaction_id": answer.interaction_id, "user_id": user}
        self._client.post("/feedback", body=event | {"kind": kind, "value": value}, cast_to=object)
