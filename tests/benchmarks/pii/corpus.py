"""Marked texts: our Chinese sentences, and the English ones of presidio-research. They are read, never copied."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.clean.pii.spans import Span
from tests.benchmarks.document import ROOT

SHARED = ROOT.parent / "shared" / "data"
CHINESE = Path(__file__).parent / "chinese"
_MARK = re.compile(r"\[(~?)([A-Z_]+):((?:[^\[\]])+)\]")
_OURS = {
    "PERSON": "PERSON",
    "GPE": "LOCATION",
    "LOCATION": "LOCATION",
    "STREET_ADDRESS": "LOCATION",
    "ADDRESS": "LOCATION",
    "PHONE_NUMBER": "PHONE",
    "CREDIT_CARD": "CARD",
    "EMAIL_ADDRESS": "EMAIL",
    "IBAN_CODE": "IBAN",
    "US_SSN": "SSN",
    "IP_ADDRESS": "IP",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
}
"""Kinds of the English files that are looked for; one kind for places, since Presidio knows no addresses."""


@dataclass(frozen=True)
class Marked:
    """A text, what must be found in it, and what may be."""

    text: str
    gold: tuple[Span, ...]
    optional: tuple[Span, ...] = ()
    """Whatever overlaps one of these is neither right nor wrong."""


def parse_marked(source: str) -> Marked:
    """`我叫[PERSON:王小明]` as text and spans."""
    parts: list[str] = []
    gold: list[Span] = []
    optional: list[Span] = []
    at = length = 0
    for mark in _MARK.finditer(source):
        before = source[at : mark.start()]
        start = length + len(before)
        length = start + len(mark[3])
        (optional if mark[1] else gold).append(Span(start, length, mark[2]))
        parts += [before, mark[3]]
        at = mark.end()
    return Marked("".join([*parts, source[at:]]), tuple(gold), tuple(optional))


def chinese() -> list[Marked]:
    """Our sentences, kind of business by kind of business."""
    return [
        parse_marked(json.loads(line)["text"])
        for path in sorted(CHINESE.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def english_looked_at() -> list[Marked]:
    """Sentences from templates of even numbers, and the small file: they may be read to mend something."""
    small: list[dict[str, object]] = json.loads((SHARED / "pii/presidio_generated_small.json").read_text())
    return list(_english([*_synthetic(0), *small]))


def english_held_out() -> list[Marked]:
    """Sentences from templates of odd numbers: they are only counted."""
    return list(_english(_synthetic(1)))


def _synthetic(remainder: int) -> list[dict[str, object]]:
    rows = json.loads((SHARED / "pii/presidio_synth_v2_dev.json").read_text())
    return [row for row in rows if row["template_id"] % 2 == remainder]


def _english(rows: Iterable[dict[str, object]]) -> Iterator[Marked]:
    for row in rows:
        spans = row["spans"]
        assert isinstance(spans, list)
        marks = [(s["start_position"], s["end_position"], s["entity_type"]) for s in spans]
        gold = [Span(start, end, _OURS[kind]) for start, end, kind in marks if kind in _OURS]
        other = [Span(start, end, kind) for start, end, kind in marks if kind not in _OURS]
        yield Marked(str(row["full_text"]), tuple(gold), tuple(other))
