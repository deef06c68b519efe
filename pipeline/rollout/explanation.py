"""What is told to people about a rollout: where it stands, what comes next, and why."""

from typing import Literal

from pydantic import AwareDatetime

from pipeline.records import BusinessKey, Check, Record, Share
from pipeline.rollout.forecast import Forecast
from pipeline.rollout.ledger import Asked, AuditEntry
from pipeline.rollout.state import Action


class StepView(Record):
    """The step under way: what it has and what it still needs."""

    version: int
    step: int
    """Counted from 1."""
    steps: int
    kind: Literal["step", "shadow", "A/B test"] = "step"
    share: Share
    started_at: AwareDatetime
    ready_at: AwareDatetime
    """When its minimum time is over."""
    deadline: AwareDatetime
    """When it is rolled back if it still lacks something."""
    min_users: int
    candidate_users: int
    control_users: int | None
    """None where no other users are compared: at share 1, and in shadow."""
    checks: tuple[Check, ...]


class Explanation(Record):
    """What the next look would decide, were it now."""

    business: BusinessKey
    at: AwareDatetime
    state: str
    stable: int | None
    previous: int | None
    action: Action
    reason: str
    actor: str
    """Who would do it: `controller`, or `gateway` for an alarm of its own."""
    step: StepView | None
    forecasts: tuple[Forecast, ...]
    """Of the step under way and those after it, each as if it began now."""
    asked: Asked | None
    """A version that waits for its engines."""
    waits_for: tuple[str, ...]
    """Engines that are not proven to serve the version asked for or in its canary, and why."""
    history: tuple[AuditEntry, ...]
    """The last lines of the audit trail, oldest first."""
    problems: dict[str, str]
    """What does not work at the moment."""
