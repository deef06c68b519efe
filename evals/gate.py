"""Whether a candidate may replace what is in service: a pure function of its answers' scores.

The primary metric judges answers given, on users who were never trained on and on the golden suite. It must be better
(or not worse) beyond doubt, and every guardrail must be shown not to be worse by more than its margin. All of them must
pass, so no correction for many comparisons is due: asking for more only makes a promotion rarer.

What is not shown is not assumed: a missing score, an interval that reaches over its margin, fewer users than
`min_users` or too many items that one side or both left without an answer give `inconclusive`. A check fails only where
its harm is shown even among as many checks (Holm), because a reader takes each failed one for proven. One limit is
stated rather than solved: where not one answer got worse (no refusal at all, or only the baseline's), the guardrail
passes, and `smallest_effect` says how rare a case could still have stayed unseen. Otherwise no amount of data could
pass a margin of 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evals.judge.doubt import doubts
from evals.judge.words import agreement_in_words, explain
from evals.metrics import METRICS
from evals.missing import asked as asked_items
from evals.missing import count_missing, tell_missing, too_many
from evals.stats import Interval, chance_of_as_low, holm, paired_interval
from pipeline.config import GateConfig
from pipeline.errors import DataError
from pipeline.records import Check, EvalResult, GateDecision, ItemScores, JudgeDoubt, Judging, Verdict, content_id

_INFORMATION = (
    "golden",
    "chrf",
    "judge",
    "sycophancy",
    "general",
    "accepted_likelihood",
    "preference_accuracy",
    "preference_margin",
)
RECENT = "recent:"
"""Prefix of a check on the newest window of the other users, which may have been trained on near it: information."""


class _Judged(NamedTuple):
    """A check, and how probable so bad an estimate is where the truth is just bearable."""

    check: Check
    chance: float


def decide(result: EvalResult, config: GateConfig) -> GateDecision:
    """Judge a candidate. The same result and configuration give the same decision, down to its id.

    Every check's estimate and bounds are candidate minus baseline in the metric's own unit; whether more is better
    stands in `METRICS`.

    Raises:
        DataError: a score is no number; what it would decide is undefined.
    """
    main = [one for one in (*result.items, *result.missing) if one.item.set_name != "recent"]
    # A probe has the score of its set alone, so every metric finds its own items.
    asked = [*main, *result.probes]
    recent = [scored for scored in result.items if scored.item.set_name == "recent"]
    doubted = doubts(result.judging, config.judge) if result.judging and config.judge else ()
    primary = _primary(main, config)
    if config.primary == "judge" and (doubted or result.judging is None):
        primary = _undecided(primary)
    guardrails = [_guardrail(asked, metric, margin, config) for metric, margin in sorted(config.guardrails.items())]
    judged = _name_harms([primary, *guardrails], config)
    known = {config.primary, *config.guardrails}
    checks = [*judged]
    checks += [_information(asked, metric, metric, config) for metric in _INFORMATION if metric not in known]
    checks += [_information(recent, config.primary, RECENT + config.primary, config)]
    verdict = _verdict(judged, complete=not too_many(result, config.max_missing_share))
    body = {
        "business": result.business,
        "baseline": result.baseline,
        "candidate": result.candidate,
        "verdict": verdict,
        "reason": _reason(verdict, judged, config)
        + tell_missing(result, config.max_missing_share)
        + _of_the_judge(result.judging, doubted, config),
        "checks": [check.model_dump(mode="json") for check in checks if check.items or check.role != "information"],
        "asked": asked_items(result),
        "missing": [count.model_dump(mode="json") for count in count_missing(result)],
        "seed": config.seed,
        "judge_doubts": doubted,
    }
    return GateDecision.model_validate({"decision_id": content_id(body), "judging": result.judging, **body})


def _verdict(judged: Sequence[Check], *, complete: bool) -> Verdict:
    if any(check.passed is False for check in judged):
        return Verdict.REJECT
    return Verdict.PROMOTE if complete and all(check.passed for check in judged) else Verdict.INCONCLUSIVE


def _primary(items: Sequence[ItemScores], config: GateConfig) -> _Judged:
    found = _compare(items, config.primary, config)
    bound = config.margin if config.goal == "better" else -config.margin
    passed: bool | None = None
    if found is not None and found.users >= config.min_users:
        worst, best = _signed(found, config.primary)
        # An interval that only touches the margin (all answers scored alike) has shown no improvement.
        shown = worst > bound if config.goal == "better" else worst >= bound
        passed = True if shown else False if best < bound else None
    return _judged(found, config.primary, "primary", config.margin, bound, passed)


def _undecided(judged: _Judged) -> _Judged:
    """What a judge found that is not to be relied on: shown, and proof of neither benefit nor harm."""
    return _Judged(judged.check.model_copy(update={"passed": None}), 1.0)


def _of_the_judge(judging: Judging | None, doubted: Sequence[JudgeDoubt], config: GateConfig) -> str:
    """What the judge's word is worth, or why it does not count, where the decision rests on it."""
    if config.primary != "judge" or judging is None or config.judge is None:
        return ""
    if not doubted:
        return f" Of the judge: {agreement_in_words(judging)}."
    return f" The judge does not decide: {'; '.join(explain(doubt, judging, config.judge) for doubt in doubted)}."


