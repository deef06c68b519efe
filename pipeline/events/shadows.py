"""Reading the answers of versions in shadow, each beside the answer that the user got.

This is the only way to them: `read_events`, and so nights and arms, pass them over.
"""

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from pipeline.events.lake import database_in_memory
from pipeline.events.read import Event, patiently, select
from pipeline.records import Interaction, Record, ShadowAnswer


class ShadowPair(NamedTuple):
    """What the user got, and what the candidate would have answered."""

    served: Interaction
    shadow: ShadowAnswer


class _Line(Record):
    shadow: ShadowAnswer


def read_shadow_pairs(events_dir: Path, business: str, start: datetime, end: datetime) -> tuple[ShadowPair, ...]:
    """Pairs of one business of which both sides started in [start, end), each once, by time.

    Raises:
        DataError: the log cannot be read.
    """
    return patiently(events_dir, lambda: _read(events_dir, business, start, end))


def _read(events_dir: Path, business: str, start: datetime, end: datetime) -> tuple[ShadowPair, ...]:
    pairs: dict[str, ShadowPair] = {}
    with database_in_memory() as database:
        selected = select(database, events_dir, business, start, end)
        for served, shadow in selected.shadows():
            try:
                interaction = Event.model_validate_json(served).interaction
                answer = _Line.model_validate_json(shadow).shadow
            except ValidationError:  # counted as a bad line by who reads events
                continue
            if interaction is not None:
                pairs.setdefault(answer.interaction_id, ShadowPair(interaction, answer))
    return tuple(pairs.values())
