"""Tags of a version and what they mean."""

import logging
from collections.abc import Mapping
from typing import Literal

from pipeline.records import Verdict

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
