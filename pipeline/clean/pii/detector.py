"""The real detector: this package's patterns, Presidio's recognisers, and a model of names for each language.

A text may hold both languages, so both models look at it, each at the parts that are written in its language. A model
is loaded when the first such part comes.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import regex

from pipeline.clean.pii.patterns import find_patterns
from pipeline.clean.pii.presidio import PresidioNumbers
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import PiiDetector, Span, fold, resolve

if TYPE_CHECKING:
    from pipeline.clean.pii.chinese import ChineseNames
    from pipeline.clean.pii.english import EnglishNames

_THRESHOLD = 0.4
"""What Presidio gives a number that only has the right shape is below; with a word such as "passport" near, above."""
_NAME_SCORE = 0.85
_LONG_NAME = 60
_PART = regex.compile(r"(?<!\w)(?-i:\p{Lu})\p{Ll}{2,}(?!\w)")
_HAN = regex.compile(r"\p{Han}")
_LATIN = regex.compile(r"[A-Za-z]{2}")
_NO_NAME = regex.compile(r"[\d_=/\\<>{}@#()\[\]\"]")


class PresidioDetector:
    """Finds structured data and names. About 500 MB, most of it what Presidio and spaCy import; seconds to load.

    Args:
        language: whose numbering plans and papers are looked for.
        rules: of the business.
    """

    def __init__(self, language: Literal["en", "zh"], rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self._numbers = PresidioNumbers(language, min([_THRESHOLD, *self._rules.thresholds.values()]))

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        folded = [fold(text) for text in texts]
        named = self._names([f.text for f in folded])
        return [
            resolve(text, self._rules.spare(text, [f.restore(span) for span in self._found(f.text, names)]))
            for text, f, names in zip(texts, folded, named, strict=True)
        ]

    @cached_property
    def _english(self) -> "EnglishNames":
        from pipeline.clean.pii.english import EnglishNames

        return EnglishNames()

    @cached_property
    def _chinese(self) -> "ChineseNames":
        from pipeline.clean.pii.chinese import ChineseNames

        return ChineseNames()

    def _names(self, texts: Sequence[str]) -> list[list[Span]]:
        english = _where(_LATIN, texts, lambda rows: self._english(rows))
        chinese = _where(_HAN, texts, lambda rows: self._chinese(rows))
        return [[*one, *other] for one, other in zip(english, chinese, strict=True)]

    def _found(self, text: str, names: Iterable[Span]) -> Iterator[Span]:
        scored = (*self._numbers(text), *_trimmed(text, names))
        sure = [span for span in scored if span.score >= self._rules.thresholds.get(span.entity, _THRESHOLD)]
        found = [*find_patterns(text), *self._rules.found(text), *sure]
        yield from found
        yield from _parts_alone(text, found)


def _where(script: "regex.Pattern[str]", texts: Sequence[str], model: PiiDetector) -> list[list[Span]]:
    """What a model finds in the texts that hold its script; the others cost nothing."""
    found: list[list[Span]] = [[] for _ in texts]
    rows = [row for row, text in enumerate(texts) if script.search(text)]
    if rows:
        for row, spans in zip(rows, model([texts[row] for row in rows]), strict=True):
            found[row] = spans
    return found


def _trimmed(text: str, names: Iterable[Span]) -> Iterator[Span]:
    """Names without digits and punctuation at their edges; none where no plausible name remains."""
    for span in names:
        value = text[span.start : span.end].split("\n")[0]
        start = len(value) - len(regex.sub(r"^[^\p{L}]+", "", value))
        name = regex.sub(r"(?:['’]s)?[^\p{L}.]*$", "", value[start:])
        if 1 < len(name) <= _LONG_NAME and (_HAN.search(name) or not _NO_NAME.search(name)):
            begin = span.start + start
            yield Span(begin, begin + len(name), span.entity, "the language's model of names", _NAME_SCORE)


def _parts_alone(text: str, found: Iterable[Span]) -> Iterator[Span]:
    """A first or last name where it stands alone, in a text that holds the whole name."""
    wholes = [text[span.start : span.end] for span in found if span.entity == "PERSON"]
    parts = {part for whole in wholes if " " in whole for part in _PART.findall(whole)}
    if parts:
        alone = regex.compile(rf"(?<!\w)(?:{'|'.join(map(regex.escape, sorted(parts)))})(?!\w)")
        for match in alone.finditer(text):
            yield Span(match.start(), match.end(), "PERSON", "a part of a name that stands in this text", _NAME_SCORE)
