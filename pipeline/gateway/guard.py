"""The fast speed of rollback: a candidate that fails in a burst gets no new turn from this gateway, with no
controller needed. Slower harm is the controller's to judge, on statistics."""

from collections import deque
from datetime import datetime

from pydantic import AwareDatetime

from pipeline.config import BurstConfig
from pipeline.records import BusinessKey, Record, Routes


class Trip(Record):
    """A candidate that this gateway stopped by itself."""

    business: BusinessKey
    model: str
    salt: str
    """Of the rollout that it was stopped in: it may be tried again in another."""
    at: AwareDatetime
    failures: int


class Barred(Record):
    """What the guard remembers over a restart."""

    trips: tuple[Trip, ...] = ()
    rolled_back: dict[str, str] = {}
    """Business to the candidate that it was rolled back from by command."""


class Guard:
    """Counts hard failures (5xx, time-out, cut, empty) of candidates and knows which are barred."""

    def __init__(self, burst: BurstConfig, barred: Barred | None = None) -> None:
        self._burst = burst
        self._failures: dict[tuple[str, str], deque[datetime]] = {}
        self._trips: dict[tuple[str, str], Trip] = {}
        self._rolled_back: dict[str, str] = {}
        if barred is not None:
            self._trips = {(trip.business, trip.model): trip for trip in barred.trips}
            self._rolled_back = dict(barred.rolled_back)

    def is_barred(self, business: str, model: str) -> bool:
        """Whether this candidate gets no new turn."""
        return (business, model) in self._trips or self._rolled_back.get(business) == model

    def failed(self, business: str, model: str, salt: str, now: datetime) -> Trip | None:
        """Note a hard failure of a rollout's candidate; returns the trip if this one made the burst."""
        key = (business, model)
        times = self._failures.setdefault(key, deque(maxlen=self._burst.failures))
        times.append(now)
        span = (now - times[0]).total_seconds()
        if key in self._trips or len(times) < self._burst.failures or span > self._burst.within_s:
            return None
        trip = self._trips[key] = Trip(business=business, model=model, salt=salt, at=now, failures=len(times))
        return trip

    def roll_back(self, business: str, model: str) -> None:
        """Bar a candidate by command."""
        self._rolled_back[business] = model

    def follow(self, routes: Routes) -> bool:
        """Forget what newer routes have dropped; returns whether anything was forgotten."""
        salts = {(route.business, route.candidate.model): route.salt for route in routes.routes if route.candidate}
        before = len(self._trips) + len(self._rolled_back)
        self._trips = {key: trip for key, trip in self._trips.items() if salts.get(key) == trip.salt}
        self._rolled_back = {key: model for key, model in self._rolled_back.items() if (key, model) in salts}
        self._failures = {key: times for key, times in self._failures.items() if key in salts}
        return len(self._trips) + len(self._rolled_back) < before

    def trips(self) -> tuple[Trip, ...]:
        """Candidates that this gateway stopped by itself, oldest first."""
        return tuple(sorted(self._trips.values(), key=lambda trip: trip.at))

    def state(self) -> Barred:
        """What to keep over a restart."""
        return Barred(trips=self.trips(), rolled_back=dict(self._rolled_back))
