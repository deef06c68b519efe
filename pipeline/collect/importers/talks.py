"""A conversation with its answer, in the forms that files for training have: chat messages, ShareGPT, Alpaca, pairs.

A conversation that ends on the user is cut back to its last answer; one without any answer teaches nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.clean.quality import message_fault
from pipeline.collect.importers.blocks import blocks_to_messages
from pipeline.collect.importers.fields import Row, member, parsed, text
from pipeline.collect.importers.messages import answer_message, chat_messages, role_of, tool_definitions
from pipeline.collect.importers.refusal import RefusalReason, Refused
from pipeline.records import Message

_PROMPTS = ("prompt", "instruction", "query", "question", "input", "context")
_ANSWERS = ("answer", "completion", "response", "output", "reply", "generation")
_CHATS = ("messages", "conversations", "conversation", "chat")
_PAIRS = (
    ("chosen", "rejected"),
    ("chosen_messages", "rejected_messages"),
    ("preferred_output", "non_preferred_output"),
    ("preferred", "dispreferred"),
)


@dataclass(frozen=True)
class Talk:
    """What was said up to an answer, and the answer."""

    messages: list[Message]
    answer: Message
    tools: list[dict[str, Any]]


def talk_of(row: Row) -> Talk | None:
    """The conversation in a row; None when the row holds none at all.

    Raises:
        Refused: it holds one that cannot be learned from.
    """
    turns = _turns(row)
    prompt = _asked(row)
    if turns is None and prompt is None:
        return None
    answer = next((row[name] for name in _ANSWERS if row.get(name) not in (None, "")), None)
    tools = tool_definitions(dict(row))
    if answer is not None and (prompt or turns):
        said = answer_message(answer)
        messages = _with_system(row, [*(turns or []), *(prompt or [])])
        return Talk(messages, said or {"role": "assistant", "content": str(answer)}, tools)
    if turns is None:
        if prompt and any(name in row for name in _ANSWERS):
            raise Refused(RefusalReason.NO_ANSWER, "the answer is empty")
        return None
    while turns and turns[-1].get("role") != "assistant":
        turns.pop()
    if not turns:
        raise Refused(RefusalReason.NO_ANSWER, "no turn of the assistant")
    return Talk(_with_system(row, turns[:-1]), turns[-1], tools)


def pair_of(row: Row) -> tuple[Talk, Talk] | None:
    """The better and the worse answer of a pair, each with its own prompt; None when the row is no pair.

    Raises:
        Refused: a side is missing.
    """
    for better, worse in _PAIRS:
        if better in row and worse in row:
            return _side(row, better), _side(row, worse)
    return None


def _side(row: Row, name: str) -> Talk:
    value = parsed(row[name])
    turns = _checked(value) if isinstance(value, list) else []
    said = turns[-1] if turns else answer_message(value)
    if said is None or said.get("role") != "assistant":
        raise Refused(RefusalReason.NO_ANSWER, f"{name} holds no answer")
    before = _turns(row) or _asked(row) or chat_messages(member(row, "input"))
    return Talk(_with_system(row, [*before, *turns[:-1]]), said, tool_definitions(dict(row), member(row, "input")))


def _asked(row: Row) -> list[Message] | None:
    """The question of a row that keeps it in a field; an Alpaca `input` stands below its instruction."""
    for name in _PROMPTS:
        value = parsed(row.get(name))
        if (
            isinstance(value, list)
            and value
            and all(isinstance(o, dict) and "type" in o and "role" not in o for o in value)
        ):
            return [*_history(row), *blocks_to_messages("user", value)]
        if isinstance(value, list):
            return _checked(value)
        if isinstance(value, dict) and value.get("messages"):
            return _checked(value["messages"])
        if words := text(row, name):
            more = text(row, "input") if name == "instruction" else ""
            return [*_history(row), {"role": "user", "content": f"{words}\n{more}" if more else words}]
    return None


def _history(row: Row) -> list[Message]:
    turns: list[Message] = []
    history = parsed(row.get("history"))
    for pair in history if isinstance(history, list) else []:
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(words, str) for words in pair):
            turns += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return turns


def _turns(row: Row) -> list[Message] | None:
    for name in _CHATS:
        value = parsed(row.get(name))
        if isinstance(value, list):
            return _checked(value)
    return None


def _checked(value: Iterable[Any]) -> list[Message]:
    """A list of turns as messages.

    Raises:
        Refused: one of them is none; names its number and field.
    """
    turns: list[Message] = []
    for at, one in enumerate(value):
        if isinstance(one, dict) and ("human" in one or "assistant" in one) and not role_of(one):
            turns += [
                {"role": r, "content": str(one[n])}
                for n, r in (("human", "user"), ("assistant", "assistant"))
                if one.get(n)
            ]
            continue
        made = [_called(one)] if isinstance(one, dict) and one.get("from") == "function_call" else chat_messages([one])
        if not isinstance(one, dict) or not made:
            what = "has no known role" if isinstance(one, dict) else f"is {type(one).__name__}, not an object"
            raise Refused(RefusalReason.BAD_MESSAGES, f"message {at} {what}")
        silent = bool(one.get("tool_calls") or one.get("function_call")) or role_of(one) == "tool"
        if not silent and not any(name in one for name in ("content", "value", "parts", "text", "kwargs")):
            raise Refused(RefusalReason.BAD_MESSAGES, f"message {at} has no content")
        turns += made
    if fault := message_fault(list(turns)):
        raise Refused(RefusalReason.BAD_MESSAGES, fault)
    return turns


def _called(turn: dict[str, Any]) -> Message:
    """ShareGPT's tool call."""
    value = parsed(turn.get("value"))
    called = value if isinstance(value, dict) else {"name": "", "arguments": {"input": turn.get("value")}}
    made = chat_messages([{"role": "assistant", "content": "", "tool_calls": [{"id": "call", **called}]}])
    return made[0] if made else {"role": "assistant", "content": ""}


def _with_system(row: Row, messages: list[Message]) -> list[Message]:
    system = text(row, "system", "system_prompt")
    if not system or (messages and messages[0].get("role") == "system"):
        return messages
    return [{"role": "system", "content": system}, *messages]
