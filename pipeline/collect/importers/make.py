"""Our records out of other tools' facts: ids that are content hashes, salted users, values that are checked.

An interaction's id is a hash over the business and the tool's own id of the answer, so that feedback of another file,
or of another tool that kept that id, finds it. A feedback's id is a hash over all that it says, so that a vote that was
changed is a new event, and the same file again holds none. An id that a gateway of ours made stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from pydantic import JsonValue

from pipeline.clean.quality import message_fault
from pipeline.collect.importers.refusal import RefusalReason, Refused
from pipeline.gateway.ids import Ids
from pipeline.records import (
    Arm,
    Choice,
    Feedback,
    FeedbackKind,
    Interaction,
    Message,
    StreamEnd,
    Timings,
    Usage,
    content_id,
)

IMPORTED = "import-"
"""What ids of imported events begin with."""
MAX_EDIT = 200_000
MAX_COMMENT = 20_000
"""Characters; the gateway takes no more either."""


_NO_ARM: dict[str, Any] = {"user_group": "g00", "arm": Arm.STABLE, "share": 0.0, "rollout_salt": ""}
"""No rollout has ever assigned an imported interaction; the stable arm is compared with nothing."""


@dataclass(frozen=True)
class Answer:
    """What the model said, and how it ended."""

    message: Message
    finish_reason: str | None = "stop"
    stream_end: StreamEnd = StreamEnd.COMPLETE
    status: int = 200


@dataclass(frozen=True)
class Turn:
    """Where an answer stands: who asked whom what, when, in which conversation."""

    messages: Sequence[Message]
    at: datetime | None
    """None where the tool keeps no time; then it counts as happened when it was first imported."""
    model: str = ""
    conversation: str = ""
    """Empty where the tool does not say; then no regeneration is inferred."""
    user: str = ""
    tools: Sequence[Message] = ()
    tokens: tuple[int, int] | None = None
    latency_ms: float = 0.0


@dataclass(frozen=True)
class Make:
    """Makes the records of one import."""

    tool: str
    business: str
    ids: Ids
    zone: tzinfo
    """Of times that name none."""
    now: datetime
    scores: frozenset[str] = frozenset()
    """Names of the scores that users gave; empty: those whose name says so."""
    scale: tuple[float, float] | None = None
    """Lowest and highest value of a score."""

    def interaction_id(self, key: str) -> str:
        """The id of the interaction that the tool calls `key`."""
        if self.ids.belongs(key, self.business):
            return key
        return f"{IMPORTED}{content_id(['interaction', self.business, key])[:32]}"

    def interaction(self, key: str, turn: Turn, *answers: Answer) -> Interaction:
        """One request and its answers.

        Raises:
            Refused: the messages are none, or no answer came although none failed.
        """
        messages: list[JsonValue] = list(turn.messages)
        if fault := message_fault(messages):
            raise Refused(RefusalReason.BAD_MESSAGES, fault)
        if not any(_speaks(answer) or answer.status >= 400 for answer in answers):
            raise Refused(RefusalReason.NO_ANSWER, "the answer is empty")
        model = turn.model[:200] or "unknown"
        request: dict[str, JsonValue] = {"model": model, "messages": messages}
        if turn.tools:
            request["tools"] = list(turn.tools)
        return Interaction(
            interaction_id=self.interaction_id(key),
            business=self.business,
            session=self.ids.session(self.business, self.tool, turn.conversation or key),
            session_known=bool(turn.conversation),
            user_key=self.user_key(turn.user),
            **_NO_ARM,
            model_version=model,
            adapter=None,
            base_model=model,
            prompt_hash=content_id([messages, list(turn.tools)]),
            request=request,
            choices=_choices(answers),
            usage=_usage(turn.tokens),
            timings=Timings(queue_ms=0.0, total_ms=max(0.0, turn.latency_ms)),
            status=max(answer.status for answer in answers),
            stream_end=max((a.stream_end for a in answers), key=lambda end: end is not StreamEnd.COMPLETE),
            client=f"import/{self.tool}",
            started_at=turn.at or self.now,
        )

    def feedback(
        self,
        key: str,
        kind: FeedbackKind,
        value: JsonValue,
        at: datetime | None,
        *,
        user: str = "",
        source_id: str = "",
        reason: str | None = None,
    ) -> Feedback:
        """One signal about the interaction that the tool calls `key`.

        Args:
            source_id: the tool's own id of the signal, if it has one.

        Raises:
            Refused: the value is too long, or none of its kind.
        """
        _check(kind, value, reason)
        interaction_id = self.interaction_id(key)
        said: list[JsonValue] = [interaction_id, kind, value, user, source_id, reason]
        said.append(None if at is None else at.isoformat())
        return Feedback(
            event_id=f"{IMPORTED}{content_id(['feedback', self.tool, self.business, *said])[:32]}",
            interaction_id=interaction_id,
            business=self.business,
            kind=kind,
            value=value,
            user_key=self.user_key(user),
            reason=reason or None,
            occurred_at=at or self.now,
            received_at=self.now,
        )

    def over(self, key: str) -> dict[str, JsonValue]:
        """The value of a choice over the answer that the tool calls `key`."""
        return {"over": self.interaction_id(key)}

    def user_key(self, user: str) -> str | None:
        """What stands for a user, as it would had the gateway served them."""
        return self.ids.user_key(self.business, user) if user else None


def why(*parts: Any) -> str | None:
    """Reasons, tags and raw values as one text; None when there are none."""
    texts = [part.strip() for part in parts if isinstance(part, str) and part.strip()]
    return "; ".join(texts) or None


def _choices(answers: Sequence[Answer]) -> tuple[Choice, ...]:
    return tuple(
        Choice(index=index, message=answer.message, finish_reason=answer.finish_reason)
        for index, answer in enumerate(answers)
        if _speaks(answer)
    )


def _usage(tokens: tuple[int, int] | None) -> Usage | None:
    return None if tokens is None else Usage(prompt_tokens=tokens[0], completion_tokens=tokens[1])


def _speaks(answer: Answer) -> bool:
    content = answer.message.get("content")
    said = content.strip() if isinstance(content, str) else content
    return bool(said or answer.message.get("tool_calls"))


def _check(kind: FeedbackKind, value: JsonValue, reason: str | None) -> None:
    limit = MAX_EDIT if kind is FeedbackKind.EDIT else MAX_COMMENT
    if isinstance(value, str) and len(value) > limit:
        raise Refused(RefusalReason.TOO_LONG, f"{kind} of {len(value)} characters; at most {limit}")
    if reason is not None and len(reason) > MAX_COMMENT:
        raise Refused(RefusalReason.TOO_LONG, f"reason of {len(reason)} characters; at most {MAX_COMMENT}")
    if kind in (FeedbackKind.EDIT, FeedbackKind.COMMENT) and not isinstance(value, str | None):
        raise Refused(RefusalReason.UNKNOWN_VALUE, f"{kind} is {type(value).__name__}, not a text")
    if kind is FeedbackKind.RATING and value is not None:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 5
        if not good:
            raise Refused(RefusalReason.UNKNOWN_VALUE, f"{str(value)[:40]!r} is no rating from 1 to 5")
