"""A business's overview: every decision and every rollout, newest first, and how much better each version was."""

from collections.abc import Sequence
from datetime import datetime
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
    estimate: str
    """A decision's difference and bounds; empty where there is none."""


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
            "tone": entries[0].tone if entries else "open",
            "badge": say(f"badge_{entries[0].outcome}") if entries else "",
            "lines": [_line(entry, say) for entry in entries],
            "trend": trend(decisions, business, say),
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
        tone=entry.tone,
        badge=say(f"badge_{entry.outcome}"),
        estimate=estimate_told(entry, say),
    )
