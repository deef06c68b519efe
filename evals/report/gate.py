"""The page of a gate's decision."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from evals.report.answers import examples
from evals.report.feedback import said, used
from evals.report.page import render
from evals.report.plot import interval_plot
from evals.report.speaker import Speaker
from evals.report.texts import METRIC_NAMES
from evals.report.verdict import difference, headline, lead, levels, next_step, outcome, sure, user_means, why
from pipeline.config import BusinessConfig
from pipeline.records import Check, EvalResult, GateDecision, ScoredItem, SnapshotManifest

_SAME_AXIS = ("share", "score")


class Watched(NamedTuple):
    """One guardrail in words."""

    name: str
    baseline: str
    candidate: str
    allowed: str
    passed: bool | None
    note: str


def render_gate_report(
    decision: GateDecision,
    result: EvalResult,
    manifest: SnapshotManifest,
    *,
    business: BusinessConfig,
    version: int | None,
    baseline_version: int | None,
    generated_at: datetime,
) -> str:
    """One HTML page for the business's owner, in the business's report language.

    Args:
        decision: what was decided on `result`.
        manifest: of the snapshot that the candidate was trained on.
        version: the candidate's number in the registry; None where two endpoints were compared by hand.
        baseline_version: the number of the version in service; None for the base model.
        generated_at: aware; shown in the business's time zone.
    """
    say = Speaker(business.report_language, business.zone)
    primary = next(check for check in decision.checks if check.role == "primary")
    main = [scored for scored in result.items if scored.item.set_name != "recent"]
    scored = [item for item in main if primary.metric in item.baseline and primary.metric in item.candidate]
    names = _names(decision, version, baseline_version, say)
    return render(
        "gate.html",
        say=say,
        title=say("gate_title", candidate=names["candidate"]),
        business=business,
        decision=decision,
        baseline=names["baseline"],
        candidate=names["candidate"],
        headline=headline(decision, business, say, names),
        lead=lead(main, manifest, say),
        why=why(decision, business, say),
        next=next_step(decision, business, say, names),
        levels=levels(scored, primary, say),
        difference=difference(primary, business, say),
        outcome=outcome(scored, primary, say),
        said=said(manifest, say),
        used=used(manifest, say),
        examples=examples(scored, primary, decision.seed, say),
        watched=[_watched(check, main, say) for check in decision.checks if check.role == "guardrail"],
        plots=_plots(decision, business, say),
        sure=sure(primary, business, manifest, say),
        details=_details(decision, say),
        ids=say(
            "d_ids",
            decision=decision.decision_id[:12],
            snapshot=manifest.snapshot_id[:12],
            baseline=decision.baseline,
            candidate=decision.candidate,
            seed=str(decision.seed),
        ),
        method=say(
            "d_method",
            samples=business.gate.bootstrap_samples,
            confidence=say.percent(business.gate.confidence),
        ),
        generated=say("generated", at=f"{say.date(generated_at)} ({business.timezone})"),
    )


def _names(decision: GateDecision, version: int | None, baseline_version: int | None, say: Speaker) -> dict[str, str]:
    """What both sides are called; `version` only where the candidate has a number."""
    if version is None:
        return {"baseline": decision.baseline, "candidate": decision.candidate}
    number = str(version)
    baseline = say("base_model") if baseline_version is None else say("version_n", version=str(baseline_version))
    return {"version": number, "baseline": baseline, "candidate": say("version_n", version=number)}


def _watched(check: Check, main: Sequence[ScoredItem], say: Speaker) -> Watched:
    rows = [item for item in main if check.metric in item.baseline and check.metric in item.candidate]
    before, after = (say.level(check.metric, level) for level in user_means(rows, check.metric)) if rows else ("–", "–")
    note = ""
    if check.high is not None and check.low is not None and check.smallest_effect is not None:
        bound = check.high if METRIC_NAMES[check.metric].direction == -1 else -check.low
        if check.passed is None:
            note = say("could_be", bound=say.difference(check.metric, bound, signed=False))
        elif check.passed and check.low == check.high == 0:
            note = say("no_case", effect=say.percent(check.smallest_effect))
        elif check.passed and bound > check.margin:
            note = say("none_worse")
    if METRIC_NAMES[check.metric].unit == "log_ratio":
        note = f"{say('length_note')} {note}".strip()
    allowed = say.difference(check.metric, check.margin, signed=False) if check.margin else say("allowed_nothing")
    return Watched(say.metric(check.metric), before, after, allowed, check.passed, note)


def _plots(decision: GateDecision, business: BusinessConfig, say: Speaker) -> list[tuple[str, str, object]]:
    """(heading, legend, plot); each plot holds only metrics whose units compare."""
    fits = [check for check in decision.checks if METRIC_NAMES[check.metric.removeprefix("recent:")].unit in _SAME_AXIS]
    better = business.gate.goal == "better"
    quality = interval_plot([c for c in fits if c.role != "guardrail"], say, goal_better=better)
    safety = interval_plot([c for c in fits if c.role == "guardrail"], say)
    legend = say("axis_goal") if better else say("axis_margin")
    plots = [(say("plot_quality"), legend, quality), (say("plot_safety"), say("axis_margin"), safety)]
    return [(name, told, plot) for name, told, plot in plots if plot is not None]


def _details(decision: GateDecision, say: Speaker) -> list[list[str]]:
    rows = []
    for check in decision.checks:
        result = {True: say("passed"), False: say("failed"), None: say("open")}[check.passed]
        rows.append(
            [
                check.metric,
                say(f"role_{check.role}"),
                "–" if check.estimate is None else f"{check.estimate:+.4f}",
                "–" if check.low is None else f"{check.low:+.4f} … {check.high:+.4f}",
                "–" if check.role == "information" else f"{check.margin:g}",
                f"{check.items} / {check.users}",
                "–" if check.smallest_effect is None else f"{check.smallest_effect:.4f}",
                "–" if check.role == "information" else result,
            ]
        )
    return rows
