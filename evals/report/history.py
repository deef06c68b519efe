"""A business's overview: every decision, every rollout and the nights between them that trained nothing, newest first,
and how much better each version was."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from evals.report.entry import Entry, read_entry
from evals.report.page import render
from evals.report.speaker import Speaker
from evals.report.trend import estimate_told, trend
from pipeline.config import BusinessConfig

INDEX = "index.html"


class Line(NamedTuple):
    """One page."""

    file: str
    kind: str
    told: str
    at: str
    tone: str
    badge: str
    note: str
    """A decision's difference and bounds, or how many nights before it were like it; else empty."""


def read_entries(folder: Path) -> list[Entry]:
    """The entries of all pages in a folder, newest first. A folder that is not there has none."""
    found = [(page.name, read_entry(page)) for page in folder.glob("*.html")]
    entries = [entry for name, entry in found if entry is not None and entry.file == name]
    return sorted(entries, key=lambda entry: (entry.at, entry.version or 0, entry.kind), reverse=True)


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
            "newest": entries[0].told(say) if entries else None,
            "newest_at": say("history_now", at=say.date(entries[0].at, time=False)) if entries else "",
            "lead": say(
                "history_lead",
                decisions=len(decisions),
                promoted=sum(entry.outcome == "promote" for entry in decisions),
            ),
            "tone": entries[0].tone if entries else "open",
            "badge": say(f"badge_{entries[0].outcome}") if entries else "",
            "lines": list(_lines(entries, say)),
            "trend": trend(decisions, business, say),
        }

    return render("index.html", tell, business=business, generated_at=generated_at, entry=None)


def _lines(entries: Sequence[Entry], say: Speaker) -> Iterator[Line]:
    """Of nights in a row that trained nothing the newest one stands for all."""
    for kind, alike in groupby(entries, lambda entry: entry.kind):
        group = list(alike)
        if kind == "night":
            yield _line(group[0], say("history_nights", n=len(group) - 1) if group[1:] else "", say)
        else:
            yield from (_line(entry, estimate_told(entry, say), say) for entry in group)


def _line(entry: Entry, note: str, say: Speaker) -> Line:
    return Line(
        file=entry.file,
        kind=say(f"kind_{entry.kind}"),
        told=entry.told(say),
        at=say.date(entry.at, time=False),
        tone=entry.tone,
        badge=say(f"badge_{entry.outcome}"),
        note=note,
    )
