"""When a step of a canary can have the users that it needs, by how many came at this time of day before. Pure.

It asks: had the step begun at this hour on each of the last days, when would it have seen enough users? So it knows
quiet nights and busy mornings, and nothing of holidays.
"""

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter

from pipeline.config import StepConfig
from pipeline.records import Record, Share

DAYS = 7


class Forecast(Record):
    """Of one step that begins now."""

    share: Share
    users: int
    """Distinct users that each arm still needs."""
    days: int
    """How many earlier days this rests on; 0: nobody knows."""
    in_time: int
    """On how many of them there would have been enough users before the step's time-out."""
    minutes: float | None
    """Half of all days are quicker; None when half of them would have timed out."""


def first_look(step: StepConfig, now: datetime) -> datetime:
    """From when on visits must be known for the forecast."""
    return now - timedelta(days=DAYS) - _whole_days(step)


def forecast(
    visits: Sequence[tuple[datetime, str]], step: StepConfig, now: datetime, seen: int = 0, waited_minutes: float = 0.0
) -> Forecast:
    """Forecast one step.

    Args:
        visits: when who came (user, else session), of all arms, oldest first, from `first_look` on.
        seen: users that the smaller arm has already.
        waited_minutes: how long the step has lasted already.
    """
    needed = max(0, step.min_users - seen)
    left = timedelta(minutes=max(0.0, step.timeout_minutes - waited_minutes))
    soonest = max(0.0, step.min_minutes - waited_minutes)
    crowd = math.ceil(needed / step.share)
    waits = [
        _minutes_until(visits, begin, left, crowd)
        for day in range(DAYS)
        if visits and (begin := now - _whole_days(step) - timedelta(days=day)) >= visits[0][0]
    ]
    reached = sorted(max(soonest, wait) for wait in waits if wait is not None)
    middle = statistics.median_high([*reached, *[math.inf] * (len(waits) - len(reached))]) if waits else math.inf
    return Forecast(
        share=step.share,
        users=needed,
        days=len(waits),
        in_time=len(reached),
        minutes=middle if math.isfinite(middle) else None,
    )


def _whole_days(step: StepConfig) -> timedelta:
    """So far back a step must have begun to be over by now, at the same time of day."""
    return timedelta(days=max(1, math.ceil(step.timeout_minutes / (24 * 60))))


def _minutes_until(
    visits: Sequence[tuple[datetime, str]], begin: datetime, left: timedelta, crowd: int
) -> float | None:
    """Until so many distinct users had come; None when they had not before the time was up."""
    if crowd == 0:
        return 0.0
    users: set[str] = set()
    for at, who in visits[bisect_left(visits, begin, key=itemgetter(0)) :]:
        if at >= begin + left:
            return None
        users.add(who)
        if len(users) == crowd:
            return (at - begin) / timedelta(minutes=1)
    return None
