"""Answers side by side: which is the new one is hidden, and what differs is marked."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from evals.checks import passes
from evals.report.difference import Difference, Span, differing
from evals.report.speaker import Speaker
from evals.report.verdict import gain
from pipeline.dataset.suite import JsonSchema, Language, parse_check
from pipeline.records import Check, EvalItem, Message, ScoredItem, canonical_json, content_id

_OF_A_KIND = 3
LONGEST = 2000
"""Characters of a text that are shown: who has read as many knows the answer's quality."""


class Turn(NamedTuple):
    """One message as it is shown."""

    role: str
    text: str


class Answer(NamedTuple):
    """One of two answers, with what only this one says marked."""

    name: str
    spans: list[Span]
    more: str
    """How much is left out, in words; empty when all is shown."""


class Unveiled(NamedTuple):
    """Whose an answer is and how it did."""

    name: str
    who: str
    version: str
    scores: list[str]
    faults: list[str]


class Sample(NamedTuple):
    """One question with two answers."""

    earlier: list[Turn]
    question: str
    answers: tuple[Answer, Answer]
    note: str
    """What the marks cannot tell: the answers are equal, or have nothing in common."""
    reference: str | None = None
    unveiled: tuple[Unveiled, ...] = ()
    verdict: str = ""
    """How the new answer scored, in words."""


def samples(
    scored: Sequence[ScoredItem], primary: Check, seed: int, sides: tuple[str, str], say: Speaker
) -> list[Sample]:
    """A few questions on which the new version scored most above and most below, and a few drawn by chance.

    They stand in one list, by how much both answers differ (in score, then in words), so that their place does not
    tell which answer is the new one. A coin that the seed and the item decide puts the new one first or second.

    Args:
        scored: items with the primary metric on both sides.
        seed: of the drawing and of the coins.
        sides: what the baseline and the candidate are called.
    """
    ordered = _distinct(sorted(scored, key=lambda item: (-gain(item, primary.metric), item.item.item_id)))
    above = [item for item in ordered if gain(item, primary.metric) > 0][:_OF_A_KIND]
    below = [item for item in reversed(ordered) if gain(item, primary.metric) < 0][:_OF_A_KIND]
    taken = {item.item.item_id for item in above + below}
    others = [item for item in ordered if item.item.item_id not in taken]
    drawn = random.Random(seed).sample(others, min(_OF_A_KIND, len(others)))
    compared = [(item, _difference(item.baseline_answer, item.candidate_answer)) for item in above + below + drawn]
    compared.sort(key=lambda one: (-abs(gain(one[0], primary.metric)), one[1].in_common, one[0].item.item_id))
    return [_sample(item, found, primary, seed, sides, say) for item, found in compared]


def wishes(scored: Sequence[ScoredItem], seed: int, say: Speaker) -> list[Sample]:
    """A few answers that users rejected, beside those that they preferred or wrote themselves."""
    rated = [item for item in scored if item.item.reference and item.item.rejected]
    rated = _distinct(sorted(rated, key=lambda item: item.item.item_id))
    chosen = random.Random(seed).sample(rated, min(_OF_A_KIND, len(rated)))
    return [_wish(one.item, say) for one in chosen]


def _distinct(items: Sequence[ScoredItem]) -> list[ScoredItem]:
    """The first item of each question: the same one three times tells no more than once."""
    seen: dict[str, ScoredItem] = {}
    for scored in items:
        seen.setdefault(canonical_json(scored.item.messages[-1:]), scored)
    return list(seen.values())


def _difference(left: str, right: str) -> Difference:
    return differing(left[:LONGEST], right[:LONGEST])


def _wish(item: EvalItem, say: Speaker) -> Sample:
    rejected, wanted = item.rejected or "", item.reference or ""
    found = _difference(rejected, wanted)
    answers = _answer(say("was_answered"), found.left, rejected, say), _answer(say("wanted"), found.right, wanted, say)
    return Sample(*_asked(item, say), answers, _note(found, rejected == wanted, say))


def _sample(
    scored: ScoredItem, found: Difference, primary: Check, seed: int, sides: tuple[str, str], say: Speaker
) -> Sample:
    old = (scored.baseline_answer, found.left, scored.baseline, say("in_service"), sides[0])
    new = (scored.candidate_answer, found.right, scored.candidate, say("candidate"), sides[1])
    new_first = int(content_id([seed, scored.item.item_id])[0], 16) % 2 == 0
    shown = list(zip("AB", (new, old) if new_first else (old, new), strict=True))
    first, second = (_answer(name, spans, text, say) for name, (text, spans, *_) in shown)
    gained = gain(scored, primary.metric)
    equal = scored.baseline_answer == scored.candidate_answer
    return Sample(
        *_asked(scored.item, say),
        (first, second),
        _note(found, equal, say),
        reference=None if scored.item.reference is None else _shortened(scored.item.reference, say),
        unveiled=tuple(
            Unveiled(name, who, version, _scores(scores, say), _faults(scored.item, text, scores, say))
            for name, (text, _, scores, who, version) in shown
        ),
        verdict=say("scored_better" if gained > 0 else "scored_worse" if gained < 0 else "scored_same"),
    )


def _asked(item: EvalItem, say: Speaker) -> tuple[list[Turn], str]:
    turns = [Turn(_role(message, say), _shortened(_text(message, say), say)) for message in item.messages]
    return turns[:-1], turns[-1].text if turns else ""


def _answer(name: str, spans: list[Span], text: str, say: Speaker) -> Answer:
    return Answer(name, spans if text.strip() else [], _more(text, say))


def _note(found: Difference, equal: bool, say: Speaker) -> str:
    if equal:
        return say("answers_equal")
    unmarked = not any(span.marked for span in found.left + found.right)
    return say("answers_apart") if unmarked and found.left and found.right and found.in_common < 1 else ""


def _more(text: str, say: Speaker) -> str:
    return say("more_characters", n=len(text) - LONGEST) if len(text) > LONGEST else ""


def _shortened(text: str, say: Speaker) -> str:
    return f"{text[:LONGEST]} {_more(text, say)}".rstrip() if len(text) > LONGEST else text


def _scores(scores: dict[str, float], say: Speaker) -> list[str]:
    return [f"{say.metric(name)}: {say.level(name, scores[name])}" for name in ("golden", "chrf") if name in scores]


def _faults(item: EvalItem, answer: str, scores: dict[str, float], say: Speaker) -> list[str]:
    faults = [say.metric(name) for name in ("refusal", "repetition", "pii_leak") if scores.get(name)]
    if answer.strip():
        faults += [say("missed", rule=_rule(check, say)) for check in item.checks if not passes(check, answer)]
    return faults


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
