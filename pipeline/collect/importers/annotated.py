"""An annotation task's fields: which of them is the question, and which are the answers that people judge."""

import re
from dataclasses import dataclass
from typing import Any

from pipeline.collect.importers.fields import Row, parsed, text
from pipeline.collect.importers.messages import chat_messages
from pipeline.collect.importers.refusal import RefusalReason, Refused
from pipeline.records import Message

_PROMPTS = ("prompt", "instruction", "question", "query", "input", "user", "text")
_ANSWER = re.compile(r"(?:answer|response|output|completion|generation|reply|model)s?[-_ ]?([0-9a-z]?)", re.IGNORECASE)
_SIDES = {"left": 0, "right": 1, "a": 0, "b": 1, "1": 0, "2": 1, "first": 0, "second": 1}


@dataclass(frozen=True)
class Task:
    """A question and the answers to it."""

    messages: list[Message]
    answers: dict[str, str]
    """Field to its text, in the order of the fields' names."""

    def named(self, label: str) -> str:
        """The field that a label such as `left`, `B` or `response-1` means.

        Raises:
            Refused: it means none.
        """
        names = list(self.answers)
        folded = label.strip().casefold()
        for name in names:
            if folded in (name.casefold(), f"{name}_text".casefold()):
                return name
        at = _SIDES.get(folded.split()[-1] if folded else "")
        if at is None or at >= len(names) or len(names) != 2:
            raise Refused(
                RefusalReason.UNKNOWN_VALUE, f"{label[:40]!r} names none of the answers {', '.join(names)[:80]}"
            )
        return names[at]

    def only(self) -> str:
        """The one answer.

        Raises:
            Refused: there are several, and nothing says which is meant.
        """
        if len(self.answers) != 1:
            raise Refused(RefusalReason.NOT_ONE_ANSWER, f"about one of {len(self.answers)} answers, and none is named")
        return next(iter(self.answers))


def task_of(fields: Row) -> Task:
    """The task in a record's fields; a chat that ends with the assistant is question and answer in one.

    Raises:
        Refused: there is no question, or no answer.
    """
    messages: list[Message] = []
    answers: dict[str, str] = {}
    for name in fields:
        value = parsed(fields[name])
        if isinstance(value, list) and (turns := chat_messages(value)) and all("role" in turn for turn in turns):
            messages = messages or turns
        elif _ANSWER.fullmatch(name) and text(fields, name):
            answers[name] = text(fields, name)
    if not answers and messages and messages[-1].get("role") == "assistant":
        said = messages.pop()
        answers["answer"] = str(said.get("content") or "")
    if not messages and (asked := next((text(fields, n) for n in _PROMPTS if text(fields, n)), "")):
        messages = [{"role": "user", "content": asked}]
    if not answers or not messages:
        raise Refused(
            RefusalReason.NOT_CHAT, f"no question and answer among the fields {', '.join(map(str, fields))[:80]}"
        )
    return Task(messages, dict(sorted(answers.items())))


def one_best(ranks: dict[str, float]) -> tuple[str, str]:
    """Of answers by rank (1 is the best) the best one and the next.

    Raises:
        Refused: none is the best.
    """
    ordered = sorted(ranks, key=lambda name: (ranks[name], name))
    if len(ordered) < 2 or ranks[ordered[0]] == ranks[ordered[1]]:
        raise Refused(RefusalReason.DRAW, "no answer is the best")
    return ordered[0], ordered[1]


def texts_in(value: Any) -> list[str]:
    """The texts of a label, a list of labels, or one text."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    return [one for one in value if isinstance(one, str) and one.strip()] if isinstance(value, list) else []
