"""Spans of personal data, and the folding that lets one set of patterns see every width and script of digits."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from pipeline.clean.pii.rules import Rules

NAMES = frozenset({"PERSON", "LOCATION"})
"""Entities that a language model finds, at a measured rate; all others come from patterns."""


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (exclusive) of a text are an `entity`."""

    start: int
    end: int
    entity: str
    rule: str = field(default="", compare=False)
    """What found it, in words."""
    score: float = field(default=1.0, compare=False)
    """How sure that is, in [0, 1]."""


PiiDetector: TypeAlias = Callable[[Sequence[str]], list[list[Span]]]
"""Texts to the spans of each: in order, not overlapping. It may raise; the caller then drops what it asked about."""


def make_detector(language: Literal["en", "zh"], rules: "Rules | None" = None) -> PiiDetector:
    """The real detector of a language by a business's rules, with its models loaded (seconds, about 500 MB)."""
    from pipeline.clean.pii.detector import PresidioDetector

    return PresidioDetector(language, rules)


def _fold_table() -> dict[int, str]:
    table = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    for code in range(0x20000):
        digit = unicodedata.digit(chr(code), None) if unicodedata.category(chr(code)) == "Nd" else None
        if digit is not None:
            table[code] = str(digit)
    for first in (0x2460, 0x2776):  # circled
        table |= {first + number: str(number + 1) for number in range(9)}
    table |= dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2009\u202f\u3000"), " ")
    table |= dict.fromkeys(map(ord, "‐‑‒–—―−﹣"), "-")
    return table


_FOLD = _fold_table()
_INVISIBLE = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufe0e\ufe0f\u20e3\ufeff")
"""White space of no width, soft hyphens, and what turns a digit into a key."""


@dataclass(frozen=True)
class Folded:
    """A text in ASCII width without invisible characters, and the way back to the original's offsets."""

    text: str
    origins: tuple[int, ...] | None
    """Original offset of each character and of the end; None when offsets are the same."""

    def restore(self, span: Span) -> Span:
        """The span in the original text; invisible characters inside it and right behind it belong to it."""
        if self.origins is None:
            return span
        return replace(span, start=self.origins[span.start], end=self.origins[span.end])


def fold(text: str) -> Folded:
    """Full-width forms, foreign digits, dashes and spaces become ASCII one to one; invisible characters go.

    NFKC would do the first part too, but changes lengths, and offsets must lead back.
    """
    if _INVISIBLE.isdisjoint(text):
        return Folded(text if text.isascii() else text.translate(_FOLD), None)
    origins = [at for at, char in enumerate(text) if char not in _INVISIBLE]
    kept = "".join(text[at] for at in origins)
    return Folded(kept.translate(_FOLD), (*origins, len(text)))


def resolve(text: str, spans: Iterable[Span]) -> list[Span]:
    """Spans in order, none overlapping another, together covering all that was found.

    Overlapping patterns become one span of the longest one's entity, so that no rest of a value is left over. Of two
    that are as long the surer one counts, then a resident id: its date is more proof than the check digit of a card.
    A name gives way to a pattern and keeps what remains of it when that holds a letter.
    """
    found = sorted(dict.fromkeys(spans), key=lambda s: (s.start, -s.end, s.entity in NAMES, s.entity))
    firm: list[Span] = []
    for span in (s for s in found if s.entity not in NAMES):
        last = firm[-1] if firm else None
        if last is None or span.start >= last.end:
            firm.append(span)
        else:
            longer = max(last, span, key=lambda s: (s.end - s.start, s.score, s.entity == "ID_CARD"))
            firm[-1] = replace(longer, start=last.start, end=max(last.end, span.end))
    taken = bytearray(len(text))
    for span in firm:
        taken[span.start : span.end] = b"\x01" * (span.end - span.start)
    names: list[Span] = []
    for span in sorted((s for s in found if s.entity in NAMES), key=lambda s: (s.start - s.end, s.start, s.entity)):
        for start, end in _free_runs(taken, span):
            if any(char.isalpha() for char in text[start:end]):
                names.append(replace(span, start=start, end=end))
        taken[span.start : span.end] = b"\x01" * (span.end - span.start)
    return sorted(firm + names, key=lambda s: s.start)


def _free_runs(taken: bytearray, span: Span) -> Iterable[tuple[int, int]]:
    at = span.start
    while (start := taken.find(0, at, span.end)) >= 0:
        end = taken.find(1, start, span.end)
        at = span.end if end < 0 else end
        yield start, at
