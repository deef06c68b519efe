"""The words in which two texts differ; characters where the script writes no spaces."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rapidfuzz.distance import Indel

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNIT = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|\s+|.", re.DOTALL)
_IN_COMMON = 0.3
"""With less of both texts in common nearly everything would be marked, which shows nothing."""


class Span(NamedTuple):
    """A stretch of a text."""

    text: str
    marked: bool


class Difference(NamedTuple):
    """Two texts as spans, which joined are the texts again."""

    left: list[Span]
    right: list[Span]
    in_common: float
    """Share of both texts' words that stay unmarked: 1 for equal texts, and where neither has a word."""


def differing(left: str, right: str) -> Difference:
    """Mark what only one of the texts has. Texts with little in common stay unmarked."""
    units = _UNIT.findall(left), _UNIT.findall(right)
    kept = [False] * len(units[0]), [False] * len(units[1])
    for same in Indel.opcodes(*units):
        if same.tag == "equal" and not _is_island(same.src_start, same.src_end, same.dest_start, same.dest_end, units):
            kept[0][same.src_start : same.src_end] = [True] * (same.src_end - same.src_start)
            kept[1][same.dest_start : same.dest_end] = [True] * (same.dest_end - same.dest_start)
    words = [
        keep
        for side, flags in zip(units, kept, strict=True)
        for unit, keep in zip(side, flags, strict=True)
        if unit.isalnum()
    ]
    in_common = sum(words) / len(words) if words else 1.0
    if in_common < _IN_COMMON:
        kept = [True] * len(units[0]), [True] * len(units[1])
    return Difference(_spans(units[0], kept[0]), _spans(units[1], kept[1]), in_common)


def _is_island(start: int, end: int, other: int, other_end: int, units: tuple[Sequence[str], Sequence[str]]) -> bool:
    """One word or less between two differences: marking around it reads worse than marking over it."""
    inside = start > 0 and other > 0 and end < len(units[0]) and other_end < len(units[1])
    return inside and sum(unit.isalnum() for unit in units[0][start:end]) <= 1


def _spans(units: Sequence[str], kept: Sequence[bool]) -> list[Span]:
    spans: list[Span] = []
    for unit, keep in zip(units, kept, strict=True):
        if spans and spans[-1].marked is not keep:
            spans[-1] = Span(spans[-1].text + unit, not keep)
        else:
            spans.append(Span(unit, not keep))
    return spans
