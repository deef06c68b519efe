"""What a business's overview says about one page. Each page carries it in its head, so that pages are all it needs."""

import html
import re
from datetime import UTC
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from evals.report.speaker import Speaker
from pipeline.records import Record

_META = re.compile(r'<meta name="tuneloop-entry" content="([^"]*)">')
_HEAD = 4096
"""Bytes at a page's beginning in which its entry stands."""

_TONES = {
    "promote": "good",
    "done": "good",
    "reject": "bad",
    "rolled_back": "bad",
    "inconclusive": "open",
    "canary": "open",
    "paused": "open",
    "ended": "open",
    "too_few_rows": "open",
}


class Entry(Record):
    """One decision, one rollout, or one night in which nothing was trained."""

    kind: Literal["decision", "rollout", "night"]
    version: int | None = None
    """None for a night in which nothing was trained."""
    at: AwareDatetime
    outcome: Literal[
        "promote", "reject", "inconclusive", "canary", "paused", "done", "rolled_back", "ended", "too_few_rows"
    ]
    """A verdict, where a rollout stands, or why nothing was trained."""
    rows: int | None = None
    """Of such a night: the examples to train on that there were."""
    rows_needed: int | None = None
    metric: str | None = None
    """A decision's primary metric; its difference and bounds are candidate minus baseline, as in `Check`."""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def file(self) -> str:
        """Name of the page beside the overview."""
        if self.version is None:
            return f"{self.kind}-{self.at.astimezone(UTC):%Y%m%dT%H%M%S}.html"
        return f"{self.kind}-v{self.version}.html"

    def told(self, say: Speaker) -> str:
        """What it came to, in one sentence."""
        return say(
            f"said_{self.kind}_{self.outcome}", version=str(self.version), rows=self.rows, needed=self.rows_needed
        )

    @property
    def tone(self) -> str:
        """How it is coloured: `good`, `bad` or `open`."""
        return _TONES[self.outcome]


def read_entry(page: Path) -> Entry | None:
    """The entry of a page; None where the file carries none, so it is no page of a decision or a rollout."""
    with page.open(encoding="utf-8", errors="replace") as file:
        found = _META.search(file.read(_HEAD))
    if found is None:
        return None
    try:
        return Entry.model_validate_json(html.unescape(found[1]))
    except ValidationError:
        return None
