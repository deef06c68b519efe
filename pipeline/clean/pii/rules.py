"""What a business says about personal data, applied: values left alone, patterns of its own, thresholds.

Left alone is a value, not a run of characters: `0571-8888 6666` is the hotel's line in every spelling, and is not the
middle of a longer number. A business's own patterns run with a time limit, and a text that exceeds it fails.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import phonenumbers
import regex

from pipeline.clean.pii.spans import Span, fold
from pipeline.clean.pii.surrogates import surrogates_in
from pipeline.clean.pii_config import PiiConfig, compile_pattern
from pipeline.errors import DataError

REGIONS: Mapping[Literal["en", "zh"], Sequence[str]] = {
    "en": ("US", "GB", "AU", "IN", "DE", "FR"),
    "zh": ("CN", "HK", "TW", "MO"),
}
"""Whose numbering plans are looked for in texts of a language."""
ALLOWED = "ALLOWED"
"""The entity of spans that are left alone."""
_SECONDS = 0.5
"""Processor time that one pattern may take for one text."""
_TIMEOUTS = 20
"""So many texts may a pattern fail on; then it is the pattern, and the night ends."""
_PLACEHOLDER = regex.compile(r"(?:<|%3C)[A-Z]+(?:_[A-Z]+)*_\d+(?:>|%3E)")
_TOKEN = regex.compile(r"\p{Han}+|[^\W\p{Han}]+|[^\w\s]")
_BETWEEN_DIGITS = r"[\s().\-·]{0,3}+"
_TRIM = regex.compile(r"[\p{L}\p{N}](?:.*[\p{L}\p{N}])?", regex.DOTALL)


class Rules:
    """A business's rules. Without a configuration nothing is left alone and nothing goes besides."""

    def __init__(self, config: PiiConfig | None = None, language: Literal["en", "zh"] = "en") -> None:
        said = config or PiiConfig()
        self.surrogates = said.placeholders == "surrogates"
        """Whether values are replaced by surrogates where their kind has them; those that stand in a text are left."""
        self.thresholds: dict[str, float] = {str(entity): least for entity, least in said.thresholds.items()}
        self._own = [
            (_Timed(f"pii.recognisers '{own.name}'", own.pattern), own.entity, own.name) for own in said.recognisers
        ]
        self._patterns = [_Timed(f"pii.allow_patterns {source!r}", source) for source in said.allow_patterns]
        numbers = [fold(value).text for value in said.allow if _is_number(value)]
        words = [fold(value).text for value in said.allow if not _is_number(value)]
        forms = [form for number in numbers for form in _number_forms(number, REGIONS[language])]
        self._allowed = _either([*forms, *map(_spaced_words, words)])

    def found(self, folded: str) -> list[Span]:
        """What the business's own recognisers find in a folded text. Placeholders that stand there are left alone."""
        spans = [
            Span(start, end, entity, f"pii.recognisers '{name}'")
            for pattern, entity, name in self._own
            for start, end in pattern.matches(folded)
        ]
        if not spans:
            return spans
        taken = [match.span() for match in _PLACEHOLDER.finditer(folded)]
        return [rest for span in spans for rest in _cut(folded, span, taken)]

    def spare(self, text: str, spans: Sequence[Span]) -> list[Span]:
        """The spans without what is left alone.

        What lies inside an allowed value goes from the list, and what holds one is cut around it. A secret, and a
        number that an allowed one is only a part of, stay whole: they are other values.
        """
        if self.surrogates:
            spans = _without_surrogates(text, spans)
        allowed = self.allowed_in(text, spans)
        if not allowed:
            return list(spans)
        alone = {(span.start, span.end) for span in spans}
        kept: list[Span] = []
        for span in spans:
            over = [a for a in allowed if a.start < span.end and span.start < a.end]
            if any(a.start <= span.start and span.end <= a.end for a in over):
                continue
            parts = [a for a in over if (a.start, a.end) not in alone and _is_number(text[a.start : a.end])]
            if span.entity == "SECRET" or any(_has_digits_beside(text, span, part) for part in parts):
                kept.append(span)
            else:
                kept += _cut(text, span, [(a.start, a.end) for a in over])
        return kept

    def allowed_in(self, text: str, spans: Iterable[Span]) -> list[Span]:
        """Where allowed values stand, in order."""
        found: list[Span] = []
        if self._allowed:
            folded = fold(text)
            matches = (match.span() for match in self._allowed.finditer(folded.text))
            found += [folded.restore(Span(start, end, ALLOWED, "pii.allow")) for start, end in matches]
        if self._patterns:
            found += [
                Span(span.start, span.end, ALLOWED, "pii.allow_patterns")
                for span in spans
                if span.entity != "SECRET" and self._fits_a_pattern(fold(text[span.start : span.end]).text)
            ]
        return sorted(set(found), key=lambda span: (span.start, -span.end))

    def _fits_a_pattern(self, value: str) -> bool:
        return any(pattern.is_whole(value) for pattern in self._patterns)


