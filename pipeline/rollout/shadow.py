"""What is judged, and what is only told, of a version that answers copies of users' requests before its canary."""

from pipeline.config import RolloutConfig, StepConfig
from pipeline.records import Check
from pipeline.rollout.guardrails import CHECKS_PER_STEP, HARD_FAILURE_LIMIT, Evidence, against_control, against_limit

AGREEMENT = "shadow_agreement"
"""How like the user's answer the candidate's is, in [0, 1]."""
TOLD = ("refusal", "output_length")
"""Compared with the answers that the same users got."""


def check_shadow(evidence: Evidence, step: StepConfig, config: RolloutConfig) -> tuple[Check, ...]:
    """Hard failures of the candidate decide; how its answers differ is for people to see.

    Its latency is neither: copies are sent when engines have time for them.

    Args:
        evidence: `candidate` is the copies' answers, `control` has the values of the answers that users got.
    """
    alpha = config.alpha / (CHECKS_PER_STEP * len(config.steps))
    candidate, served = evidence.candidate.values, evidence.control.values
    failed = against_limit(
        HARD_FAILURE_LIMIT, candidate.get("hard_failure", ()), config.max_hard_failure_rate, alpha, step
    )
    differences = [against_control(name, candidate.get(name, ()), served.get(name, ()), alpha, step) for name in TOLD]
    alike = candidate.get(AGREEMENT, ())
    agreement = Check(
        metric=AGREEMENT,
        role="information",
        estimate=sum(alike) / len(alike) if alike else None,
        low=None,
        high=None,
        margin=0.0,
        items=len(alike),
        users=len(alike),
        smallest_effect=None,
        passed=None,
    )
    told = [check.model_copy(update={"role": "information", "passed": None}) for check in differences]
    return (failed, agreement, *told)
