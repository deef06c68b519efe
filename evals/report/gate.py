"""The page of a gate's decision."""

from datetime import datetime
from typing import NamedTuple

from evals.report.answers import samples, wishes
from evals.report.checks import rows
from evals.report.entry import Entry
from evals.report.feedback import said, used
from evals.report.judge import judge_cost, judge_told
from evals.report.limits import limits, unseen
from evals.report.page import render
from evals.report.speaker import Speaker
from evals.report.verdict import difference, headline, lead, levels, next_step, outcome, why
from pipeline.config import BusinessConfig
from pipeline.records import Adapter, Check, EvalResult, GateDecision, SnapshotManifest, canonical_json


class Lineage(NamedTuple):
    """Where a candidate comes from and where it was measured."""

    adapter: Adapter
    engines: tuple[str, ...]
    """Names of the engines that answered."""


def render_gate_report(
    decision: GateDecision,
    result: EvalResult,
    manifest: SnapshotManifest,
    *,
    business: BusinessConfig,
    version: int | None,
    baseline_version: int | None,
    generated_at: datetime,
    lineage: Lineage | None = None,
) -> str:
    """One HTML page for the business's owner, in both languages.

    Args:
        decision: what was decided on `result`.
        manifest: of the snapshot that the candidate was trained on.
        version: the candidate's number in the registry; None where two endpoints were compared by hand.
        baseline_version: the number of the version in service; None for the base model.
        generated_at: aware; shown in the business's time zone.
        lineage: None where two endpoints were compared by hand.
    """
    primary = next(check for check in decision.checks if check.role == "primary")
    main = [scored for scored in result.items if scored.item.set_name != "recent"]
    scored = [item for item in main if primary.metric in item.baseline and primary.metric in item.candidate]

    def tell(say: Speaker) -> dict[str, object]:
        names = _names(decision, version, baseline_version, say)
        sides = names["baseline"], names["candidate"]
        return {
            "title": say("gate_title", candidate=names["candidate"]),
            "decision": decision,
            "version": version,
            "baseline": names["baseline"],
            "candidate": names["candidate"],
            "headline": headline(decision, business, say, names),
            "lead": lead(main, manifest, say),
            "why": why(decision, business, say),
            "next": next_step(decision, business, say, names),
            "levels": levels(scored, primary, say),
            "difference": difference(primary, business, say),
            "outcome": outcome(scored, primary, say),
            "said": said(manifest, say),
            "wishes": wishes(result.items, decision.seed, say),
            "used_title": say("used_title"),
            "used": used(manifest, say),
            "samples": samples(scored, primary, decision.seed, sides, say),
            "rows": rows(decision, (*result.items, *result.missing, *result.probes), business, say),
            "judge": judge_told(decision, say),
            "limits": limits(decision, business, manifest, say),
            "unseen": unseen(decision, say),
            "details": _details(decision, say),
            "lineage": _lineage(decision, manifest, business, lineage, say),
            "method": say(
                "d_method",
                samples=business.gate.bootstrap_samples,
                confidence=say.percent(business.gate.confidence),
            ),
        }

    entry = None if version is None else _entry(decision, primary, version, generated_at)
    return render("gate.html", tell, business=business, generated_at=generated_at, entry=entry)


def _entry(decision: GateDecision, primary: Check, version: int, at: datetime) -> Entry:
    return Entry(
        kind="decision",
        version=version,
        at=at,
        outcome=decision.verdict.value,
        metric=primary.metric,
        estimate=primary.estimate,
        low=primary.low,
        high=primary.high,
    )


def _names(decision: GateDecision, version: int | None, baseline_version: int | None, say: Speaker) -> dict[str, str]:
    """What both sides are called; `version` only where the candidate has a number."""
    if version is None:
        return {"baseline": decision.baseline, "candidate": decision.candidate}
    number = str(version)
    baseline = say("base_model") if baseline_version is None else say("version_n", version=str(baseline_version))
    return {"version": number, "baseline": baseline, "candidate": say("version_n", version=number)}


def _lineage(
    decision: GateDecision, manifest: SnapshotManifest, business: BusinessConfig, lineage: Lineage | None, say: Speaker
) -> list[tuple[str, str]]:
    known = [
        ("l_snapshot", manifest.snapshot_id),
        ("l_window", f"{manifest.window_start.isoformat()} – {manifest.window_end.isoformat()}"),
    ]
    if lineage is not None:
        adapter = lineage.adapter
        known += [
            ("l_adapter", adapter.sha256),
            ("l_parent", adapter.parent_sha256 or say("base_model")),
            ("l_base", f"{adapter.base.id}@{adapter.base.revision}, {adapter.base.digest}"),
            ("l_recipe", f"{adapter.method.value}: {canonical_json(business.training.model_dump(mode='json'))}"),
            ("l_training", adapter.training_id),
            ("l_engine", say.listed(list(lineage.engines))),
        ]
    if decision.judging is not None:
        known.append(("l_judge", judge_cost(decision.judging, say)))
    known += [
        ("l_sides", f"{decision.baseline} → {decision.candidate}"),
        ("l_decision", decision.decision_id),
        ("l_seed", str(decision.seed)),
    ]
    return [(say(key), value) for key, value in known]


def _details(decision: GateDecision, say: Speaker) -> list[list[str]]:
    return [_numbers(check, say) for check in decision.checks]


def _numbers(check: Check, say: Speaker) -> list[str]:
    informs = check.role == "information"
    return [
        check.metric,
        say(f"role_{check.role}"),
        "–" if check.estimate is None else f"{check.estimate:+.4f}",
        "–" if check.low is None else f"{check.low:+.4f} … {check.high:+.4f}",
        "–" if informs else f"{check.margin:g}",
        f"{check.items} / {check.users}",
        "–" if check.smallest_effect is None else f"{check.smallest_effect:.4f}",
        "–" if informs else say({True: "passed", False: "failed", None: "open"}[check.passed]),
    ]
