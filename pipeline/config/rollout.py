"""How a promoted version is brought to the users."""

from typing import Annotated

from pydantic import Field, model_validator

from pipeline.records import Record, Share


class StepConfig(Record):
    """One widening of a canary."""

    share: Share
    min_minutes: float = Field(ge=0)
    min_users: int = Field(ge=1)
    """Distinct users in each of candidate and control."""
    timeout_minutes: float = Field(gt=0)


class ShadowConfig(Record):
    """Before its canary a version answers copies of users' requests, seen by nobody."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Of the requests that are repeated."""
    tokens_per_hour: int = Field(100_000, ge=1)
    """Of prompts and answers together, that copies may take of the engines. `gateway.workers` divide it; each gateway
    of several hosts has its own."""
    max_answer_tokens: int = Field(512, ge=1)
    """A copy asks for no longer answer than this, nor than the client did."""
    min_minutes: float = Field(30.0, ge=0)
    min_users: int = Field(50, ge=1)
    """Distinct users whose requests were repeated."""
    timeout_minutes: float = Field(1440.0, gt=0)

    @property
    def step(self) -> StepConfig:
        """As a step of a rollout, one in which no user gets the candidate."""
        return StepConfig(
            share=0.0, min_minutes=self.min_minutes, min_users=self.min_users, timeout_minutes=self.timeout_minutes
        )


class RolloutConfig(Record):
    """How a promoted version is brought to the users."""

    auto_canary: bool = False
    shadow: ShadowConfig | None = None
    """None: a rollout begins with its first step."""
    steps: tuple[StepConfig, ...] = (
        StepConfig(share=0.05, min_minutes=30, min_users=100, timeout_minutes=1440),
        StepConfig(share=0.10, min_minutes=30, min_users=200, timeout_minutes=1440),
        StepConfig(share=0.30, min_minutes=60, min_users=400, timeout_minutes=1440),
        StepConfig(share=0.50, min_minutes=60, min_users=400, timeout_minutes=1440),
        StepConfig(share=1.00, min_minutes=30, min_users=200, timeout_minutes=1440),
    )
    alpha: float = Field(0.05, gt=0, lt=1)
    """Chance of rolling back a candidate that is no different, over all metrics and steps."""
    max_hard_failure_rate: Share = 0.05
    max_ttft_p90_ms: float = Field(5000.0, gt=0)

    @model_validator(mode="after")
    def _steps_widen(self) -> "RolloutConfig":
        shares = [step.share for step in self.steps]
        if not shares or shares != sorted(set(shares)) or shares[0] == 0.0 or shares[-1] != 1.0:
            raise ValueError("shares must be above 0, rise from step to step and end at 1.0")
        if any(0.5 < share < 1.0 for share in shares):
            raise ValueError("above 0.5 there is no control of equal size; the last compared step is 0.5, then 1.0")
        return self
