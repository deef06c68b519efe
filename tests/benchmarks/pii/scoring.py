"""How much of what is marked is found, and how much of what is found is marked. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipeline.clean.pii.spans import Span
from tests.benchmarks.pii.corpus import Marked

_BETWEEN_PARTS = re.compile(r"[\s,.\-]{0,3}")
_LEAST_IOU = 0.5
_BETA = 2.0


@dataclass(frozen=True, slots=True)
class Count:
    """Spans of one kind, over all texts of a corpus."""

    gold: int = 0
    found: int = 0
    """Of the gold ones."""
    given: int = 0
    """By the detector."""
    right: int = 0
    """Of the given ones."""

    @property
    def recall(self) -> float | None:
        return self.found / self.gold if self.gold else None

    @property
    def precision(self) -> float | None:
        return self.right / self.given if self.given else None

    @property
    def f2(self) -> float:
        """Recall counts twice as much as precision."""
        recall, precision = self.recall or 0.0, self.precision or 0.0
        total = _BETA**2 * precision + recall
        return (1 + _BETA**2) * precision * recall / total if total else 0.0

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.gold + other.gold, self.found + other.found, self.given + other.given, self.right + other.right
        )


def by_kind(corpus: Sequence[Marked], found: Sequence[Sequence[Span]], kinds: Iterable[str]) -> dict[str, Count]:
    """A span is right when one of its kind is marked there: intersection over union at least 0.5."""
    counts = dict.fromkeys(kinds, Count())
    for marked, spans in zip(corpus, found, strict=True):
        for kind in counts:
            gold = _joined(marked.text, [span for span in marked.gold if span.entity == kind])
            given = _counted(marked, _joined(marked.text, [span for span in spans if span.entity == kind]))
            counts[kind] += _count(gold, given)
    return counts


def of_any_kind(corpus: Sequence[Marked], found: Sequence[Sequence[Span]], everything: bool = False) -> Count:
    """The same whatever the kind.

    Args:
        corpus: marked texts.
        found: spans of each.
        everything: also what is optional must be found.
    """
    total = Count()
    for marked, spans in zip(corpus, found, strict=True):
        whole = replace(marked, gold=marked.gold + marked.optional, optional=()) if everything else marked
        one_kind = [replace(span, entity="ANY") for span in spans]
        gold = _joined(marked.text, [replace(span, entity="ANY") for span in whole.gold])
        total += _count(gold, _counted(whole, _joined(marked.text, one_kind)))
    return total


def missing(corpus: Sequence[Marked], found: Sequence[Sequence[Span]]) -> Counter[str]:
    """Errors of looked-at texts, for whoever mends a detector."""
    errors: Counter[str] = Counter()
    for marked, spans in zip(corpus, found, strict=True):
        for kind in {span.entity for span in (*marked.gold, *spans)}:
            gold = _joined(marked.text, [span for span in marked.gold if span.entity == kind])
            given = _counted(marked, _joined(marked.text, [span for span in spans if span.entity == kind]))
            errors.update(
                f"missed {kind} {marked.text[g.start : g.end]!r} in {marked.text!r}" for g in gold if not _any(g, given)
            )
            errors.update(
                f"wrong {kind} {marked.text[s.start : s.end]!r} in {marked.text!r}" for s in given if not _any(s, gold)
            )
    return errors


def _count(gold: Sequence[Span], given: Sequence[Span]) -> Count:
    return Count(
        gold=len(gold),
        found=sum(_any(span, given) for span in gold),
        given=len(given),
        right=sum(_any(span, gold) for span in given),
    )


def _any(span: Span, others: Sequence[Span]) -> bool:
    return any(_iou(span, other) >= _LEAST_IOU for other in others)


def _iou(one: Span, other: Span) -> float:
    both = min(one.end, other.end) - max(one.start, other.start)
    return max(0, both) / (max(one.end, other.end) - min(one.start, other.start))


def _counted(marked: Marked, spans: Sequence[Span]) -> list[Span]:
    return [s for s in spans if not any(o.start < s.end and s.start < o.end for o in marked.optional)]


def _joined(text: str, spans: Sequence[Span]) -> list[Span]:
    """Overlapping spans, and those with only a space or a comma between them, as one."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        last = joined[-1] if joined else None
        if last and (span.start < last.end or _BETWEEN_PARTS.fullmatch(text, last.end, span.start)):
            joined[-1] = replace(last, end=max(last.end, span.end))
        else:
            joined.append(span)
    return joined