def _guardrail(items: Sequence[ItemScores], metric: str, margin: float, config: GateConfig) -> _Judged:
    found = _compare(items, metric, config)
    passed: bool | None = None
    if found is not None and found.low is not None and found.high is not None:
        worst, best = _signed(found, metric)
        unharmed = all(_improvement(scored, metric) >= 0 for scored in _scored(items, metric))
        passed = True if worst >= -margin or unharmed else False if best < -margin else None
    return _judged(found, metric, "guardrail", margin, -margin, passed)


def _judged(
    found: Interval | None, metric: str, role: str, margin: float, bound: float, passed: bool | None
) -> _Judged:
    check = _check(found, metric, role, margin, passed)
    if found is None or found.low is None:
        return _Judged(check, 1.0)
    improvement = METRICS[metric].direction * found.estimate
    return _Judged(check, chance_of_as_low(improvement, bound, found.error, found.users))


def _name_harms(judged: Sequence[_Judged], config: GateConfig) -> list[Check]:
    """The checks, with only those failed that may be called worse beside all the others; the rest is left open."""
    named = holm([one.chance for one in judged], (1 - config.confidence) / 2)
    return [
        one.check.model_copy(update={"passed": None}) if one.check.passed is False and not harm else one.check
        for one, harm in zip(judged, named, strict=True)
    ]


def _information(items: Sequence[ItemScores], metric: str, name: str, config: GateConfig) -> Check:
    return _check(_compare(items, metric, config), name, "information", 0.0, None)


def _scored(items: Sequence[ItemScores], metric: str) -> list[ItemScores]:
    rows = [scored for scored in items if metric in scored.baseline and metric in scored.candidate]
    for scored in rows:
        if not (math.isfinite(scored.baseline[metric]) and math.isfinite(scored.candidate[metric])):
            raise DataError(
                f"item {scored.item.item_id[:12]}: its score '{metric}' is no number ({scored.baseline[metric]} and "
                f"{scored.candidate[metric]}); the scorer or the engine's log-probabilities are broken"
            )
    return rows


def _improvement(scored: ItemScores, metric: str) -> float:
    return METRICS[metric].direction * (scored.candidate[metric] - scored.baseline[metric])


def _signed(found: Interval, metric: str) -> tuple[float, float]:
    """The bounds as improvement: (the worst, the best) that the data allow; larger is better."""
    assert found.low is not None
    assert found.high is not None
    if METRICS[metric].direction == 1:
        return found.low, found.high
    return -found.high, -found.low


def _compare(items: Sequence[ItemScores], metric: str, config: GateConfig) -> Interval | None:
    """None when no item has this score on both sides."""
    rows = _scored(items, metric)
    if not rows:
        return None
    users = {user: index for index, user in enumerate(sorted({row.item.user_key for row in rows}))}
    # The order of the items must not move a bound: sums of floats depend on it.
    rows.sort(key=lambda row: (users[row.item.user_key], row.item.item_id))
    return paired_interval(
        np.array([row.candidate[metric] - row.baseline[metric] for row in rows]),
        np.array([users[row.item.user_key] for row in rows]),
        confidence=config.confidence,
        samples=config.bootstrap_samples,
        seed=config.seed,
    )


def _check(found: Interval | None, metric: str, role: str, margin: float, passed: bool | None) -> Check:
    return Check.model_validate(
        {
            "metric": metric,
            "role": role,
            "estimate": found and found.estimate,
            "low": found and found.low,
            "high": found and found.high,
            "margin": margin,
            "items": found.items if found else 0,
            "users": found.users if found else 0,
            "smallest_effect": found and found.smallest_effect,
            "passed": passed,
        }
    )


def _reason(verdict: Verdict, judged: Sequence[Check], config: GateConfig) -> str:
    """One English sentence; a report has its own words for each language."""
    goal = "better" if config.goal == "better" else "no worse"
    match verdict:
        case Verdict.PROMOTE:
            primary = f"{METRICS[config.primary].en}: {goal} ({_numbers(judged[0])})"
            return f"{primary}, and no guardrail is worse than allowed."
        case Verdict.REJECT:
            failed = [check for check in judged if check.passed is False]
            told = "; ".join(f"{METRICS[check.metric].en} ({_numbers(check)})" for check in failed)
            return f"Shown not to be {goal}, or worse than allowed: {told}."
        case Verdict.INCONCLUSIVE:
            lacking = [f"{config.min_users} users are needed"] if judged[0].users < config.min_users else []
            open_checks = [check for check in judged if check.passed is None]
            lacking += [f"{METRICS[check.metric].en} ({_numbers(check)})" for check in open_checks]
            return f"Not enough evidence{': ' if lacking else ''}{'; '.join(lacking)}."


def _numbers(check: Check) -> str:
    if check.estimate is None:
        return "no data"
    if check.low is None or check.high is None:
        return f"{check.estimate:+.3f} from one user alone"
    hidden = f", smallest effect that could be found {check.smallest_effect:.3f}" if check.passed is None else ""
    return (
        f"{check.estimate:+.3f}, between {check.low:+.3f} and {check.high:+.3f}, "
        f"{check.items} items of {check.users} users{hidden}"
    )
