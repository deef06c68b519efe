"""The page of a rollout: how a version is brought to the users, step by step."""

from datetime import datetime
from typing import NamedTuple

from evals.report.page import render
from evals.report.plot import Plot, interval_plot, interval_told
from evals.report.speaker import Speaker
from evals.report.texts import METRIC_NAMES
from pipeline.config import BusinessConfig
from pipeline.records import Check, RolloutReport, StepEvidence


class Step(NamedTuple):
    """One widening in words."""

    share: str
    time: str
    users: str
    state: str
    """`passed`, `failed` or `open`."""
    state_told: str
    plot: Plot | None
    told: list[tuple[str, str, bool | None]]
    """Checks that share no axis with the others: name, numbers, result."""


class Rung(NamedTuple):
    """One step of the ladder at the top."""

    share: str
    state: str
    """`done`, `now`, `stopped` or `ahead`."""


def render_rollout_report(report: RolloutReport, *, business: BusinessConfig, generated_at: datetime) -> str:
    """One HTML page for the business's owner, in the business's report language.

    Args:
        report: everything that is known about the rollout.
        generated_at: aware; shown in the business's time zone.
    """
    say = Speaker(business.report_language, business.zone)
    previous = (
        say("base_model") if report.previous_version is None else say("version_n", version=str(report.previous_version))
    )
    share = say.percent(report.steps[-1].share) if report.steps else say.percent(0)
    names = {"version": str(report.version), "previous": previous, "share": share}
    return render(
        "rollout.html",
        say=say,
        title=say("rollout_title", version=str(report.version)),
        business=business,
        report=report,
        headline=say(f"rollout_{report.state}", **names),
        lead=say(f"rollout_lead_{report.state}", **names),
        ladder=_ladder(report, business, say),
        steps=[_step(step, report, last=step is report.steps[-1], say=say) for step in report.steps],
        generated=say("generated", at=f"{say.date(generated_at)} ({business.timezone})"),
    )


def _ladder(report: RolloutReport, business: BusinessConfig, say: Speaker) -> list[Rung]:
    reached = [step.share for step in report.steps]
    planned = [step.share for step in business.rollout.steps if step.share not in reached]
    rungs = []
    for share in sorted({*reached, *planned}):
        state = "ahead"
        if share in reached:
            last = share == reached[-1] and report.state != "done"
            state = ("stopped" if report.state == "rolled_back" else "now") if last else "done"
        rungs.append(Rung(say.percent(share), state))
    return rungs


def _step(step: StepEvidence, report: RolloutReport, *, last: bool, say: Speaker) -> Step:
    failed = any(check.passed is False for check in step.checks) or (last and report.state == "rolled_back")
    done = not last or report.state == "done"
    state = "failed" if failed else "passed" if done else "open"
    comparable = [check for check in step.checks if _shares_axis(check)]
    others = [check for check in step.checks if not _shares_axis(check)]
    start = say.date(step.started_at)
    return Step(
        share=say("step_share", share=say.percent(step.share)),
        time=say("step_running", start=start)
        if step.ended_at is None
        else say("step_time", start=start, end=say.date(step.ended_at)),
        users=say(
            "step_users" if step.control_users else "step_users_alone",
            candidate=step.candidate_users,
            control=step.control_users,
        ),
        state=state,
        state_told=say(f"step_{state}"),
        plot=interval_plot(comparable, say),
        told=[(say.metric(check.metric), _told(check, say), check.passed) for check in others],
    )


def _shares_axis(check: Check) -> bool:
    """Differences between the arms do; a rate against its limit, and the split of the users, do not."""
    return check.low is not None and check.metric in METRIC_NAMES and not check.metric.endswith("_limit")


def _told(check: Check, say: Speaker) -> str:
    if check.estimate is not None and check.metric.endswith("_limit"):
        return say("limit_told", rate=say.percent(check.estimate), limit=say.percent(check.margin))
    return interval_told(check, say)
