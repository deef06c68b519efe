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
KNOWN_DAYS = 3
"""So many earlier days are evidence of a business that is too small; fewer may be its first ones."""
_SHARES = (0.1, 0.2, 0.3, 0.5, 1.0)


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


def first_looks(steps: Sequence[StepConfig], now: datetime) -> datetime:
    """From when on visits must be known for the forecasts of all steps."""
    return min(first_look(step, now) for step in steps)


def shortfall(visits: Sequence[tuple[datetime, str]], steps: Sequence[StepConfig], now: datetime) -> str | None:
    """Why a canary would be in vain: on most earlier days one of its steps would have timed out for want of users.

    Returns:
        The reason, with a share that would do; None when there is none, or too few days are known.
    """
    for step in steps:
        told = forecast(visits, step, now)
        if told.days < KNOWN_DAYS or told.minutes is not None:
            continue
        wider = (step.model_copy(update={"share": share}) for share in _SHARES if share > step.share)
        enough = next((one.share for one in wider if forecast(visits, one, now).minutes is not None), None)
        mend = "a longer `timeout_minutes` or fewer `min_users`"
        return (
            f"its traffic is too small: in a step of {step.share:.0%} each arm would have had {step.min_users} users "
            f"within {step.timeout_minutes:g} minutes on {told.in_time} of the last {told.days} days; set "
            f"{mend if enough is None else f'a share of {enough:.0%}, {mend}'} in the business's `rollout.steps`"
        )
    return None


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
