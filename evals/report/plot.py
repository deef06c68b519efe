"""Where the marks of an interval plot stand: differences become percent of the plot's width.

Right is always better, whichever way a metric counts.
"""

from collections.abc import Sequence
from typing import NamedTuple

from evals.report.speaker import Speaker
from evals.report.texts import METRIC_NAMES
from pipeline.records import Check


class Row(NamedTuple):
    """One interval. All positions are percent of the width."""

    name: str
    told: str
    """The difference and its bounds in words."""
    low: float
    high: float
    dot: float
    shade: tuple[float, float] | None
    """Start and width of what does not pass."""
    passed: bool | None
    judged: bool


class Plot(NamedTuple):
    """Intervals over one axis."""

    zero: float
    rows: tuple[Row, ...]


def interval_plot(checks: Sequence[Check], say: Speaker, *, goal_better: bool = False) -> Plot | None:
    """Lay out the checks that have an interval; None when there is none.

    Args:
        checks: their units must be comparable: they share one axis.
        goal_better: the primary check must lie above its margin, not only above minus its margin.
    """
    shown = [check for check in checks if check.low is not None and check.high is not None]
    if not shown:
        return None
    spans = {check: sorted((_better(check, check.low), _better(check, check.high))) for check in shown}
    reach = max(0.02, *(abs(bound) for span in spans.values() for bound in span), *(_margin_seen(c) for c in shown))
    scale = 46 / reach

    def at(value: float) -> float:
        return round(50 + scale * value, 2)

    rows = []
    for check in shown:
        low, high = spans[check]
        shade = None
        if check.role != "information":
            edge = check.margin if goal_better and check.role == "primary" else -check.margin
            shade = (0.0, max(0.0, min(100.0, at(edge))))
        rows.append(
            Row(
                name=say.metric(check.metric),
                told=interval_told(check, say),
                low=at(low),
                high=at(high),
                dot=at(_better(check, check.estimate)),
                shade=shade,
                passed=check.passed,
                judged=check.role != "information",
            )
        )
    return Plot(zero=50.0, rows=tuple(rows))


def interval_told(check: Check, say: Speaker) -> str:
    """`+31 points (+22 to +40)`, in the metric's own direction."""
    name = check.metric.removeprefix("recent:")
    if check.estimate is None:
        return say("no_data")
    told = say.difference(name, check.estimate)
    if check.low is None or check.high is None:
        return told
    return f"{told} ({say.bare(name, check.low)} … {say.bare(name, check.high)})"


def _better(check: Check, value: float | None) -> float:
    assert value is not None
    metric = METRIC_NAMES.get(check.metric.removeprefix("recent:"))
    return value if metric is not None and metric.direction == 1 else -value


def _margin_seen(check: Check) -> float:
    """A margin widens the axis only while it does not squeeze the interval to a dot."""
    assert check.low is not None
    assert check.high is not None
    return min(check.margin, 3 * max(abs(check.low), abs(check.high), 0.01))
