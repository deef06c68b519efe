"""Personal data replaced by placeholders that mean the same thing through a whole conversation.

`<PHONE_1>`, or a surrogate where the business asks for them, stands for one value, however it is written, in every
prompt, answer, edit and comment of a session, so that prompt, chosen and rejected still fit together. A value found
once is replaced wherever it stands in the session, also where the detector missed it. If anything goes wrong with a
record, there is no record.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import unquote

import regex
from pydantic import JsonValue

from pipeline.clean.pii.checks import SPOKEN_DIGITS, compact
from pipeline.clean.pii.patterns import PatternDetector
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import NAMES, PiiDetector, Span, fold, resolve
from pipeline.clean.pii.structure import (
    PLAIN_NUMBER,
    Piece,
    Place,
    Unscrubbable,
    Visit,
    map_json,
    map_message,
    map_text,
)
from pipeline.clean.pii.surrogates import surrogate
from pipeline.clean.text import is_system, message_text, normalise
from pipeline.errors import PipelineError
from pipeline.records import Message

logger = logging.getLogger(__name__)

_BATCH = 256
_ROUNDS = 4
_URL = regex.compile(r"\b(?:https?|ftp|wss?)://[^\s<>\"'，。；、）】》]+", regex.IGNORECASE)
_BARE_VALUE = regex.compile(r"[\"']\s*:\s*$")
_VALUE_BEFORE = ("", "=", ":", "(", "[", ",", "{", " ", "\t")
_VALUE_AFTER = ("", ",", ")", "]", "}", ";", " ", "\n")
_NO_NAMES = frozenset({Place.FIXED, Place.CODE, Place.KEY, Place.NUMBER})


@dataclass(frozen=True)
class Texts:
    """All of one record that a person wrote or was shown, still as it was."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, JsonValue], ...]
    answer: Message
    notes: tuple[str | None, ...]
    """Edits, comments and reasons."""


@dataclass(frozen=True)
class Scrubbed:
    """The same without personal data, and how many distinct values of each entity were replaced."""

    texts: Texts
    counts: dict[str, int]
    replaced: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False, compare=False)
    """Entity and value as it was written, to its placeholder: for explanations only, never to be kept."""


@dataclass(frozen=True)
class ScrubFailure:
    """Why a record could not be scrubbed; holds no text of a user."""

    detail: str


Findings: TypeAlias = Mapping[str, Sequence[Span] | None]
"""Scanned text to its spans; None where the detector failed."""


def find_all(turns: Iterable[Texts], detector: PiiDetector, fixed: frozenset[str]) -> Findings:
    """Ask the detector about every distinct text once, in batches; a batch that fails is repeated text by text."""
    queue = list(dict.fromkeys(piece.scanned for texts in turns for piece in pieces_of(texts, fixed)))
    findings: dict[str, Sequence[Span] | None] = {}
    for first in range(0, len(queue), _BATCH):
        batch = queue[first : first + _BATCH]
        try:
            findings |= dict(zip(batch, _asked(detector, batch), strict=True))
        except PipelineError:
            raise
        except Exception as error:  # whatever a detector raises: the texts it choked on must not pass
            logger.warning(
                "The detector of personal data failed on a batch (%s); asking text by text", type(error).__name__
            )
            findings |= {text: _asked_alone(detector, text) for text in batch}
    return findings


def scrub_conversation(
    turns: Sequence[Texts], findings: Findings, fixed: frozenset[str] = frozenset(), rules: Rules | None = None
) -> list[Scrubbed | ScrubFailure]:
    """The records of one session in their order in time, with one set of placeholders for all of them.

    Where a surrogate and what it is glued to would read as other personal data, the whole session gets labels.

    Args:
        turns: each record's texts.
        findings: what `find_all` gave for them.
        fixed: system prompts that are the business's own text; names in them stay.
        rules: of the business, as the detector had them.
    """
    known = _known_values(turns, findings, fixed)
    rules = rules or Rules()
    if rules.surrogates:
        try:
            return _scrub_all(turns, _Session(known, rules, surrogates=True), findings, fixed)
        except _Glued:
            logger.info("Surrogates do not fit into a conversation: it gets labels")
    return _scrub_all(turns, _Session(known, rules, surrogates=False), findings, fixed)


