"""What the tests of rollouts start from."""

from datetime import UTC, datetime

from pipeline.config import StepConfig
from pipeline.rollout.guardrails import ArmEvidence, Evidence
from pipeline.rollout.state import Canary, Steady

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
STEADY = Steady(business="support", stable=1)
SHARES = (0.05, 0.10, 0.30, 0.50, 1.00)
STEPS = tuple(StepConfig(share=share, min_minutes=10, min_users=20, timeout_minutes=60) for share in SHARES)


def seen(canary: Canary, candidate: ArmEvidence, control: ArmEvidence) -> Evidence:
    """Since the step began."""
    return Evidence(salt=canary.salt, since=canary.step_started_at, candidate=candidate, control=control)
