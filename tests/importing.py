"""Imports for tests: a file made of a value, an import with fixed salt and time, and what the log then holds."""

import json
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pipeline.collect.importers import TOOLS
from pipeline.collect.importers.make import Make
from pipeline.collect.importers.refusal import Item, Refusal
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.store import Totals, store
from pipeline.collect.join import join_feedback
from pipeline.events.read import Events, read_events
from pipeline.gateway.ids import Ids
from pipeline.records import Feedback, Interaction, RatedInteraction

IDS = Ids("salt")
NOW = datetime(2026, 12, 1, tzinfo=UTC)
T = 1_760_000_000
"""Seconds; a Thursday in October 2025."""
EVER = (datetime(1990, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))


def a_make(tool: str, zone: str = "UTC", **fields: Any) -> Make:
    """Makes the records of an import into `support`."""
    return Make(**({"tool": tool, "business": "support", "ids": IDS, "zone": ZoneInfo(zone), "now": NOW} | fields))


def write(path: Path, value: Any) -> Path:
    """A file of JSON, of JSON lines, or of bytes, as its name and the value say."""
    if isinstance(value, bytes):
        path.write_bytes(value)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in value), encoding="utf-8")
    else:
        path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def read_items(tool: str, path: Path, *, encoding: str | None = None, zone: str = "UTC", **fields: Any) -> list[Item]:
    """What an importer makes of a file."""
    return list(import_module(TOOLS[tool].module).read(Source(path, encoding), a_make(tool, zone, **fields)))


def interactions(items: list[Item]) -> list[Interaction]:
    return [item for item in items if isinstance(item, Interaction)]


def feedback(items: list[Item]) -> list[Feedback]:
    return [item for item in items if isinstance(item, Feedback)]


def refusals(items: list[Item]) -> list[tuple[str, str]]:
    """Place and reason of each."""
    return [(item.place, item.reason.value) for item in items if isinstance(item, Refusal)]


def import_into(events_dir: Path, tool: str, path: Path, **options: Any) -> Totals:
    """Import a file; the sums always match."""
    clock = options.pop("clock", lambda: datetime.now(UTC))
    source = Source(path, options.pop("encoding", None))
    make = a_make(tool, **options)
    totals = store(import_module(TOOLS[tool].module).read(source, make), make, events_dir, clock=clock)
    told = totals.stored + totals.there + totals.repeated + totals.refused.total()
    assert totals.read == told
    return totals


def logged(events_dir: Path) -> Events:
    """All that the log holds of `support`."""
    return read_events(events_dir, "support", *EVER)


def rated(events_dir: Path) -> list[RatedInteraction]:
    """All that the log holds, joined as a night joins it."""
    events = logged(events_dir)
    return join_feedback(events.interactions, events.feedback)


def said(items: list[Item]) -> list[tuple[str, Any]]:
    """Kind and value of each feedback."""
    return [(one.kind.value, one.value) for one in feedback(items)]


def key(name: str) -> str:
    """The id of the interaction that a tool calls so."""
    return a_make("openwebui").interaction_id(name)
