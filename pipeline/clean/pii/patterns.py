"""How patterns are looked for; the patterns themselves are in recognisers.py.

Patterns see folded text (`spans.fold`). Each has a trigger, a necessary condition that is cheap to look for: most
texts hold nothing and must cost little.
"""

from collections.abc import Sequence

import regex

from pipeline.clean.pii.recognisers import RECOGNISERS, Recogniser
from pipeline.clean.pii.spans import Span, fold, resolve

_CONTEXT = 24
"""Characters before a match in which a context word counts."""
_PLACEHOLDER = regex.compile(r"(?:<|%3C)[A-Z]+(?:_[A-Z]+)*_\d+(?:>|%3E)")
_OPAQUE = regex.compile(
    r"(?<![0-9a-z])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=\d{0,31}[a-f])[0-9a-f]{32,128})(?![0-9a-z])",
    regex.IGNORECASE,
)
"""UUIDs and digests: digits inside them are no number of anybody."""


def find_patterns(folded: str) -> list[Span]:
    """All pattern matches in a folded text; they may overlap. Placeholders that stand there already are left alone."""
    found = [span for recogniser in RECOGNISERS for span in _find(recogniser, folded)]
    if not found:
        return found
    opaque = [match.span() for match in _OPAQUE.finditer(folded)]
    return [s for s in found if s.entity == "SECRET" or not any(a < s.end and s.start < b for a, b in opaque)]


class PatternDetector:
    """The honest fake of the port: everything structured, no names, no model files, no start-up time."""

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        return [self._find(text) for text in texts]

    def _find(self, text: str) -> list[Span]:
        folded = fold(text)
        return resolve(text, (folded.restore(span) for span in find_patterns(folded.text)))


def _find(recogniser: Recogniser, text: str) -> list[Span]:
    if not recogniser.trigger.search(text):
        return []
    group = "value" if "value" in recogniser.pattern.groupindex else 0
    matches = (match.span(group) for match in recogniser.pattern.finditer(text))
    return [Span(start, end, recogniser.entity) for start, end in matches if _counts(recogniser, text, start, end)]


def _counts(recogniser: Recogniser, text: str, start: int, end: int) -> bool:
    if _PLACEHOLDER.search(text, start, end):
        return False
    if recogniser.check and recogniser.check(text[start:end]):
        return True
    if recogniser.context:
        return bool(recogniser.context.search(text[max(0, start - _CONTEXT) : start]))
    return not recogniser.check
