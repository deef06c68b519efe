"""What is found of what is marked, ours beside plain Presidio: a table by kind, and what was promised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from pipeline.clean.pii.spans import NAMES, PiiDetector, Span
from tests.benchmarks.pii.corpus import Marked
from tests.benchmarks.pii.scoring import Count, by_kind, of_any_kind
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import NONE, table

_RECALL, _PRECISION, _PERSON_RECALL, _F2_MORE = 0.98, 0.95, 0.95, 0.05
_MEASURED_ONLY = NAMES | {"ADDRESS"}
"""Kinds without a check digit or a fixed form: their share is reported, not promised, but for Chinese names."""


@dataclass(frozen=True)
class Judged:
    """One corpus, and what both found in it."""

    name: str
    corpus: Sequence[Marked]
    ours: Sequence[Sequence[Span]]
    plain: Sequence[Sequence[Span]]

    def counts(self, whose: Sequence[Sequence[Span]]) -> Mapping[str, Count]:
        """By kind, for the kinds that are marked."""
        return by_kind(self.corpus, whose, sorted({span.entity for marked in self.corpus for span in marked.gold}))

    def structured(self, whose: Sequence[Sequence[Span]]) -> Count:
        """All kinds that have a form, together."""
        return reduce(add, (count for kind, count in self.counts(whose).items() if kind not in _MEASURED_ONLY))


def judge_chinese(corpus: Sequence[Marked], ours: PiiDetector, plain: PiiDetector) -> Judged:
    """Names of places are left out: no mark in a text about travel can say which town leads to a person."""
    texts = [marked.text for marked in corpus]
    found = [[[s for s in spans if s.entity != "LOCATION"] for spans in each(texts)] for each in (ours, plain)]
    return Judged("Chinese", corpus, *found)


def judge_english(name: str, corpus: Sequence[Marked], ours: PiiDetector, plain: PiiDetector) -> Judged:
    """Addresses and names of places are one kind: Presidio and the files know no difference."""
    texts = [marked.text for marked in corpus]
    places = [[replace(s, entity="LOCATION") if s.entity == "ADDRESS" else s for s in row] for row in ours(texts)]
    return Judged(name, corpus, places, plain(texts))


def both(name: str, one: Judged, other: Judged) -> Judged:
    """Two corpora as one."""
    return Judged(name, [*one.corpus, *other.corpus], [*one.ours, *other.ours], [*one.plain, *other.plain])


def promises(judged: Judged) -> list[Row]:
    """Recall and precision of everything that has a form."""
    ours, plain = judged.structured(judged.ours), judged.structured(judged.plain)
    about = f"structured kinds, {judged.name} ({ours.gold} spans)"
    return [
        _row(f"recall, {about}", ours.recall, plain.recall, _RECALL),
        _row(f"precision, {about}", ours.precision, plain.precision, _PRECISION),
    ]


def names_promise(judged: Judged) -> Row:
    """Recall of names of persons in our Chinese sentences."""
    ours, plain = (judged.counts(whose)["PERSON"] for whose in (judged.ours, judged.plain))
    about = f"names of persons, {judged.name} ({ours.gold} spans)"
    return _row(f"recall, {about}", ours.recall, plain.recall, _PERSON_RECALL)


def f2_rows(judged: Judged) -> list[Row]:
    """F2 whatever the kind: over the kinds that are looked for, and over all that is marked."""
    ours, plain = of_any_kind(judged.corpus, judged.ours).f2, of_any_kind(judged.corpus, judged.plain).f2
    least = plain + _F2_MORE
    all_ours, all_plain = (of_any_kind(judged.corpus, found, True).f2 for found in (judged.ours, judged.plain))
    return [
        Row(f"F2 of spans, {judged.name}", ours, plain, None, f"at least {least:.2f}", ours >= least, False),
        Row("the same with dates, organisations, titles, ages", all_ours, all_plain, None, "none", None, False),
    ]


def no_less_found(judged: Judged, metric: str) -> Row:
    """Recall whatever the kind, which must not be below the peer's."""
    ours, plain = (of_any_kind(judged.corpus, found).recall or 0.0 for found in (judged.ours, judged.plain))
    return Row(metric, ours, plain, None, "at least the peer's", ours >= plain, False)


def glued_promise(corpus: Sequence[Marked], ours: PiiDetector, plain: PiiDetector) -> Row:
    """How many of the values in hard surroundings are found whole and as what they are."""
    texts = [marked.text for marked in corpus]
    shares = [_whole(corpus, found) for found in (ours(texts), plain(texts))]
    return _row(f"exact spans, glued and full width ({len(texts)} texts)", shares[0], shares[1], 1.0)


def _whole(corpus: Sequence[Marked], found: Sequence[Sequence[Span]]) -> float:
    exact = [
        any((s.start, s.end, s.entity) == (gold.start, gold.end, gold.entity) for s in spans)
        for marked, spans in zip(corpus, found, strict=True)
        for gold in marked.gold
    ]
    return sum(exact) / len(exact)


def kinds_table(judged: Sequence[Judged]) -> str:
    """Recall and precision by corpus and kind, ours and plain Presidio's."""
    lines = []
    for one in judged:
        plain = one.counts(one.plain)
        for kind, count in one.counts(one.ours).items():
            figures = (count.recall, plain[kind].recall, count.precision, plain[kind].precision)
            lines.append((f"{one.name}: {kind}", f"{count.gold}", *map(_percent, figures)))
    return table(("", "marked", "recall", "plain", "precision", "plain"), lines)


def _row(metric: str, ours: float | None, plain: float | None, least: float) -> Row:
    figure = ours or 0.0
    return Row(metric, figure, plain, None, f"at least {least:g}", figure >= least, False)


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"
