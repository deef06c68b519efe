"""The page of a rollout: how a version is brought to the users, step by step; and the same on its decision's page."""

import re
from datetime import datetime
from typing import NamedTuple

from evals.report.entry import Entry
from evals.report.page import fragment, render
from evals.report.plot import Strip, interval_told, strip
from evals.report.speaker import Lang, Speaker
from evals.report.texts import METRIC_NAMES
from pipeline.config import BusinessConfig
from pipeline.records import Check, RolloutReport, StepEvidence
from pipeline.rollout.shadow import AGREEMENT

_CANARY = re.compile(r"(<!--canary:(en|zh)-->).*?(<!--/canary-->)", re.DOTALL)


class Guarded(NamedTuple):
    """One check of a step in words."""

    name: str
    told: str
    strip: Strip | None
    passed: bool | None
    judged: bool
    """False where it only informs."""


class Step(NamedTuple):
    """One widening in words."""

    share: str
    time: str
    users: str
    state: str
    """`passed`, `failed` or `open`."""
    state_told: str
    checks: list[Guarded]


class Rung(NamedTuple):
    """One step of the ladder at the top."""

    share: str
    state: str
    """`done`, `now`, `stopped` or `ahead`."""


def render_rollout_report(report: RolloutReport, *, business: BusinessConfig, generated_at: datetime) -> str:
    """One HTML page for the business's owner, in both languages.

    Args:
        report: everything that is known about the rollout.
        generated_at: aware; shown in the business's time zone.
    """

    def tell(say: Speaker) -> dict[str, object]:
        return {"title": say("rollout_title", version=str(report.version)), **course(report, business, say)}

    entry = Entry(kind="rollout", version=report.version, at=generated_at, outcome=report.state)
    return render("rollout.html", tell, business=business, generated_at=generated_at, entry=entry)


def with_canary(page: str, report: RolloutReport, business: BusinessConfig) -> str:
    """A decision's page that also tells how the rollout of its version goes, in place of what it told before.

    Args:
        page: as `render_gate_report` or this made it; a page without a place for it stays as it is.
        report: of the version that the page is about.
    """

    def told(place: re.Match[str]) -> str:
        lang: Lang = "zh" if place[2] == "zh" else "en"
        say = Speaker(lang, business.zone)
        return f"{place[1]}\n{fragment('course.html', say, **course(report, business, say))}\n{place[3]}"

    return _CANARY.sub(told, page)


def keep_canary(page: str, before: str) -> str:
    """A decision's page made again, with what `before`, the page that stood in its place, told of the rollout."""
    told = {place[2]: place[0] for place in _CANARY.finditer(before)}
    return _CANARY.sub(lambda place: told.get(place[2], place[0]), page)


def course(report: RolloutReport, business: BusinessConfig, say: Speaker) -> dict[str, object]:
    """What a template tells of a rollout, in one language."""
    previous = (
        say("base_model") if report.previous_version is None else say("version_n", version=str(report.previous_version))
    )
    share = say.percent(report.steps[-1].share) if report.steps else say.percent(0)
    names = {"version": str(report.version), "previous": previous, "share": share}
    return {
        "report": report,
        "headline": say(f"rollout_{_manner(report)}", **names),
        "lead": say(f"rollout_lead_{_manner(report)}", **names),
        "why": _why(report, business, say),
        "ladder": _ladder(report, business, say),
        "steps": [_step(step, report, last=step is report.steps[-1], say=say) for step in report.steps],
        "started": say("rollout_started", at=say.date(report.started_at)),
    }


def _manner(report: RolloutReport) -> str:
    """The report's state; while it goes on, also whether anybody sees the new version, and how."""
    last = report.steps[-1] if report.steps else None
    if report.state != "canary" or last is None:
        return report.state
    return "ab" if last.is_ab else "canary" if last.share else "shadow"


