"""Events as gateways log them, made for one world: its clock, its ids, and who is who."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import JsonValue

from evals.worlds.content import Content
from pipeline.gateway.routing import assignment_hash, user_group
from pipeline.records import Arm, Choice, Feedback, FeedbackKind, Interaction, Message, StreamEnd, Timings, content_id

_UUID7, _VARIANT = 0x7 << 76, 0b10 << 62


class Log:
    """All that happened in one world so far. Equal random numbers give equal logs, byte for byte."""

    def __init__(self, content: Content, rng: random.Random) -> None:
        self.content, self.rng = content, rng
        self.interactions: list[Interaction] = []
        self.feedback: list[Feedback] = []
        self._skew: dict[str | None, timedelta] = {}

    def user(self, name: str) -> str:
        """The salted hash that stands for a user."""
        return content_id([self.content.business, name])[:32]

    def ask(
        self,
        question: str,
        answer: str | None,
        *,
        user: str | None,
        at: datetime,
        model: str,
        session: str | None = None,
        before: Sequence[Message] = (),
        end: StreamEnd = StreamEnd.COMPLETE,
        regenerates: str | None = None,
        client: str = "app/3.1",
    ) -> Interaction:
        """One request and its answer; None where no answer came.

        Args:
            user: the user's hash; None where the client named nobody.
            session: the conversation's hash; default: one of its own, which the client did not name.
            before: earlier messages of the conversation, after the system prompt.
        """
        messages: list[JsonValue] = [{"role": "system", "content": self.content.system}, *before]
        messages.append({"role": "user", "content": question})
        interaction_id = self._new_id(at)
        own = session or content_id(interaction_id)[:32]
        done = Choice(index=0, message={"role": "assistant", "content": answer}, finish_reason="stop")
        made = Interaction(
            interaction_id=interaction_id,
            business=self.content.business,
            session=own,
            session_known=session is not None,
            user_key=user,
            user_group=user_group(assignment_hash("", user or own)),
            arm=Arm.STABLE,
            share=0.0,
            rollout_salt="",
            model_version=model,
            adapter=None if model == "base" else model,
            base_model="base",
            prompt_hash=content_id([messages, []]),
            request={"model": self.content.business, "messages": messages},
            choices=() if answer is None else (done,),
            usage=None,
            timings=Timings(queue_ms=1.0, ttft_ms=120.0, total_ms=400.0),
            status=200,
            stream_end=end,
            client=client,
            regenerates=regenerates,
            started_at=at,
        )
        self.interactions.append(made)
        return made

    def say(
        self,
        about: Interaction,
        kind: FeedbackKind,
        value: JsonValue,
        after: timedelta,
        reason: str | None = None,
        user: str | None = None,
    ) -> Feedback:
        """One signal about an answer, so long `after` it was asked for; by the asker unless a `user` is named.

        The device that says when it occurred has a clock of its own; the gateway says when it came.
        """
        who = user or about.user_key
        said = Feedback(
            event_id=str(content_id([about.interaction_id, kind, len(self.feedback)])[:32]),
            interaction_id=about.interaction_id,
            business=about.business,
            kind=kind,
            value=value,
            user_key=who,
            reason=reason,
            occurred_at=about.started_at + after + self._skew.get(who, timedelta()),
            received_at=about.started_at + after,
        )
        self.feedback.append(said)
        return said

    def set_clock(self, user: str, skew: timedelta) -> None:
        """How far a user's device is off."""
        self._skew[user] = skew

    def _new_id(self, at: datetime) -> str:
        """A UUIDv7 of that moment whose random bits are the world's."""
        millis = round(at.timestamp() * 1000)
        bits = millis << 80 | _UUID7 | self.rng.getrandbits(12) << 64 | _VARIANT | self.rng.getrandbits(62)
        digits = f"{bits:032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
