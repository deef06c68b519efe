"""Presidio's own recognisers, for numbers that this package has no pattern for: other countries' telephones, papers.

Presidio is assembled by hand: its defaults download a model, ask the network for the list of top-level domains, and
look for kinds of data (dates, organisations, nationalities) whose removal would leave little to learn from.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import regex
import tldextract
from presidio_analyzer import AnalyzerEngine, EntityRecognizer, RecognizerRegistry, RecognizerResult
from presidio_analyzer.nlp_engine import NlpArtifacts, NlpEngine
from presidio_analyzer.predefined_recognizers import (
    CryptoRecognizer,
    PhoneRecognizer,
    UsItinRecognizer,
    UsLicenseRecognizer,
    UsPassportRecognizer,
    UsSsnRecognizer,
)

from pipeline.clean.pii.rules import REGIONS
from pipeline.clean.pii.spans import Span

tldextract.extract = tldextract.TLDExtract(suffix_list_urls=())  # type: ignore[assignment]  # the bundled list; no request at the first e-mail
logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)  # its warnings quote what it analyses

_OURS = {
    "PHONE_NUMBER": "PHONE",
    "US_SSN": "SSN",
    "US_ITIN": "SSN",
    "US_PASSPORT": "PASSPORT",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
}
_SHAPE_ALONE = 0.35
"""Below this threshold a shape counts without the words around it, and every text must be looked at."""
_SHORTEST_PHONE = 7
"""Digits: numbering plans hold emergency numbers too, and those are nobody's."""
_WORD = regex.compile(r"\w+|[^\w\s]")
_DIGITS = regex.compile(rf"\d(?:[^\w\n]{{0,4}}\d){{{_SHORTEST_PHONE - 1}}}")
_DIALLED = regex.compile(r"[+(]\d|(?<!\d)0\d{5}|\d[ ()\-]+\d|\d\.\d+\.\d")
_PAPERS = regex.compile(r"\d{8}|(?i:driv|licen[sc]e|permit|\blic\b|identification|\bc?dls?\b)")
_DIGIT = regex.compile(r"\d")
_WALLET = regex.compile(r"[A-Za-z0-9]{25}")


class PresidioNumbers:
    """An `AnalyzerEngine` without a language model. It is asked only about texts that may hold something."""

    def __init__(self, language: Literal["en", "zh"], threshold: float) -> None:
        self._asked_always = threshold < _SHAPE_ALONE
        self._language = language
        self._analyzer = AnalyzerEngine(
            registry=RecognizerRegistry(recognizers=_recognizers(language), supported_languages=["en"]),
            nlp_engine=_Words(),
            supported_languages=["en"],
            default_score_threshold=threshold,
        )

    def __call__(self, folded: str) -> list[Span]:
        """Spans in a folded text, with their scores; they may overlap."""
        if self._asked_always:
            return self.look(folded)
        if not may_hold_a_number(folded, self._language):
            return []
        return self.look(_masked(folded) if self._language == "zh" else folded)

    def look(self, folded: str) -> list[Span]:
        """The same without asking first whether it is worth it."""
        return list(_spans(folded, self._analyzer.analyze(folded, "en")))


def may_hold_a_number(folded: str, language: Literal["en", "zh"]) -> bool:
    """Whether one of these recognisers may be sure enough of something: a necessary condition that costs little.

    That is digits that are written as a telephone number, or a long run of letters and digits. In English, where
    American papers are looked for, it is also a run of digits, or what a driver's license is called, whose shape alone
    says nothing.
    """
    return bool(
        (_DIGITS.search(folded) and _DIALLED.search(folded))
        or _WALLET.search(folded)
        or (language == "en" and _PAPERS.search(folded))
    )


def _masked(folded: str) -> str:
    """A text with its digits gone from lines that hold no number: each costs dearly, and service talks are full of
    them. Neither a telephone number nor a wallet goes over the end of a line. Words and offsets stay."""
    lines = folded.split("\n")
    return "\n".join(line if may_hold_a_number(line, "zh") else _DIGIT.sub("x", line) for line in lines)


def _recognizers(language: Literal["en", "zh"]) -> list[EntityRecognizer]:
    common: list[EntityRecognizer] = [PhoneRecognizer(supported_regions=REGIONS[language]), CryptoRecognizer()]
    american = [UsSsnRecognizer(), UsItinRecognizer(), UsPassportRecognizer(), UsLicenseRecognizer()]
    return [*common, *american] if language == "en" else common


def _spans(text: str, results: Iterable[RecognizerResult]) -> Iterator[Span]:
    for result in results:
        name = (result.recognition_metadata or {}).get(RecognizerResult.RECOGNIZER_NAME_KEY, "")
        entity = _OURS.get(result.entity_type, result.entity_type)
        span = Span(result.start, result.end, entity, f"Presidio's {name}", result.score)
        if result.entity_type != "PHONE_NUMBER":
            yield span
        elif _is_phone(text, span):
            yield _without_open_bracket(text, span)


def _without_open_bracket(text: str, span: Span) -> Span:
    opened = text[span.start] == "(" and ")" not in text[span.start : span.end]
    return replace(span, start=span.start + 1) if opened else span


def _is_phone(text: str, span: Span) -> bool:
    """Whether a run of digits is written as a phone number: the list of numbering plans alone takes any ten digits."""
    value = text[span.start : span.end]
    if sum(char.isdigit() for char in value) < _SHORTEST_PHONE:
        return False
    before, after = text[max(0, span.start - 2) : span.start], text[span.end : span.end + 2]
    if regex.search(r"[\p{L}\d][-.]?$|[#$€£¥]$", before) or regex.match(r"[-.]?[A-Za-z\d]", after):
        return False
    return bool(regex.search(r"^[+(]|^0\d+$|\d[ ()-]+\d|\d\.\d+\.\d", value))


class _Words(NlpEngine):
    """The words of a text, in lower case: what Presidio looks for a number's context in, and no more."""

    def load(self) -> None:
        """Loaded when made."""

    def is_loaded(self) -> bool:
        return True

    def process_text(self, text: str, language: str) -> NlpArtifacts:
        words = [(match.start(), match.group().lower()) for match in _WORD.finditer(text)]
        tokens = [word for _, word in words]
        return NlpArtifacts([], tokens, [start for start, _ in words], tokens, self, language)  # type: ignore[arg-type]  # only their lengths are read

    def process_batch(
        self, texts: Iterable[str], language: str, batch_size: int = 1, n_process: int = 1, **_: Any
    ) -> Iterator[tuple[str, NlpArtifacts]]:
        yield from ((text, self.process_text(text, language)) for text in texts)

    def is_stopword(self, word: str, language: str) -> bool:
        return False

    def is_punct(self, word: str, language: str) -> bool:
        return not any(char.isalnum() for char in word)

    def get_supported_entities(self) -> list[str]:
        return []

    def get_supported_languages(self) -> list[str]:
        return ["en"]
