"""Which questions both sides are asked: the golden suite, users who were never trained on, and the newest window."""

import random
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import JsonValue

from pipeline.clean.text import message_text
from pipeline.dataset.snapshot import Rows, Snapshot
from pipeline.dataset.suite import Suite, dump_check
from pipeline.records import (
    EvalItem,
    Example,
    Message,
    PreferenceExample,
    SftExample,
    Split,
    canonical_json,
    content_id,
)

_RECENT_SHARE = 0.2


def make_items(snapshot: Snapshot, suite: Suite | None, max_items: int, seed: int) -> tuple[EvalItem, ...]:
    """The items of an evaluation, the main set (golden and held-out) before the recent one.

    Each user's prompt is one item, whatever number of rows it gave: the edited or accepted answer is its reference and,
    where it was preferred over another one, that one is its rejected answer. A prompt whose only row is a disliked
    answer has no reference and is held to the rules alone. The suite's rules are checks of every item.

    Where there are more than `max_items`, at most a fifth of them are recent ones and at most half golden ones, and
    users take turns: one more user tells more than one more prompt of the same user.

    Args:
        max_items: of all sets together.
        seed: of the order in which users and prompts are taken.
    """
    rules = tuple(dump_check(rule) for rule in suite.rules) if suite else ()
    golden = _golden(suite) if suite else []
    held_out = _rated(snapshot, Split.HELD_OUT, "held_out", rules)
    recent = _rated(snapshot, Split.RECENT, "recent", rules)
    recent = _take(recent, min(int(_RECENT_SHARE * max_items), max_items), seed)
    room = max_items - len(recent)
    golden = _take(golden, max(room // 2, room - len(held_out)), seed)
    return (*golden, *_take(held_out, room - len(golden), seed), *recent)


def only_text(item: EvalItem) -> bool:
    """Whether a model that reads text can read all of it: no message holds an image, sound or file."""
    contents = (message.get("content") for message in item.messages)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return all(isinstance(part, dict) and part.get("type") == "text" for part in parts)


def _golden(suite: Suite) -> list[EvalItem]:
    items = []
    for item in suite.items:
        checks = tuple(dump_check(check) for check in (*item.checks, *suite.rules))
        item_id = content_id(["golden", item.id, list(item.messages), list(checks)])
        # Each golden question stands for itself: it is its own cluster.
        user = f"golden:{item.id}"
        items.append(EvalItem(item_id=item_id, set_name="golden", user_key=user, messages=item.messages, checks=checks))
    return items


def _rated(
    snapshot: Snapshot, split: Split, set_name: Literal["held_out", "recent"], rules: tuple[dict[str, JsonValue], ...]
) -> list[EvalItem]:
    rows = snapshot.rows.get(split, Rows())
    # Preferences first: where a prompt also gave a plain target, the pair says more.
    ordered: Iterable[Example] = (*rows.preference, *rows.sft, *rows.unpaired)
    items: dict[str, EvalItem] = {}
    for row in ordered:
        user = min(row.source.user_keys, default=f"session:{row.source.session}")
        item_id = content_id([set_name, user, list(row.prompt), list(row.tools), list(rules)])
        reference, rejected = _answers(row)
        known = items.get(item_id)
        if known is None or (known.reference is None and reference is not None):
            items[item_id] = EvalItem.model_validate(
                {
                    "item_id": item_id,
                    "set_name": set_name,
                    "user_key": user,
                    "messages": row.prompt,
                    "tools": row.tools,
                    "reference": reference,
                    "rejected": rejected,
                    "checks": rules,
                }
            )
    return list(items.values())


def _answers(row: Example) -> tuple[str | None, str | None]:
    """The accepted answer and the one it was preferred over, as texts."""
    match row:
        case PreferenceExample():
            return _text(row.chosen), _text(row.rejected)
        case SftExample():
            return _text(row.completion), None
        case _:
            return (_text(row.completion) if row.label else None), None


def _text(messages: Sequence[Message]) -> str:
    message = messages[-1]
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return canonical_json([call.get("function") for call in calls if isinstance(call, dict)])
    return message_text(message)


def _take(items: list[EvalItem], count: int, seed: int) -> list[EvalItem]:
    """Up to `count` items, one of each user by turns, in an order that only the seed decides."""
    shuffled = sorted(items, key=lambda item: item.item_id)
    random.Random(seed).shuffle(shuffled)
    turn: dict[str, int] = {}
    turns = []
    for item in shuffled:
        turns.append(turn.setdefault(item.user_key, 0))
        turn[item.user_key] += 1
    order = sorted(range(len(shuffled)), key=lambda index: turns[index])
    return [shuffled[index] for index in order[: max(count, 0)]]
