"""Why a text is scrubbed as it is: the very steps of a night, on one text, with what each of them found."""

from dataclasses import dataclass

from pipeline.clean.pii.patterns import PatternDetector
from pipeline.clean.pii.placeholders import ScrubFailure, Texts, find_all, pieces_of, scrub_conversation, spans_of
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import PiiDetector, Span
from pipeline.errors import DataError

_SWEPT = "it was found elsewhere in the text, or showed when something else was replaced"


@dataclass(frozen=True)
class Finding:
    """One value, and what becomes of it."""

    value: str
    entity: str
    placeholder: str
    rule: str
    score: float


@dataclass(frozen=True)
class LeftAlone:
    """A value that the business calls its own."""

    value: str
    rule: str


@dataclass(frozen=True)
class Explanation:
    """What was found in a text, in order, and the text as it would be trained on."""

    findings: tuple[Finding, ...]
    left_alone: tuple[LeftAlone, ...]
    scrubbed: str


def explain(text: str, detector: PiiDetector, rules: Rules) -> Explanation:
    """Scrub a text as a user's message and say why.

    Raises:
        DataError: it cannot be scrubbed; a record that holds it would be dropped.
    """
    turn = Texts(({"role": "user", "content": text},), (), {"role": "assistant", "content": ""}, ())
    findings = find_all([turn], detector, frozenset())
    (result,) = scrub_conversation([turn], findings, frozenset(), rules)
    if isinstance(result, ScrubFailure):
        raise DataError(f"the text cannot be scrubbed ({result.detail}); a night drops such a record")
    known: dict[tuple[str, str], Span] = {}
    for piece in pieces_of(turn, frozenset()):
        for span in spans_of(piece, findings):
            known.setdefault((span.entity, piece.text[span.start : span.end]), span)
    return Explanation(
        findings=tuple(
            Finding(value, entity, placeholder, span.rule if span else _SWEPT, span.score if span else 1.0)
            for (entity, value), placeholder in result.replaced.items()
            for span in [known.get((entity, value))]
        ),
        left_alone=_left_alone(text, rules),
        scrubbed=str(result.texts.messages[0]["content"]),
    )


def _left_alone(text: str, rules: Rules) -> tuple[LeftAlone, ...]:
    allowed = rules.allowed_in(text, PatternDetector()([text])[0])
    return tuple(dict.fromkeys(LeftAlone(text[span.start : span.end], span.rule) for span in allowed))
