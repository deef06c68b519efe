"""How many tokens the copies of a business's requests may take of the engines in an hour.

Tokens are reserved before a request is sent, as many as it could take at most, and what it did not take is given back:
so the budget is never exceeded, whatever engines answer, and a crash only leaves too much reserved.
"""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import AwareDatetime

from pipeline.gateway.kept import read_kept, write_kept
from pipeline.records import Record


class Hour(Record):
    """What one business has taken in the hour that began at `start`."""

    start: AwareDatetime
    tokens: int


class Hours(Record):
    """What is kept over a restart."""

    businesses: dict[str, Hour] = {}


class Reserved(NamedTuple):
    """Tokens that one request may take."""

    business: str
    start: datetime
    """Of the hour that they count in."""
    tokens: int


class TokenBudget:
    """Budgets of all businesses.

    Args:
        per_hour: tokens of each business that has a budget; others have none.
        file: where the current hour is kept.
    """

    def __init__(self, per_hour: Mapping[str, int], file: Path) -> None:
        self._per_hour = per_hour
        self._file = file
        self._alone = threading.Lock()
        self._hours = dict((read_kept(file, Hours) or Hours()).businesses)

    def reserve(self, business: str, tokens: int, now: datetime) -> Reserved | None:
        """Set tokens aside; None when the hour has not so many left."""
        hour = self._hour(business, now)
        if hour.tokens + tokens > self._per_hour.get(business, 0):
            return None
        self._hours[business] = Hour(start=hour.start, tokens=hour.tokens + tokens)
        return Reserved(business, hour.start, tokens)

    def settle(self, reserved: Reserved, used: int) -> None:
        """Give back what was not used, unless its hour is over."""
        hour = self._hours[reserved.business]
        if hour.start == reserved.start:
            tokens = hour.tokens - reserved.tokens + used
            self._hours[reserved.business] = Hour(start=hour.start, tokens=tokens)

    def keep(self) -> None:
        """Write down what is reserved (blocks). A request that was not written down must not be sent.

        Raises:
            OSError: the disk refuses.
        """
        with self._alone:  # threads of several businesses may write at once, and the last must know of all
            write_kept(self._file, Hours(businesses=dict(self._hours)))

    def _hour(self, business: str, now: datetime) -> Hour:
        """The hour that counts now. A clock that is set back opens no new one."""
        start = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        last = self._hours.get(business)
        return last if last is not None and last.start >= start else Hour(start=start, tokens=0)
