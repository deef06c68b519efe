"""Whether a canary's candidate is worse than its control, however often one looks.

The unit of inference is the user: each metric is a share of the user's requests, one value in [0, 1] per user, and
higher is always worse. Every comparison is a confidence sequence (`pipeline.rollout.sequential`), so looking every few
seconds costs nothing. α is split evenly over all checks of all steps.
"""

import math
from collections.abc import Sequence

from pydantic import AwareDatetime
from scipy.stats import hypergeom

from pipeline.config import RolloutConfig, StepConfig
from pipeline.records import Check, Record
from pipeline.rollout.sequential import boundary, detectable, mean_variance, sample_ratio_evidence

POWER_80 = 0.8416
"""Normal quantile of 80 % power."""


class ArmEvidence(Record):
    """What one arm has shown since the step began."""

    users: int = 0
    requests: int = 0
    new_users: int = 0
    """Users who were first seen in this rollout since the step began: what the sample-ratio check counts."""
    values: dict[str, tuple[float, ...]] = {}
    """Metric to one value per user who has one; higher is worse."""


class Evidence(Record):
    """Candidate and control over the same time. `evals.online.arm_evidence` makes it from the event log."""

    salt: str
    """Of the rollout; evidence of another rollout counts as none."""
    since: AwareDatetime
    """Start of the step; evidence of another step counts as none."""
    candidate: ArmEvidence = ArmEvidence()
    control: ArmEvidence = ArmEvidence()
    misassigned: int = 0
    """Requests of either arm whose user the assignment hash does not put there at the share that was in force."""
    served: bool = True
    """Whether an engine is proven to serve the candidate now."""


LATENCIES = ("ttft_p50", "ttft_p90", "ttft_p99", "tpot_p50", "tpot_p90", "tpot_p99")
"""Time to the first token, and time per further token. The value is the share of requests that are slower than the
control's percentile, for the candidate than `SLOWER` times it. The percentile comes from the very control, so its
own error falls out of the difference, and a difference of quantiles is tested as a difference of means."""

GUARDRAILS = (
    "hard_failure",
    *LATENCIES,
    "output_length",
    "refusal",
    "regeneration",
    "thumb_down",
    "edit",
    "outcome_failed",
)
"""Compared with the control. `output_length` is the share of answers longer than `LONG_FACTOR` times the control's
90th percentile."""

LONG_FACTOR = 1.5
USUALLY = 0.5
"""A share of users from which on a value is the rule: outcomes and streams may be rare, and then prove nothing."""
CHANCE_OF_SILENCE = 1e-4
"""Small, because a step is looked at again and again."""
SLOWER = 1.1
"""Nobody feels less; and the smaller arm's prefix cache is the colder one, whatever it serves."""
HARD_FAILURE_LIMIT = "hard_failure_limit"
TTFT_LIMIT = "ttft_limit"
SAMPLE_RATIO = "sample_ratio"
ASSIGNMENT = "assignment"
PLUMBING = frozenset({SAMPLE_RATIO, ASSIGNMENT})
"""What shows that the comparison itself is broken: it blames nobody, but no step goes on with it."""
CHECKS_PER_STEP = len(GUARDRAILS) + 3

SLOW_SHARE_AT_P90 = 0.1


def check_step(
    evidence: Evidence, step: StepConfig, config: RolloutConfig, *, control_is_base: bool
) -> tuple[Check, ...]:
    """All checks of one step.

    Below share 1 the candidate is compared with the control; the latency only where both are adapters, because the
    bare base model is faster by itself. Then, and at share 1, absolute limits judge it.

    Args:
        evidence: of this step.
        step: gives the number of users that the sequences are tuned for; they are valid at any number.
        control_is_base: the business had no adapter before this rollout.
    """
    alpha = config.alpha / (CHECKS_PER_STEP * len(config.steps))
    candidate, control = evidence.candidate, evidence.control
    checks = [
        against_limit(
            HARD_FAILURE_LIMIT, candidate.values.get("hard_failure", ()), config.max_hard_failure_rate, alpha, step
        )
    ]
    compared = step.share < 1.0
    if control_is_base or not compared:
        checks.append(against_limit(TTFT_LIMIT, candidate.values.get(TTFT_LIMIT, ()), SLOW_SHARE_AT_P90, alpha, step))
    if compared:
        checks += [
            against_control(name, candidate.values.get(name, ()), control.values.get(name, ()), alpha, step)
            for name in GUARDRAILS
            if not (name in LATENCIES and control_is_base)
        ]
        checks.append(sample_ratio(candidate.new_users, control.new_users, alpha))
        checks.append(assignment(evidence))
    return tuple(checks)


