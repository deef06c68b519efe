"""A/B tests: a fixed split of the users between the version in service and another one, measured until a set time.

The split is the canary's assignment at a share that never changes, so a user stays with a version for as long as the
test lasts. Nothing is promoted by it and no outcome breaks it off, bad ones included: only hard failures do.
"""

from datetime import UTC
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from pipeline.config import RolloutConfig, StepConfig
from pipeline.records import Check, Record
from pipeline.rollout.guardrails import (
    CHECKS_PER_STEP,
    HARD_FAILURE_LIMIT,
    Evidence,
    against_control,
    against_limit,
    assignment,
    sample_ratio,
)

OUTCOMES = ("outcome_failed", "thumb_up", "thumb_down", "edit", "regeneration")
"""What an A/B test reports: shares of a user's answers, one value a user."""


class AbTest(Record):
    """How the users are split, and until when."""

    share: Annotated[float, Field(gt=0, le=0.5)]
    """Of the users who get the candidate. As many others are its control; with 0.5 that is everybody."""
    until: Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]


def check_ab(evidence: Evidence, step: StepConfig, config: RolloutConfig) -> tuple[Check, ...]:
    """The outcomes with intervals that hold all at once and at any time, and the guard against hard failures.

    The outcomes' intervals, candidate minus control, miss a true difference with probability `config.alpha` at most,
    over all of them and however often one looks: α is split evenly over outcomes and over both sides of each.

    Args:
        step: gives the number of users that the sequences are tuned for.
    """
    candidate, control = evidence.candidate.values, evidence.control.values
    each = config.alpha / (2 * len(OUTCOMES))
    outcomes = [
        against_control(name, candidate.get(name, ()), control.get(name, ()), each, step).model_copy(
            update={"role": "information", "passed": None}
        )
        for name in OUTCOMES
    ]
    harm = config.alpha / (CHECKS_PER_STEP * len(config.steps))
    failed = candidate.get("hard_failure", ())
    return (
        against_limit(HARD_FAILURE_LIMIT, failed, config.max_hard_failure_rate, harm, step),
        against_control("hard_failure", failed, control.get("hard_failure", ()), harm, step),
        *outcomes,
        sample_ratio(evidence.candidate.new_users, evidence.control.new_users, harm),
        assignment(evidence),
    )