def _why(report: RolloutReport, business: BusinessConfig, say: Speaker) -> list[str]:
    """In the reader's language where the evidence tells it; otherwise in the words of who decided."""
    last = report.steps[-1] if report.steps else None
    match report.state:
        case "done":
            return [say("rollout_why_done")]
        case "rolled_back":
            worse = [check for check in last.checks if check.passed is False] if last else []
            return [say("rollout_why_worse", metric=say.metric(check.metric)) for check in worse] or [report.reason]
        case "ended":
            return _outcomes(last, say)
        case "canary" if last is not None and last.is_ab:
            return _outcomes(last, say)
        case "canary" if last is not None and not last.share:
            needed = business.rollout.shadow.min_users if business.rollout.shadow else 0
            if last.candidate_users < needed:
                return [say("rollout_few_copies", users=last.candidate_users, needed=needed)]
            return [say("rollout_why_waiting")]
        case "canary" if last is not None:
            needed = next((step.min_users for step in business.rollout.steps if step.share == last.share), 0)
            arms = {"rollout_few_candidate": last.candidate_users}
            if last.share < 1:
                arms["rollout_few_control"] = last.control_users
            few = [say(key, users=users, needed=needed) for key, users in arms.items() if users < needed]
            return few or [say("rollout_why_waiting")]
        case _:
            return []


def _outcomes(step: StepEvidence | None, say: Speaker) -> list[str]:
    """What an A/B test has shown beyond what chance explains."""
    told = []
    for check in step.checks if step else ():
        if check.role == "information" and check.low is not None and check.high is not None:
            bounds = (say.direction(check.metric) * check.low, say.direction(check.metric) * check.high)
            if min(bounds) > 0 or max(bounds) < 0:
                told.append(say("ab_better" if min(bounds) > 0 else "ab_worse", metric=say.metric(check.metric)))
    return told or [say("ab_open")]


def _ladder(report: RolloutReport, business: BusinessConfig, say: Speaker) -> list[Rung]:
    reached = [step.share for step in report.steps]
    is_ab = any(step.is_ab for step in report.steps)
    planned = [step.share for step in business.rollout.steps if step.share not in reached and not is_ab]
    rungs = []
    for share in sorted({*reached, *planned}):
        state = "ahead"
        if share in reached:
            last = share == reached[-1] and report.state not in ("done", "ended")
            state = ("stopped" if report.state == "rolled_back" else "now") if last else "done"
        rungs.append(Rung(say.percent(share) if share else say("step_shadow"), state))
    return rungs


def _step(step: StepEvidence, report: RolloutReport, *, last: bool, say: Speaker) -> Step:
    failed = any(check.passed is False for check in step.checks) or (last and report.state == "rolled_back")
    done = not last or report.state in ("done", "ended")
    state = "failed" if failed else "passed" if done else "open"
    start, percent = say.date(step.started_at), say.percent(step.share)
    return Step(
        share=say("step_ab" if step.is_ab else "step_share" if step.share else "step_shadow", share=percent),
        time=say("step_running", start=start)
        if step.ended_at is None
        else say("step_time", start=start, end=say.date(step.ended_at)),
        users=say(
            "step_users_shadow" if not step.share else "step_users" if step.control_users else "step_users_alone",
            candidate=step.candidate_users,
            control=step.control_users,
        ),
        state=state,
        state_told=say(f"step_{state}"),
        checks=[_guarded(check, say) for check in step.checks],
    )


def _guarded(check: Check, say: Speaker) -> Guarded:
    """Differences between the arms are drawn; a rate against its limit, and the split of the users, are only told."""
    drawn = check.metric in METRIC_NAMES and not check.metric.endswith("_limit")
    return Guarded(
        say.metric(check.metric),
        _told(check, say),
        strip(check, say) if drawn else None,
        check.passed,
        check.role != "information",
    )


def _told(check: Check, say: Speaker) -> str:
    if check.estimate is not None and check.metric.endswith("_limit"):
        return say("limit_told", rate=say.percent(check.estimate), limit=say.percent(check.margin))
    if check.estimate is not None and check.metric == AGREEMENT:
        return say.level(check.metric, check.estimate)
    return interval_told(check, say)