def unreported(evidence: Evidence) -> tuple[str, ...]:
    """Metrics that most of the control's users have a value for, and far fewer of the candidate's, beyond what chance
    explains: where an engine reports nothing there is nothing to fail, which is no reason to pass."""
    return tuple(name for name in GUARDRAILS if _is_silent(evidence.candidate, evidence.control, name))


def _is_silent(candidate: ArmEvidence, control: ArmEvidence, metric: str) -> bool:
    """By Fisher's exact test: two users who happen to ask for no stream have no time per token, and prove nothing. A
    control without users of its own, as in shadow, does not compare arms."""
    ours, theirs = (len(arm.values.get(metric, ())) for arm in (candidate, control))
    if not control.users or theirs < USUALLY * control.users or ours * control.users >= theirs * candidate.users / 2:
        return False
    users = candidate.users + control.users
    return float(hypergeom.cdf(ours, users, ours + theirs, candidate.users)) < CHANCE_OF_SILENCE


def against_control(
    metric: str, candidate: Sequence[float], control: Sequence[float], alpha: float, step: StepConfig
) -> Check:
    """Difference of two means over users, with bounds of which each fails with probability `alpha` at most."""
    users = len(candidate) + len(control)
    if len(candidate) < 2 or len(control) < 2:
        return _no_evidence(metric, users)
    estimate = sum(candidate) / len(candidate) - sum(control) / len(control)
    mine, theirs = _variance(candidate), _variance(control)
    pairs = 2 / (1 / len(candidate) + 1 / len(control))
    width = boundary(pairs, alpha, step.min_users)
    effect = detectable(width + POWER_80, (sum(control) + 1) / (len(control) + 2), mine, theirs)
    return _check(metric, estimate, width * math.sqrt(mine + theirs), 0.0, users, effect)


def against_limit(metric: str, values: Sequence[float], limit: float, alpha: float, step: StepConfig) -> Check:
    """A mean over users and a limit that it must not be shown to exceed."""
    if len(values) < 2:
        return _no_evidence(metric, len(values))
    mean, variance = sum(values) / len(values), _variance(values)
    width = boundary(len(values), alpha, step.min_users)
    effect = detectable(width + POWER_80, limit, variance, 0.0)
    return _check(metric, mean, width * math.sqrt(variance), limit, len(values), limit + effect)


def sample_ratio(candidate: int, control: int, alpha: float) -> Check:
    """Whether as many new users came to one arm as to the other."""
    users = candidate + control
    if users == 0:
        return _no_evidence(SAMPLE_RATIO, 0)
    return Check(
        metric=SAMPLE_RATIO,
        role="guardrail",
        estimate=candidate / users - 0.5,
        low=None,
        high=None,
        margin=0.0,
        items=users,
        users=users,
        smallest_effect=None,
        passed=sample_ratio_evidence(candidate, control) < math.log(1 / alpha),
    )


def assignment(evidence: Evidence) -> Check:
    """Whether everybody is in the arm that they were drawn for."""
    requests = evidence.candidate.requests + evidence.control.requests
    users = evidence.candidate.users + evidence.control.users
    if not requests:
        return _no_evidence(ASSIGNMENT, 0)
    return Check(
        metric=ASSIGNMENT,
        role="guardrail",
        estimate=evidence.misassigned / requests,
        low=None,
        high=None,
        margin=0.0,
        items=requests,
        users=users,
        smallest_effect=None,
        passed=evidence.misassigned == 0,
    )


def _check(metric: str, estimate: float, width: float, margin: float, users: int, effect: float) -> Check:
    return Check(
        metric=metric,
        role="guardrail",
        estimate=estimate,
        low=estimate - width,
        high=estimate + width,
        margin=margin,
        items=users,
        users=users,
        smallest_effect=effect,
        passed=estimate - width <= margin,
    )


def _no_evidence(metric: str, users: int) -> Check:
    return Check(
        metric=metric,
        role="guardrail",
        estimate=None,
        low=None,
        high=None,
        margin=0.0,
        items=users,
        users=users,
        smallest_effect=None,
        passed=None,
    )


def _variance(values: Sequence[float]) -> float:
    return mean_variance(float(len(values)), sum(values), sum(value * value for value in values))
