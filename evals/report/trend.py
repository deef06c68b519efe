"""How much better each version was, by night: where the marks of the overview's plot stand. Up is always better."""

from collections.abc import Sequence
from typing import NamedTuple

from evals.report.entry import Entry
from evals.report.speaker import Speaker
from pipeline.config import BusinessConfig

_DRAWN = 30
"""Decisions: as many dots as a phone's width keeps apart."""
_LABELS = 10


class Point(NamedTuple):
    """One decision in the trend; positions are percent of the plot."""

    x: float
    top: float
    bottom: float
    dot: float
    tone: str
    label: str
    told: str


class Trend(NamedTuple):
    """The primary metric's difference by night; up is better."""

    lead: str
    points: list[Point]
    zero: float
    top: str
    bottom: str
    """Differences at the plot's upper and lower edge."""
    notes: list[str]


def estimate_told(entry: Entry, say: Speaker) -> str:
    """A decision's primary metric with its difference and bounds; empty where there is none."""
    if entry.metric is None or entry.estimate is None:
        return ""
    told = f"{say.metric(entry.metric)} {say.difference(entry.metric, entry.estimate)}"
    if entry.low is None or entry.high is None:
        return told
    return f"{told} ({say.bare(entry.metric, entry.low)} … {say.bare(entry.metric, entry.high)})"


def trend(decisions: Sequence[Entry], business: BusinessConfig, say: Speaker) -> Trend | None:
    """Lay out the decisions by the newest one's primary metric, oldest first; None when none has an interval.

    Args:
        decisions: newest first.
    """
    measured = [entry for entry in decisions if entry.metric and None not in (entry.estimate, entry.low, entry.high)]
    if not measured:
        return None
    metric = measured[0].metric or ""
    same = [entry for entry in measured if entry.metric == metric]
    shown = list(reversed(same[:_DRAWN]))
    direction = say.direction(metric)
    spans = [_upwards(entry, direction) for entry in shown]
    reach = _reach(spans)
    wider = [
        str(entry.version)
        for entry, (low, _, high) in zip(shown, spans, strict=True)
        if max(abs(low), abs(high)) > reach
    ]
    notes = [say("trend_wider", versions=say.listed(wider))] if wider else []
    if len(same) > _DRAWN:
        notes.append(say("trend_newest", n=_DRAWN))
    if others := len(decisions) - len(same):
        notes.append(say("trend_other", n=others))
    return Trend(
        lead=say("trend_lead", metric=say.metric(metric), confidence=say.percent(business.gate.confidence)),
        points=_points(shown, spans, reach, say),
        zero=_down(0.0, reach),
        top=say.bare(metric, direction * reach),
        bottom=say.bare(metric, -direction * reach),
        notes=notes,
    )


def _points(
    shown: Sequence[Entry], spans: Sequence[tuple[float, float, float]], reach: float, say: Speaker
) -> list[Point]:
    labelled = -(-len(shown) // _LABELS)
    return [
        Point(
            x=round(100 * (index + 0.5) / len(shown), 2),
            top=_down(high, reach),
            bottom=_down(low, reach),
            dot=_down(dot, reach),
            tone=entry.tone,
            label=str(entry.version) if (len(shown) - 1 - index) % labelled == 0 else "",
            told=say(
                "trend_point",
                version=str(entry.version),
                at=say.date(entry.at, time=False),
                told=estimate_told(entry, say),
            ),
        )
        for index, (entry, (low, dot, high)) in enumerate(zip(shown, spans, strict=True))
    ]


def _reach(spans: Sequence[tuple[float, float, float]]) -> float:
    """How far the plot goes to both sides of zero: to every dot, and to lines at most twice as long as most are.

    A night with a handful of users must not flatten all the others; it runs out of the plot, and a note says so.
    """
    furthest = sorted(max(abs(low), abs(high)) for low, _, high in spans)
    usual = furthest[3 * (len(spans) - 1) // 4]
    return 1.1 * max(0.01, *(abs(dot) for _, dot, _ in spans), min(furthest[-1], 2 * usual))


def _down(value: float, reach: float) -> float:
    """From the plot's top, in percent of its height."""
    return round(min(100.0, max(0.0, 50 - 50 * value / reach)), 2)


def _upwards(entry: Entry, direction: int) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound as improvement."""
    assert entry.low is not None
    assert entry.estimate is not None
    assert entry.high is not None
    low, high = sorted((direction * entry.low, direction * entry.high))
    return low, direction * entry.estimate, high