def _scrub_all(
    turns: Sequence[Texts], session: "_Session", findings: Findings, fixed: frozenset[str]
) -> list[Scrubbed | ScrubFailure]:
    results: list[Scrubbed | ScrubFailure] = []
    for texts in turns:
        try:
            results.append(_scrub(texts, _Scrubber(session, findings), fixed))
        except (PipelineError, _Glued):
            raise
        except Exception as error:  # fail closed: a record passes only if all of this went well
            reason = str(error) if isinstance(error, Unscrubbable | _Leak) else type(error).__name__
            results.append(ScrubFailure(reason))
    return results


class _Leak(Exception):
    """Something that must be gone is not."""


class _Glued(Exception):
    """A surrogate and what stands beside it are found as personal data again."""


@dataclass
class _Session:
    """Placeholders given so far; the only state, and it lives as long as one `_scrub_all`."""

    known: dict[str, str]
    rules: Rules
    surrogates: bool
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    """Entity and canonical value to the value's number among those of its kind."""

    def __post_init__(self) -> None:
        self.patterns = PatternDetector(self.rules)
        longest_first = sorted(self.known, key=lambda value: (-len(value), value))
        borders = (_bordered(value) for value in longest_first)
        self.sweep = regex.compile("|".join(borders)) if self.known else None

    def placeholder(self, entity: str, value: str) -> str:
        number = self.number(entity, value)
        made = surrogate(entity, fold(value).text, number) if self.surrogates else None
        return made or f"<{entity}_{number}>"

    def number(self, entity: str, value: str) -> int:
        key = (entity, _canonical(entity, value))
        return self.numbers.setdefault(key, sum(entity == other for other, _ in self.numbers) + 1)


class _Scrubber:
    """Replaces in the pieces of one record and remembers what it replaced."""

    def __init__(self, session: _Session, findings: Findings) -> None:
        self._session = session
        self._findings = findings
        self.replaced: dict[tuple[str, str], str] = {}
        self.numbers: set[tuple[str, int]] = set()

    def __call__(self, piece: Piece) -> str:
        spans = spans_of(piece, self._findings)
        if self._session.sweep and piece.place not in (Place.FIXED, Place.KEY):
            matches = self._session.sweep.finditer(piece.text)
            spans += [Span(m.start(), m.end(), self._session.known[m.group()]) for m in matches]
            spans = self._session.rules.spare(piece.text, spans)
        spans = resolve(piece.text, spans)
        if piece.place is Place.NUMBER:
            return self._use(spans[0].entity, piece.text) if spans else piece.text
        text = piece.text
        for _ in range(_ROUNDS):
            if not spans:
                return text
            text = self._replaced(Piece(text, piece.place), spans)
            # What stood behind the replaced value may have hidden another one.
            spans = [s for s in self._session.patterns([text])[0] if s.entity not in NAMES]
        if self._session.surrogates:
            raise _Glued
        raise _Leak("patterns are still found after replacing")

    def _replaced(self, piece: Piece, spans: list[Span]) -> str:
        text = piece.text
        urls = [match.span() for match in _URL.finditer(text)] if spans else []
        parts: list[str] = []
        at = 0
        for span in spans:
            placeholder = self._use(span.entity, text[span.start : span.end])
            if any(start < span.end and span.start < end for start, end in urls):
                placeholder = placeholder.replace("<", "%3C").replace(">", "%3E")
            elif _is_bare_literal(piece, span) and not PLAIN_NUMBER.fullmatch(placeholder):
                placeholder = f'"{placeholder}"'
            parts += [text[at : span.start], placeholder]
            at = span.end
        return "".join([*parts, text[at:]])

    def _use(self, entity: str, value: str) -> str:
        placeholder = self._session.placeholder(entity, value)
        self.replaced[entity, value] = placeholder
        self.numbers.add((entity, self._session.number(entity, value)))
        return placeholder


def _scrub(texts: Texts, scrubber: _Scrubber, fixed: frozenset[str]) -> Scrubbed:
    clean = _map_texts(texts, scrubber, fixed)
    counts = Counter(entity for entity, _ in scrubber.numbers)
    return Scrubbed(clean, dict(sorted(counts.items())), scrubber.replaced)


