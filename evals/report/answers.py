"""Answers side by side: the same question, what is in service and what is new."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from evals.checks import passes
from evals.report.speaker import Speaker
from evals.report.verdict import gain
from pipeline.dataset.suite import JsonSchema, Language, parse_check
from pipeline.records import Check, EvalItem, Message, ScoredItem, canonical_json

_SHOWN = 3


class Turn(NamedTuple):
    """One message as it is shown."""

    role: str
    text: str


class Side(NamedTuple):
    """One of the two answers."""

    text: str
    scores: list[str]
    faults: list[str]


class Example(NamedTuple):
    """One question with both answers."""

    earlier: list[Turn]
    question: str
    baseline: Side
    candidate: Side
    reference: str | None


def examples(
    scored: Sequence[ScoredItem], primary: Check, seed: int, say: Speaker
) -> list[tuple[str, str, list[Example]]]:
    """(heading, what to say when there is none, examples): most improved, most worsened, and random others."""
    ordered = sorted(scored, key=lambda item: (-gain(item, primary.metric), item.item.item_id))
    improved = _distinct([item for item in ordered if gain(item, primary.metric) > 0])
    worsened = _distinct([item for item in reversed(ordered) if gain(item, primary.metric) < 0])
    taken = {item.item.item_id for item in improved + worsened}
    others = [item for item in ordered if item.item.item_id not in taken]
    sampled = random.Random(seed).sample(others, min(_SHOWN, len(others)))
    groups = (("most_improved", improved), ("most_worsened", worsened), ("random", sampled))
    empty = {"most_improved": "none_improved", "most_worsened": "none_worsened", "random": "none_random"}
    return [(say(key), say(empty[key]), [_example(item, say) for item in items]) for key, items in groups]


def _distinct(items: Sequence[ScoredItem]) -> list[ScoredItem]:
    """The first few with different questions: the same one three times tells no more than once."""
    seen: dict[str, ScoredItem] = {}
    for scored in items:
        seen.setdefault(canonical_json(scored.item.messages[-1:]), scored)
    return list(seen.values())[:_SHOWN]


def _example(scored: ScoredItem, say: Speaker) -> Example:
    turns = [Turn(_role(message, say), _text(message, say)) for message in scored.item.messages]
    return Example(
        earlier=turns[:-1],
        question=turns[-1].text if turns else "",
        baseline=_side(scored.item, scored.baseline_answer, scored.baseline, say),
        candidate=_side(scored.item, scored.candidate_answer, scored.candidate, say),
        reference=scored.item.reference,
    )


def _side(item: EvalItem, answer: str, scores: dict[str, float], say: Speaker) -> Side:
    shown = [f"{say.metric(name)}: {say.level(name, scores[name])}" for name in ("golden", "chrf") if name in scores]
    faults = [say.metric(name) for name in ("refusal", "repetition", "pii_leak") if scores.get(name)]
    if answer.strip():
        faults += [say("missed", rule=_rule(check, say)) for check in item.checks if not passes(check, answer)]
    return Side(answer, shown, faults)


def _rule(check: dict[str, JsonValue], say: Speaker) -> str:
    rule = parse_check(check)
    match rule:
        case Language():
            return say(f"rule_language_{rule.language}")
        case JsonSchema():
            return say("rule_json_schema")
        case _:
            return say(f"rule_{rule.kind}", **rule.model_dump(exclude={"kind"}))


def _role(message: Message, say: Speaker) -> str:
    role = message.get("role")
    return say(f"role_{role}") if role in ("system", "user", "assistant", "tool") else str(role)


def _text(message: Message, say: Speaker) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(_part(part, say) for part in content) if isinstance(content, list) else ""


def _part(part: JsonValue, say: Speaker) -> str:
    if isinstance(part, dict):
        text = part.get("text")
        return text if isinstance(text, str) else say("not_text", kind=str(part.get("type")))
    return str(part)
