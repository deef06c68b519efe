"""The page of a night in which nothing was trained, because users said too little that can be learned from."""

from datetime import datetime

from evals.report.entry import Entry
from evals.report.feedback import said, used
from evals.report.page import render
from evals.report.speaker import Speaker
from pipeline.config import BusinessConfig
from pipeline.records import SnapshotManifest, Split


def render_night_report(manifest: SnapshotManifest, *, business: BusinessConfig, night: datetime) -> tuple[str, str]:
    """One HTML page for the business's owner, in both languages.

    Args:
        manifest: of the snapshot that is too small to train on.
        night: when it was due; shown in the business's time zone.

    Returns:
        Name of its file, and the page.
    """
    entry = Entry(
        kind="night",
        at=night,
        outcome="too_few_rows",
        rows=sum(manifest.rows[Split.TRAIN].values()),
        rows_needed=business.dataset.min_rows,
    )

    def tell(say: Speaker) -> dict[str, object]:
        return {
            "title": say("night_title", at=say.date(night, time=False)),
            "headline": entry.told(say),
            "lead": say("night_lead", at=say.date(night)),
            "next": say("night_next", days=f"{business.dataset.window_days:g}"),
            # Without what users said in their own words: an erasure looks for that in decisions' pages alone.
            "said": said(manifest, say)._replace(reasons=[]),
            "wishes": [],
            "used_title": say("night_used"),
            "used": used(manifest, say),
        }

    return entry.file, render("night.html", tell, business=business, generated_at=night, entry=entry)