def _map_texts(texts: Texts, visit: Visit, fixed: frozenset[str]) -> Texts:
    def place(message: Message) -> Place:
        return Place.FIXED if message_text(message) in fixed and is_system(message) else Place.PROSE

    tools = (map_json(tool, visit, Place.FIXED) for tool in texts.tools)
    return Texts(
        messages=tuple(map_message(message, visit, place(message)) for message in texts.messages),
        tools=tuple(tool for tool in tools if isinstance(tool, dict)),
        answer=map_message(texts.answer, visit),
        notes=tuple(None if note is None else map_text(note, visit, Place.PROSE) for note in texts.notes),
    )


def pieces_of(texts: Texts, fixed: frozenset[str]) -> list[Piece]:
    """What there is to look at; nothing of a record that `_scrub` will refuse."""
    pieces: list[Piece] = []

    def note(piece: Piece) -> str:
        pieces.append(piece)
        return piece.text

    try:
        _map_texts(texts, note, fixed)
    except Exception as error:  # scrubbing it will fail in the same way, and say so
        logger.debug("A record cannot be looked into (%s)", type(error).__name__)
        return []
    return pieces


def _asked(detector: PiiDetector, batch: list[str]) -> list[Sequence[Span]]:
    found = detector(batch)
    for text, spans in zip(batch, found, strict=True):
        if any(not 0 <= span.start < span.end <= len(text) for span in spans):
            raise ValueError("the detector gave a span outside the text")
    return list(found)


def _asked_alone(detector: PiiDetector, text: str) -> Sequence[Span] | None:
    try:
        return _asked(detector, [text])[0]
    except PipelineError:
        raise
    except Exception:  # as above; None makes every record that holds the text fail
        return None


def spans_of(piece: Piece, findings: Findings) -> list[Span]:
    """What was found in a piece, in its own offsets, without names where there are none."""
    found = findings[piece.scanned]
    if found is None:
        raise _Leak("the detector failed on a text of this record")
    lead = len(piece.lead)
    shifted = (replace(s, start=max(0, s.start - lead), end=s.end - lead) for s in found if s.end > lead)
    return [s for s in shifted if s.entity not in NAMES or piece.place not in _NO_NAMES]


def _known_values(turns: Sequence[Texts], findings: Findings, fixed: frozenset[str]) -> dict[str, str]:
    """Every value found in the session that is long enough to be looked for elsewhere, and its entity."""
    known: dict[str, str] = {}
    for piece in (piece for texts in turns for piece in pieces_of(texts, fixed)):
        if findings.get(piece.scanned):
            for span in spans_of(piece, findings):
                value = piece.text[span.start : span.end]
                if _is_distinctive(value) and known.get(value, "PERSON") in NAMES:
                    known[value] = span.entity
    return known


def _is_distinctive(value: str) -> bool:
    if any("\u3400" <= char <= "\u9fff" for char in value):
        return len(value) >= 2
    return len(value) >= 3 and (value[0].isupper() or (len(value) >= 5 and not value.isalpha()))


def _bordered(value: str) -> str:
    before = r"(?<![A-Za-z0-9])" if value[0].isascii() and value[0].isalnum() else ""
    after = r"(?![A-Za-z0-9])" if value[-1].isascii() and value[-1].isalnum() else ""
    return before + str(regex.escape(value)) + after


def _canonical(entity: str, value: str) -> str:
    """The same for all ways to write one value."""
    plain = fold(unquote(value)).text
    if entity == "PHONE":
        return _phone_digits(plain)
    if entity in NAMES or entity in ("EMAIL", "ADDRESS"):
        return normalise(plain).casefold()
    return plain if entity in ("SECRET", "IP", "MAC") else compact(plain)


def _phone_digits(value: str) -> str:
    number = regex.split(r"转|ext|x", value.translate(SPOKEN_DIGITS), maxsplit=1, flags=regex.IGNORECASE)[0]
    digits = "".join(char for char in number if char.isdigit())
    return digits[-11:] if regex.fullmatch(r"(?:00)?861\d{10}", digits) else digits


def _is_bare_literal(piece: Piece, span: Span) -> bool:
    """Whether a number stands in code or JSON without quotes, where `<PHONE_1>` would be no value."""
    line = piece.text[piece.text.rfind("\n", 0, span.start) + 1 : span.start]
    after = piece.text[span.end : span.end + 1]
    if piece.place is Place.PROSE:
        return bool(_BARE_VALUE.search(line)) and after not in ('"', "'")
    quoted = line.count('"') % 2 or line.count("'") % 2
    return piece.place is Place.CODE and not quoted and line[-1:] in _VALUE_BEFORE and after in _VALUE_AFTER
