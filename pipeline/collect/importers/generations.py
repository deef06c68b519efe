"""One trace as the answers that a user could have rated: what Langfuse, MLflow and others keep as a tree of spans.

A vote on a trace is about what the user saw in the end. That is the generation whose words are the trace's output, else
the last one that said something; it gets the trace's id, the steps before it keep their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.clean.text import message_text
from pipeline.collect.importers.make import Answer, Make, Turn
from pipeline.collect.importers.messages import answer_message, chat_messages
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.records import Message, StreamEnd


@dataclass(frozen=True)
class Generation:
    """One call of a model."""

    generation_id: str
    messages: Sequence[Message]
    answer: Message | None
    at: datetime | None
    model: str = ""
    tools: Sequence[Message] = ()
    tokens: tuple[int, int] | None = None
    latency_ms: float = 0.0
    failed: bool = False


@dataclass(frozen=True)
class Trace:
    """What one request of a user set off."""

    trace_id: str
    generations: Sequence[Generation]
    output: Any = None
    """What the trace itself says that it answered."""
    conversation: str = ""
    user: str = ""

    @property
    def final(self) -> Generation | None:
        """The generation that the user saw."""
        by_time = sorted(self.generations, key=lambda g: (g.at is not None, g.at, g.generation_id))
        talking = [g for g in by_time if g.answer is not None and message_text(g.answer).strip()]
        shown = message_text(answer_message(self.output) or {}).strip()
        said = [g for g in talking if g.answer is not None and shown and message_text(g.answer).strip() == shown]
        return next(reversed(said or talking or by_time), None)

    def key(self, generation_id: str) -> str:
        """The id under which a generation's interaction is stored; an empty or unknown one means the trace."""
        final = self.final
        if not generation_id or (final is not None and generation_id == final.generation_id):
            return self.trace_id
        return f"{self.trace_id}/{generation_id}"

    def interactions(self, make: Make) -> Iterator[Item]:
        """Its generations; one that a wrapper repeats is taken once."""
        seen: list[tuple[Sequence[Message], Message | None]] = []
        final = self.final
        for one in sorted(self.generations, key=lambda g: g is not final):
            if (one.messages, one.answer) in seen:
                continue
            seen.append((one.messages, one.answer))
            try:
                yield self._interaction(one, make)
            except Refused as refused:
                yield Refusal("", refused.reason, f"{one.generation_id[:40]}: {refused.detail}")

    def _interaction(self, one: Generation, make: Make) -> Item:
        if not one.messages:
            raise Refused(RefusalReason.NOT_CHAT, "no chat messages in its input")
        turn = Turn(
            messages=one.messages,
            at=one.at,
            model=one.model,
            conversation=self.conversation,
            user=self.user,
            tools=one.tools,
            tokens=one.tokens,
            latency_ms=one.latency_ms,
        )
        answer = Answer(one.answer or {"role": "assistant", "content": ""})
        if one.failed:
            answer = Answer(answer.message, None, StreamEnd.UPSTREAM_ERROR, 500)
        return make.interaction(self.key(one.generation_id), turn, answer)


def whole_trace(trace_id: str, request: Any, output: Any, at: datetime | None, model: str = "") -> Generation:
    """A trace of which only its own input and output are known, as one generation."""
    return Generation(trace_id, chat_messages(request), answer_message(output), at, model)


def milliseconds(start: datetime | None, end: datetime | None) -> float:
    """How long it took; 0 where nobody knows."""
    return (end - start).total_seconds() * 1000 if start and end else 0.0
