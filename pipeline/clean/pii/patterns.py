"""How patterns are looked for; the patterns themselves are in recognisers.py.

Patterns see folded text (`spans.fold`). Each has a trigger, a necessary condition that is cheap to look for: most
texts hold nothing and must cost little.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import regex

from pipeline.clean.pii.recogniser import Recogniser, shape
from pipeline.clean.pii.recognisers import RECOGNISERS
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import Span, fold, resolve

_CONTEXT = 32
"""Characters before a match in which a context word counts."""
_PLACEHOLDER = regex.compile(r"(?:<|%3C)[A-Z]+(?:_[A-Z]+)*_\d+(?:>|%3E)")
_OPAQUE = regex.compile(
    r"(?<![0-9a-z])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=\d{0,31}[a-f])[0-9a-f]{32,128})(?![0-9a-z])",
    regex.IGNORECASE,
)
"""UUIDs and digests: digits inside them are no number of anybody."""


def find_patterns(folded: str) -> list[Span]:
    """All pattern matches in a folded text; they may overlap. Placeholders that stand there already are left alone."""
    outline = shape(folded)
    found = [
        span
        for name, recogniser in _NAMED
        if any(literal in outline for literal in recogniser.trigger)
        for span in _find(name, recogniser, folded)
    ]
    if not found:
        return found
    opaque = [match.span() for match in _OPAQUE.finditer(folded)]
    return [s for s in found if s.entity == "SECRET" or not any(a < s.end and s.start < b for a, b in opaque)]


class PatternDetector:
    """The honest fake of the port: everything structured, few names, no model files, no start-up time."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        return [self._find(text) for text in texts]

    def _find(self, text: str) -> list[Span]:
        folded = fold(text)
        found = [*find_patterns(folded.text), *self._rules.found(folded.text)]
        return resolve(text, self._rules.spare(text, [folded.restore(span) for span in found])) if found else []


def _named(recognisers: Iterable[Recogniser]) -> Iterator[tuple[str, Recogniser]]:
    """Each with the name that explanations call it by: its entity and its number among those of the entity."""
    seen: Counter[str] = Counter()
    for recogniser in recognisers:
        seen[recogniser.entity] += 1
        yield f"pattern {recogniser.entity} {seen[recogniser.entity]}", recogniser


_NAMED = tuple(_named(RECOGNISERS))


def _find(name: str, recogniser: Recogniser, text: str) -> list[Span]:
    group = "value" if "value" in recogniser.pattern.groupindex else 0
    matches = (match.span(group) for match in recogniser.pattern.finditer(text))
    return [
        Span(start, end, recogniser.entity, f"{name}: {why}")
        for start, end in matches
        if (why := _why(recogniser, text, start, end))
    ]


def _why(recogniser: Recogniser, text: str, start: int, end: int) -> str | None:
    """What makes a match count; None when nothing does."""
    if _PLACEHOLDER.search(text, start, end):
        return None
    if recogniser.check and recogniser.check(text[start:end]):
        return "its form and a check of the value"
    if recogniser.context and recogniser.context.search(text[max(0, start - _CONTEXT) : start]):
        return "its form and the words before it"
    return None if recogniser.check or recogniser.context else "its form"
