"""Deletes what a business keeps no longer: whole days of its part of the lake, by the day on which things happened.

Segments are not touched. They become part of the lake within hours, unless a line in one cannot be placed; such a one
waits for a person, who is told so at each compaction.
"""

import logging
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pipeline.events.lake import alone
from pipeline.tables import sync_folder

log = logging.getLogger(__name__)


def expire(events_dir: Path, business: str, keep_days: int, now: datetime) -> int:
    """Delete a business's days that ended more than `keep_days` days ago; returns how many.

    May be killed at any point and called again; while another process compacts, nothing is done.

    Args:
        events_dir: the event log.
        keep_days: at least one.
    """
    last = (now.astimezone(UTC) - timedelta(days=keep_days)).date()
    with alone(events_dir) as only:
        every = sorted((events_dir / "lake" / business).glob("????-??-??")) if only else []
        days = [folder for folder in every if date.fromisoformat(folder.name) < last]
        for folder in days:
            for part in sorted(folder.iterdir()):
                part.unlink()
            folder.rmdir()
        if days:
            sync_folder(days[0].parent)
            log.info("%d days of '%s' before %s deleted: they are kept %d days", len(days), business, last, keep_days)
    return len(days)
