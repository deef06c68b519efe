"""Candidates that were made worse on purpose, and one that was not: `candidates.yaml` says how."""

from functools import cache
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from evals.worlds.model import Fault
from pipeline.errors import DataError
from pipeline.records import Record, Share

FILE = Path(__file__).parent / "candidates.yaml"


class Offline(Record):
    """What a candidate answers: the fields of `evals.worlds.model.Model`."""

    skill: Share
    faults: dict[Fault, Share] = {}
    forgets: Share = 0.0
    agrees: Share = 0.0
    caught_by: str | None = None
    """The check of the gate that must not pass; None for a candidate that must be promoted."""


class Online(Record):
    """How a candidate serves, beside what is in service."""

    slower: float = Field(1.0, gt=0)
    """Factor on its latencies."""
    cuts: Share = 0.0
    """Share of its streams that end before their end."""
    regenerated: Share = 0.0
    """By so much more often users ask again."""


class Candidates(Record):
    """All of them, by name."""

    offline: dict[str, Offline]
    online: dict[str, Online]


@cache
def candidates() -> Candidates:
    """Read `candidates.yaml`.

    Raises:
        DataError: the file is not as `Candidates` says.
    """
    try:
        return Candidates.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise DataError(f"worlds: {FILE}: {' '.join(str(error).split())}; mend the file") from None
