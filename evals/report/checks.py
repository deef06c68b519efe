"""Each check of a decision in words, with its interval and its threshold."""

from collections.abc import Sequence
from typing import NamedTuple

from evals.report.plot import Strip, interval_told, strip
from evals.report.speaker import Speaker
from evals.report.texts import METRIC_NAMES
from evals.report.verdict import user_means
from pipeline.config import BusinessConfig
from pipeline.records import Check, GateDecision, ItemScores


class Row(NamedTuple):
    """One check."""

    name: str
    judged: bool
    levels: tuple[str, str] | None
    """Of the version in service and of the new one; None without data."""
    told: str
    """The difference and its bounds."""
    asked: str
    """The threshold."""
    strip: Strip | None
    passed: bool | None
    result: str
    note: str
    """What the numbers mean, where that is not plain."""


def rows(decision: GateDecision, items: Sequence[ItemScores], business: BusinessConfig, say: Speaker) -> list[Row]:
    """The primary check, the guardrails, and what is only for information, in this order.

    Args:
        items: all that were asked, of whatever set.
    """
    better = business.gate.goal == "better"
    order = ("primary", "guardrail", "information")
    checks = sorted(decision.checks, key=lambda check: order.index(check.role))
    return [_row(check, items, better, say) for check in checks]


def _row(check: Check, items: Sequence[ItemScores], better: bool, say: Speaker) -> Row:
    metric = check.metric.removeprefix("recent:")
    mine = [
        item
        for item in items
        if (item.item.set_name == "recent") == check.metric.startswith("recent:")
        and metric in item.baseline
        and metric in item.candidate
    ]
    means = user_means(mine, metric) if mine else None
    return Row(
        name=say.metric(check.metric),
        judged=check.role != "information",
        levels=None if means is None else (say.level(metric, means[0]), say.level(metric, means[1])),
        told=interval_told(check, say),
        asked=_asked(check, better, say),
        strip=strip(check, say, goal_better=better),
        passed=check.passed,
        result=_result(check, better, say),
        note=say("length_note") if METRIC_NAMES[metric].unit == "log_ratio" else "",
    )


def _asked(check: Check, better: bool, say: Speaker) -> str:
    margin = say.difference(check.metric, check.margin, signed=False)
    match check.role:
        case "information":
            return say("asked_nothing")
        case "primary" if better:
            return say("asked_better_by", margin=margin) if check.margin else say("asked_better")
        case _:
            return say("asked_not_worse_by", margin=margin) if check.margin else say("asked_not_worse")


def _result(check: Check, better: bool, say: Speaker) -> str:
    if check.passed is None:
        return say("open")
    if check.passed:
        return say("passed")
    return say("short" if check.role == "primary" and better else "failed")