class _Timed:
    """A pattern of the configuration with its time limit."""

    def __init__(self, name: str, source: str) -> None:
        self._name = name
        self._pattern = compile_pattern(source)
        self._group = "value" if "value" in self._pattern.groupindex else 0
        self._timeouts = 0

    def matches(self, text: str) -> list[tuple[int, int]]:
        """Where it matches, empty matches left out.

        Raises:
            TimeoutError: it took too long, so that nobody knows what the text holds.
            DataError: it did on many texts.
        """
        try:
            found = [match.span(self._group) for match in self._pattern.finditer(text, timeout=_SECONDS)]
        except TimeoutError as error:
            raise self._too_slow() from error
        return [(start, end) for start, end in found if start < end]

    def is_whole(self, text: str) -> bool:
        """Whether it matches from the first to the last character; raises as `matches` does."""
        try:
            return self._pattern.fullmatch(text, timeout=_SECONDS) is not None
        except TimeoutError as error:
            raise self._too_slow() from error

    def _too_slow(self) -> Exception:
        self._timeouts += 1
        if self._timeouts >= _TIMEOUTS:
            return DataError(
                f"{self._name}: took more than {_SECONDS:g} s on each of {self._timeouts} texts; mend the pattern in "
                "the business's file, such as a repetition in a repetition"
            )
        return TimeoutError(f"{self._name} took more than {_SECONDS:g} s")


def _without_surrogates(text: str, spans: Sequence[Span]) -> list[Span]:
    folded = fold(text)
    taken = [folded.restore(Span(start, end, "SURROGATE")) for start, end in surrogates_in(folded.text)]
    return [span for span in spans if not any(t.start <= span.start and span.end <= t.end for t in taken)]


def _is_number(value: str) -> bool:
    plain = fold(value).text
    return any(char.isdigit() for char in plain) and not any(char.isalpha() for char in plain) and "@" not in plain


def _number_forms(number: str, regions: Iterable[str]) -> Iterator[str]:
    """Patterns of a number as it is given and, where it can be a telephone's, with and without its country's code."""
    bodies = {_spaced_digits(number)}
    for region in regions:
        try:
            parsed = phonenumbers.parse(number, region)
        except phonenumbers.NumberParseException:
            continue
        if phonenumbers.is_possible_number(parsed):
            country = rf"(?:(?:\+|00)?{_spaced_digits(str(parsed.country_code))}{_BETWEEN_DIGITS})?(?:\(?0\)?[ \-]?)?"
            bodies.add(country + _spaced_digits(phonenumbers.national_significant_number(parsed)))
    for body in sorted(bodies):
        yield rf"(?<!\d)(?<!\d[.\-]){body}(?!\d)(?![.\-]\d)"


def _spaced_digits(value: str) -> str:
    return _BETWEEN_DIGITS.join(char for char in value if char.isdigit())


def _spaced_words(value: str) -> str:
    tokens = _TOKEN.findall(value)
    body = r"\s{0,3}".join(regex.escape(token) for token in tokens)
    before = r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9][._%+@\-])" if tokens[0].isascii() else ""
    after = r"(?![A-Za-z0-9_])(?![._%+@\-][A-Za-z0-9])" if tokens[-1].isascii() else ""
    return before + body + after


def _either(forms: Iterable[str]) -> "regex.Pattern[str] | None":
    """One pattern for all, the longest form first."""
    ordered = sorted(set(forms), key=lambda form: (-len(form), form))
    return regex.compile("|".join(ordered), regex.IGNORECASE) if ordered else None


def _has_digits_beside(text: str, span: Span, allowed: Span) -> bool:
    beside = text[span.start : max(span.start, allowed.start)] + text[min(span.end, allowed.end) : span.end]
    return any(char.isdigit() for char in beside)


def _cut(text: str, span: Span, taken: Sequence[tuple[int, int]]) -> list[Span]:
    """What remains of a span around what is taken, where it holds a letter or a digit, without marks at its edges.

    A span that nothing is taken from stays as it is.
    """
    if not any(start < span.end and span.start < end for start, end in taken):
        return [span]
    rests: list[Span] = []
    at = span.start
    for start, end in [*sorted(pair for pair in taken if pair[0] < span.end and span.start < pair[1]), (span.end, at)]:
        match = _TRIM.search(text, at, start) if at < start else None
        if match:
            rests.append(replace(span, start=match.start(), end=match.end()))
        at = max(at, end)
    return rests
