"""What would become of a canary now, and on which evidence: the loop acts on it, people are shown it, `step` needs it.

There is no second opinion: `explain` prints what this says, and the loop does it.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from evals.online import arm_evidence
from evals.shadow import shadow_evidence
from flows.controller.publisher import Publisher
from pipeline.config import BusinessConfig
from pipeline.events.read import read_events
from pipeline.events.shadows import read_shadow_pairs
from pipeline.gateway.guard import Trip
from pipeline.records import StepEvidence
from pipeline.rollout.guardrails import Evidence
from pipeline.rollout.state import (
    Action,
    Canary,
    Decision,
    Paused,
    Steady,
    advance,
    canary_of,
    evidence_of,
    roll_back,
    step_evidence,
)


class Conclusion(NamedTuple):
    """What is to be done, by whom, and what the step under way has shown."""

    decision: Decision
    actor: str
    shown: StepEvidence | None = None


class CanaryAnalysis:
    """Reads the event log for what users have shown of a canary."""

    def __init__(self, publisher: Publisher, events_dir: Path) -> None:
        self._publisher = publisher
        self._events_dir = events_dir

    def evidence(self, canary: Canary, business: BusinessConfig, now: datetime) -> Evidence:
        """What users have shown since the step began.

        Raises:
            DataError: the event log cannot be read.
        """
        model = self._publisher.target(canary.business, canary.candidate).model
        served = self._publisher.is_published(canary.business, canary.candidate)
        if canary.in_shadow:
            pairs = read_shadow_pairs(self._events_dir, canary.business, canary.started_at, now)
            told = shadow_evidence(pairs, salt=canary.salt, candidate_model=model, since=canary.step_started_at)
            return told.model_copy(update={"served": served})
        events = read_events(self._events_dir, canary.business, canary.started_at, now)
        evidence = arm_evidence(
            events.interactions,
            events.feedback,
            salt=canary.salt,
            candidate_model=model,
            since=canary.step_started_at,
            max_ttft_ms=business.rollout.max_ttft_p90_ms,
        )
        return evidence.model_copy(update={"served": served})

    def conclude(
        self,
        state: Steady | Canary | Paused,
        evidence: Evidence | None,
        trips: Sequence[Trip],
        business: BusinessConfig,
        now: datetime,
    ) -> Conclusion:
        """Let the evidence, or a gateway's alarm, decide.

        Args:
            evidence: None when there is none; the step's time-out still comes.
            trips: candidates that gateways stopped by themselves.
        """
        canary = canary_of(state)
        decision = advance(state, evidence, now, business.rollout)
        if canary is None:
            return Conclusion(decision, "controller")
        shown = step_evidence(canary, evidence_of(canary, evidence), business.rollout)
        if trip := next((one for one in trips if one.salt == canary.salt), None):
            reason = f"a gateway saw {trip.failures} hard failures in a burst"
            ended = shown.model_copy(update={"ended_at": now})
            steady = roll_back(canary, "gateway", reason, now, ended)
            return Conclusion(Decision(steady, Action.ROLL_BACK, reason, shown.checks), "gateway", shown)
        return Conclusion(decision, "controller", shown)
