"""The verdict of a gate in words: what was decided, why, and what happens now."""

from collections.abc import Sequence
from typing import NamedTuple

from evals.report.speaker import Speaker
from evals.report.texts import METRIC_NAMES
from pipeline.config import BusinessConfig
from pipeline.records import Check, GateDecision, ItemScores, ScoredItem, SnapshotManifest, Verdict


def headline(decision: GateDecision, business: BusinessConfig, say: Speaker, names: dict[str, str]) -> str:
    better = business.gate.goal == "better"
    primary = next(check for check in decision.checks if check.role == "primary")
    match decision.verdict:
        case Verdict.PROMOTE:
            key = "promote_better" if better else "promote_not_worse"
        case Verdict.REJECT if primary.passed is False:
            key = "reject_primary" if better else "reject_primary_not_worse"
        case Verdict.REJECT:
            key = "reject_guardrail"
        case Verdict.INCONCLUSIVE:
            key = "inconclusive"
    told = say(key, **names)
    return told[:1].upper() + told[1:]


def lead(main: Sequence[ScoredItem], manifest: SnapshotManifest, say: Speaker) -> str:
    golden = [scored for scored in main if scored.item.set_name == "golden"]
    held_out = [scored for scored in main if scored.item.set_name == "held_out"]
    sources = []
    if held_out:
        key = "lead_held_out" if manifest.split_by == "user" else "lead_held_out_session"
        users = len({scored.item.user_key for scored in held_out})
        sources.append(say(key, items=len(held_out), users=users))
    if golden:
        sources.append(say("lead_golden", items=len(golden)))
    return say("lead_asked", items=len(main), sources=say.listed(sources)) if sources else say("nothing_asked")


def why(decision: GateDecision, business: BusinessConfig, say: Speaker) -> list[str]:
    """A sentence for each reason, with all metrics that it holds for."""
    if decision.verdict is Verdict.PROMOTE:
        return [say(f"why_promote_{business.gate.goal}")]
    wanted = False if decision.verdict is Verdict.REJECT else None
    told: dict[tuple[str, tuple[tuple[str, object], ...]], list[str]] = {}
    for check in decision.checks:
        if check.role != "information" and check.passed is wanted:
            key, values = _reason(check, business, say)
            told.setdefault((key, tuple(values.items())), []).append(say.metric(check.metric))
    reasons = [say(key, metric=say.listed(metrics), **dict(values)) for (key, values), metrics in told.items()]
    missing = sum(one.items for one in decision.missing)
    if decision.verdict is Verdict.INCONCLUSIVE and missing > business.gate.max_missing_share * decision.asked:
        reasons.append(say("why_missing", missing=missing, asked=decision.asked))
    return reasons


def _reason(check: Check, business: BusinessConfig, say: Speaker) -> tuple[str, dict[str, object]]:
    """The sentence of a check that keeps the version out, and what fills it besides the metric."""
    gate, primary = business.gate, check.role == "primary"
    if check.estimate is None:
        return "why_no_data", {}
    if check.low is None or check.smallest_effect is None:
        return "why_one_user", {}
    if primary and check.users < gate.min_users:
        return "why_few_users", {"users": check.users, "needed": gate.min_users}
    if check.passed is False:
        suffix = "" if gate.goal == "better" else "_not_worse"
        return f"why_primary_fails{suffix}" if primary else "why_guardrail_fails", {}
    if primary:
        beyond = check.margin if gate.goal == "better" else 0.0
        return "why_primary_open", {
            "effect": say.difference(check.metric, beyond + check.smallest_effect, signed=False)
        }
    return "why_guardrail_open", {}


def next_step(decision: GateDecision, business: BusinessConfig, say: Speaker, names: dict[str, str]) -> str:
    if "version" not in names:
        return say("next_compared")
    if decision.verdict is not Verdict.PROMOTE:
        return say("next_stay", **names)
    share = say.percent(business.rollout.steps[0].share)
    return say("next_promote_auto" if business.rollout.auto_canary else "next_promote_manual", share=share, **names)


class Levels(NamedTuple):
    """The primary metric of both, as two bars."""

    metric: str
    baseline: str
    candidate: str
    baseline_width: float
    candidate_width: float


def levels(scored: Sequence[ScoredItem], primary: Check, say: Speaker) -> Levels | None:
    if not scored:
        return None
    before, after = user_means(scored, primary.metric)
    return Levels(
        metric=say.metric(primary.metric),
        baseline=say.level(primary.metric, before),
        candidate=say.level(primary.metric, after),
        baseline_width=round(100 * before, 1),
        candidate_width=round(100 * after, 1),
    )


def difference(primary: Check, business: BusinessConfig, say: Speaker) -> tuple[str, str] | None:
    """The measured difference, and its bounds in a sentence."""
    if primary.estimate is None:
        return None
    told = say.difference(primary.metric, primary.estimate)
    if primary.low is None or primary.high is None:
        return told, say("no_range")
    return told, say(
        "range",
        confidence=say.percent(business.gate.confidence),
        low=say.bare(primary.metric, primary.low),
        high=say.difference(primary.metric, primary.high),
    )


def outcome(scored: Sequence[ScoredItem], primary: Check, say: Speaker) -> list[tuple[str, str, int, float]]:
    """(class, name, count, percent of the width) of answers that got better, stayed the same, got worse."""
    gains = [gain(item, primary.metric) for item in scored]
    counts = {
        "better": sum(gain > 0 for gain in gains),
        "same": sum(gain == 0 for gain in gains),
        "worse": sum(gain < 0 for gain in gains),
    }
    return [(name, say(name), count, round(100 * count / len(gains), 2)) for name, count in counts.items() if gains]


def gain(scored: ScoredItem, metric: str) -> float:
    """How much better the candidate's answer scored."""
    return METRIC_NAMES[metric].direction * (scored.candidate[metric] - scored.baseline[metric])


def user_means(scored: Sequence[ItemScores], metric: str) -> tuple[float, float]:
    """Baseline's and candidate's level, each user counted once; their difference is the check's estimate."""
    levels: dict[str, list[tuple[float, float]]] = {}
    for item in scored:
        levels.setdefault(item.item.user_key, []).append((item.baseline[metric], item.candidate[metric]))
    means = [tuple(sum(side) / len(pairs) for side in zip(*pairs, strict=True)) for pairs in levels.values()]
    before, after = (sum(side) / len(means) for side in zip(*means, strict=True))
    return before, after
