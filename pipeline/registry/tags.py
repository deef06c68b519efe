"""Tags of a version and what they mean."""

import logging
from collections.abc import Mapping
from typing import Literal

from pipeline.records import Verdict

ERASED_TRAINED = "erased_trained"
"""What a version learned from users who are erased now."""
ERASED_MEASURED = "erased_measured"
"""What of users who are erased now it was measured on."""

logger = logging.getLogger(__name__)


def gate_of(tags: Mapping[str, str]) -> Verdict | Literal["pending"]:
    """The verdict in tag `gate`. A person can write anything there: what is no verdict counts as none."""
    value = tags.get("gate", "pending")
    try:
        return Verdict(value)
    except ValueError:
        if value != "pending":
            logger.warning("tag gate=%r is no verdict; the version counts as not gated", value[:40])
        return "pending"


def with_note(description: str, note: str) -> str:
    """A description with a line about what happened to the version later; the same line stands there once."""
    return description if note in description.split("\n\n") else f"{description}\n\n{note}"


def with_verdict(description: str, verdict: str) -> str:
    """A description with its verdict, in place of an earlier one: what it was registered as, verdict, notes."""
    registered_as, *notes = description.split("\n\n")
    return "\n\n".join([registered_as, f"{_GATE}{verdict}", *(note for note in notes if not note.startswith(_GATE))])


_GATE = "Gate: "
