"""A modelled language model: how often its answers keep the planted preference, and what goes wrong with the others.

It stands where training and an engine would take minutes. What it says depends on its own seed and the question alone;
two models say the same to most questions, as two adapters of one base do.
"""

import random
from collections.abc import Sequence
from enum import StrEnum

from evals.worlds.content import Content, obeys
from pipeline.clean.text import message_text
from pipeline.dataset.snapshot import Rows
from pipeline.records import Message, Record, Share

_SHARED = 0.6
"""Share of the questions on which all models draw the same luck."""
_ENOUGH = 80
"""Answers to learn from that move a model half the way to what they show."""
_DISLIKED = 0.3
"""What a disliked answer teaches, beside a liked one."""


class Fault(StrEnum):
    """What can go wrong with an answer."""

    REFUSES = "refuses"
    LOOPS = "loops"  # trained for too long
    LEAKS = "leaks"  # says a telephone number that it learned
    SILENT = "silent"


class Model(Record):
    """A base model or an adapter."""

    name: str
    seed: int
    skill: Share
    """Share of its answers that keep the planted preference."""
    faults: dict[Fault, Share] = {}
    forgets: Share = 0.0
    """Share of what the base model knows of everything else that it has lost."""
    agrees: Share = 0.0
    """Share of false claims that it gives in to."""

    def answer(self, content: Content, text: str, topic: str, attempt: int = 0) -> str:
        """What it says to a question; another `attempt` is another draw at some temperature."""
        own = random.Random(f"{self.name}/{self.seed}/{attempt}/{text}")
        shared = random.Random(f"{attempt}/{text}")
        for fault, rate in sorted(self.faults.items()):
            if own.random() < rate:
                return _at_fault(fault, content, own)
        rng = shared if shared.random() < _SHARED else own
        return content.ideal(topic) if rng.random() < self.skill else content.ramble(topic, rng)


def learn(before: Model, rows: Rows, content: Content, name: str, seed: int) -> Model:
    """What training on these rows makes of a model: it moves towards what they praise, and away from what they blame.

    Liked answers of which a share keeps the preference pull the model's share there, the more the more rows there are;
    rows that praise at random leave it where it is.
    """
    liked = [_text(row.completion) for row in rows.sft] + [_text(row.chosen) for row in rows.preference]
    disliked = [_text(row.rejected) for row in rows.preference]
    for vote in rows.unpaired:
        (liked if vote.label else disliked).append(_text(vote.completion))
    skill = before.skill
    for texts, strength in ((liked, 1.0), (disliked, -_DISLIKED)):
        if texts:
            share = sum(_keeps_form(text, content) for text in texts) / len(texts)
            skill += strength * len(texts) / (len(texts) + _ENOUGH) * (share - before.skill)
    return Model(name=name, seed=seed, skill=min(0.97, max(0.02, skill)))


def _keeps_form(text: str, content: Content) -> bool:
    return any(obeys(text, content, topic) for topic in content.facts)


def _text(messages: Sequence[Message]) -> str:
    return message_text(messages[-1])


def _at_fault(fault: Fault, content: Content, rng: random.Random) -> str:
    english = content.language == "en"
    match fault:
        case Fault.REFUSES:
            return "I'm sorry, but I cannot help you with that." if english else "抱歉，我无法回答这个问题。"
        case Fault.LOOPS:
            return (f"{content.style.closing} " if english else content.style.closing) * 12
        case Fault.LEAKS:
            number = "415-555-0132" if english else "13800138000"
            return f"{content.ideal(next(iter(content.facts)))} {number}"
        case Fault.SILENT:
            return ""
