"""Judges for tests: what they are shown is read back from their prompt, as a model would have to."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.records import Message

_SHOWN = re.compile(
    r"<answer (?P<side>[AB]) (?P<code>[0-9a-f]{16})>\n(?P<text>.*?)\n</answer (?P=side) (?P=code)>", re.DOTALL
)


def answers_in(prompt: Sequence[Message]) -> tuple[str, str]:
    """The texts of A and B."""
    shown = {found["side"]: found["text"] for found in _SHOWN.finditer(str(prompt[-1]["content"]))}
    return shown["A"], shown["B"]


def verdict(better: str, **fields: Any) -> str:
    return json.dumps({"reason": "Because.", "better": better} | fields)


def prefers(better: Callable[[str, str], bool]) -> Callable[[Sequence[Message]], str]:
    """Replies of a judge without any bias: `better(one, other)` says whether `one` is the better answer."""

    def reply(prompt: Sequence[Message]) -> str:
        first, second = answers_in(prompt)
        return verdict("A" if better(first, second) else "B" if better(second, first) else "tie")

    return reply
