"""A business's overview: every decision and every rollout, newest first, and how much better each version was."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from evals.report.entry import Entry, read_entry
from evals.report.page import render
from evals.report.speaker import Speaker
from pipeline.config import BusinessConfig

INDEX = "index.html"
_DRAWN = 30
"""Decisions in the trend: as many dots as a phone's width keeps apart."""
TONES = {
    "promote": "good",
    "done": "good",
    "reject": "bad",
    "rolled_back": "bad",
    "inconclusive": "open",
    "canary": "open",
    "paused": "open",
    "ended": "open",
}


class Line(NamedTuple):
    """One page."""

    file: str
    kind: str
    told: str
    at: str
    tone: str
    badge: str
    estimate: str
    """A decision's difference and bounds; empty where there is none."""


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


def read_entries(folder: Path) -> list[Entry]:
    """The entries of all pages in a folder, newest first. A folder that is not there has none."""
    found = [(page.name, read_entry(page)) for page in folder.glob("*.html")]
    entries = [entry for name, entry in found if entry is not None and entry.file == name]
    return sorted(entries, key=lambda entry: (entry.at, entry.version, entry.kind), reverse=True)


def render_index(entries: Sequence[Entry], *, business: BusinessConfig, generated_at: datetime) -> str:
    """The overview in both languages. Its links are relative: they work in a folder and from a server.

    Args:
        entries: newest first.
        generated_at: aware; shown in the business's time zone.
    """

    def tell(say: Speaker) -> dict[str, object]:
        decisions = [entry for entry in entries if entry.kind == "decision"]
        return {
            "title": say("history_title"),
            "newest": say(_said(entries[0]), version=str(entries[0].version)) if entries else None,
            "newest_at": say("history_now", at=say.date(entries[0].at, time=False)) if entries else "",
            "lead": say(
                "history_lead",
                decisions=len(decisions),
                promoted=sum(entry.outcome == "promote" for entry in decisions),
            ),
            "tone": TONES[entries[0].outcome] if entries else "open",
            "badge": say(f"badge_{entries[0].outcome}") if entries else "",
            "lines": [_line(entry, say) for entry in entries],
            "trend": _trend(decisions, business, say),
        }

    return render("index.html", tell, business=business, generated_at=generated_at, entry=None)


def _said(entry: Entry) -> str:
    return f"said_{entry.kind}_{entry.outcome}"


def _line(entry: Entry, say: Speaker) -> Line:
    return Line(
        file=entry.file,
        kind=say(f"kind_{entry.kind}"),
        told=say(_said(entry), version=str(entry.version)),
        at=say.date(entry.at, time=False),
        tone=TONES[entry.outcome],
        badge=say(f"badge_{entry.outcome}"),
        estimate=_estimate(entry, say),
    )


def _estimate(entry: Entry, say: Speaker) -> str:
    if entry.metric is None or entry.estimate is None:
        return ""
    told = f"{say.metric(entry.metric)} {say.difference(entry.metric, entry.estimate)}"
    if entry.low is None or entry.high is None:
        return told
    return f"{told} ({say.bare(entry.metric, entry.low)} … {say.bare(entry.metric, entry.high)})"


def _trend(decisions: Sequence[Entry], business: BusinessConfig, say: Speaker) -> Trend | None:
    """Decisions by the newest one's primary metric, oldest first; None when none has an interval."""
    measured = [entry for entry in decisions if entry.metric and None not in (entry.estimate, entry.low, entry.high)]
    if not measured:
        return None
    metric = measured[0].metric or ""
    same = [entry for entry in measured if entry.metric == metric]
    shown = list(reversed(same[:_DRAWN]))
    direction = say.direction(metric)
    spans = [_upwards(entry, direction) for entry in shown]
    # One night with a handful of users must not flatten all the others: it runs out of the plot, and a note says so.
    reach = max(0.01, *(abs(dot) for _, dot, _ in spans), _most([max(abs(low), abs(high)) for low, _, high in spans]))
    reach *= 1.15

    def down(value: float) -> float:
        return round(min(100.0, max(0.0, 50 - 50 * value / reach)), 2)

    points = [
        Point(
            x=round(100 * (index + 0.5) / len(shown), 2),
            top=down(high),
            bottom=down(low),
            dot=down(dot),
            tone=TONES[entry.outcome],
            label=str(entry.version),
            told=say(
                "trend_point",
                version=str(entry.version),
                at=say.date(entry.at, time=False),
                told=_estimate(entry, say),
            ),
        )
        for index, (entry, (low, dot, high)) in enumerate(zip(shown, spans, strict=True))
    ]
    notes = [
        say("trend_wider", version=str(entry.version))
        for entry, (low, _, high) in zip(shown, spans, strict=True)
        if max(abs(low), abs(high)) > reach
    ]
    if len(same) > _DRAWN:
        notes.append(say("trend_newest", n=_DRAWN))
    if others := len(decisions) - len(same):
        notes.append(say("trend_other", n=others))
    return Trend(
        lead=say("trend_lead", metric=say.metric(metric), confidence=say.percent(business.gate.confidence)),
        points=points,
        zero=down(0.0),
        top=say.bare(metric, direction * reach),
        bottom=say.bare(metric, -direction * reach),
        notes=notes,
    )


def _upwards(entry: Entry, direction: int) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound as improvement."""
    assert entry.low is not None
    assert entry.estimate is not None
    assert entry.high is not None
    low, high = sorted((direction * entry.low, direction * entry.high))
    return low, direction * entry.estimate, high


def _most(values: Sequence[float]) -> float:
    """What three quarters of the values do not exceed."""
    return sorted(values)[3 * (len(values) - 1) // 4]
