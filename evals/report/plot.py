"""Where the marks of an interval plot stand: differences become percent of the plot's width.

Right is always better, whichever way a metric counts. Each check has an axis of its own, as wide as its interval and
its threshold need.
"""

from collections.abc import Callable
from typing import NamedTuple

from evals.report.speaker import Speaker
from pipeline.records import Check

_REACH = 46.0
"""Percent of the width on each side of zero that the marks may use."""
_NARROWEST = 0.005
"""A difference below half a point is never stretched over the whole width."""


class Strip(NamedTuple):
    """One interval. All positions are percent of the width."""

    low: float
    high: float
    dot: float
    edge: float | None
    """The threshold; what lies left of it does not pass. None where nothing is asked."""
    zero: float = 50.0


def strip(check: Check, say: Speaker, *, goal_better: bool = False) -> Strip | None:
    """Lay out a check; None when it has no interval.

    Args:
        goal_better: the primary check must lie above its margin, not only above minus its margin.
    """
    if check.estimate is None or check.low is None or check.high is None:
        return None
    direction = say.direction(check.metric)
    low, high = sorted((direction * check.low, direction * check.high))
    edge = None
    if check.role != "information":
        edge = check.margin if goal_better and check.role == "primary" else -check.margin
    reach = max(_NARROWEST, abs(low), abs(high), abs(edge or 0.0))
    at = _axis(reach)
    return Strip(at(low), at(high), at(direction * check.estimate), None if edge is None else at(edge))


def _axis(reach: float) -> Callable[[float], float]:
    return lambda value: round(50 + _REACH * value / reach, 2)


def interval_told(check: Check, say: Speaker) -> str:
    """`+31 points (+22 … +40)`, in the metric's own direction."""
    if check.estimate is None:
        return say("no_data")
    told = say.difference(check.metric, check.estimate)
    if check.low is None or check.high is None:
        return told
    return f"{told} ({say.bare(check.metric, check.low)} … {say.bare(check.metric, check.high)})"
