"""One user who gives far more signals in a short time than the others ever do.

Users differ by factors, not by amounts, so their busiest spans are compared on a logarithmic scale: how many robust
standard deviations above the median (B. Iglewicz and D. Hoaglin, "How to Detect and Handle Outliers", 1993), with the
limit of a normal tail divided by the number of users and spans looked at (Bonferroni). The median is never
taken as less than two, the spread as less than a factor of 1.75: in most businesses most users speak once or twice,
which would make four times a miracle.
Who says both good and bad at one sitting is reviewing, and must be three times as quick to be held. What stays below
is bounded by the cap on one user's share of the rows (`pipeline.dataset.caps`).
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from statistics import NormalDist, median

from pipeline.collect.poison.acts import FEW_PEERS, Act, Suspicion, by_actor
from pipeline.config import PoisonConfig
from pipeline.records import QuarantineReason

_SPANS = {
    "10 minutes": timedelta(minutes=10),
    "an hour": timedelta(hours=1),
    "a day": timedelta(days=1),
}
_LEAST_SPREAD = math.log(1.75)
_USUAL = 2
_REVIEW = 3
_ALIKE = 0.9
_UPPER = 0.9
_UPPER_Z = NormalDist().inv_cdf(_UPPER)


def bursts(acts: Sequence[Act], config: PoisonConfig) -> list[Suspicion]:
    """Users with a span beyond the limit, with their acts of all such spans."""
    users = by_actor(acts)
    if len(users) < FEW_PEERS:
        return []
    alpha = config.false_alarms / len(_SPANS)
    held: dict[str, dict[str, Act]] = {}
    evidence: dict[str, str] = {}
    for name, span in _SPANS.items():
        peaks = {user: max(_counts(own, span)) for user, own in users.items()}
        limit = max(float(config.min_signals), _limit(peaks.values(), alpha))
        for user, peak in peaks.items():
            inside = _within(users[user], span, limit) if peak > limit else []
            if inside and (peak > _REVIEW * limit or _one_sided(inside)):
                held.setdefault(user, {}).update((act.event_id, act) for act in inside)
                evidence.setdefault(user, _evidence(peak, name, peaks.values(), limit))
    return [
        Suspicion(QuarantineReason.BURST, evidence[user], tuple(of_user.values())) for user, of_user in held.items()
    ]


def _limit(peaks: Collection[int], alpha: float) -> float:
    logs = sorted(map(math.log, peaks))
    middle = max(math.log(_USUAL), median(logs))
    upper = logs[int(_UPPER * (len(logs) - 1))]
    spread = max(_LEAST_SPREAD, (upper - middle) / _UPPER_Z)
    return math.exp(middle + NormalDist().inv_cdf(1 - alpha / len(logs)) * spread)


def _one_sided(acts: Sequence[Act]) -> bool:
    return max(Counter(act.signal.sign for act in acts).values()) >= _ALIKE * len(acts)


def _counts(own: Sequence[Act], span: timedelta) -> list[int]:
    """For each act: how many there are in the span that begins with it."""
    times = [act.at for act in own]
    counts = []
    end = 0
    for start, at in enumerate(times):
        end = _end(times, max(start, end), at + span)
        counts.append(end - start)
    return counts


def _end(times: Sequence[datetime], end: int, until: datetime) -> int:
    while end < len(times) and times[end] < until:
        end += 1
    return end


def _within(own: Sequence[Act], span: timedelta, limit: float) -> list[Act]:
    """The acts of all spans beyond the limit."""
    inside: dict[str, Act] = {}
    for start, count in enumerate(_counts(own, span)):
        if count > limit:
            inside.update((act.event_id, act) for act in own[start : start + count])
    return list(inside.values())


def _evidence(peak: int, span: str, peaks: Collection[int], limit: float) -> str:
    return (
        f"one user gave {peak} signals within {span}; at their busiest, half of the {len(peaks)} users gave at most "
        f"{median(peaks):g}, and {math.floor(limit)} would still have passed"
    )
