"""A rollout as its page tells it, from the state in which it is."""

from pipeline.config import BusinessConfig
from pipeline.records import RolloutReport, StepEvidence
from pipeline.rollout.state import Canary, Outcome, Paused, Steady, current_step


def rollout_report(
    state: Steady | Canary | Paused, business: BusinessConfig, seen: StepEvidence | None = None, reason: str = ""
) -> RolloutReport | None:
    """The rollout under way, or else the last one; None when there was none.

    Args:
        seen: what the step under way has shown; what belongs to another step counts for nothing.
        reason: why the rollout under way stands where it stands.
    """
    if isinstance(state, Steady):
        before = state.previous if state.last and state.last.result == "promoted" else state.stable
        return ended_report(state.last, state.business, before) if state.last else None
    canary = state.canary if isinstance(state, Paused) else state
    if seen is None or seen.started_at != canary.step_started_at:
        seen = _nothing_yet(canary, business)
    return RolloutReport(
        business=business.business,
        version=canary.candidate,
        previous_version=canary.stable,
        state="paused" if isinstance(state, Paused) else "canary",
        reason=reason,
        started_at=canary.started_at,
        steps=(*canary.history, seen),
    )


def ended_report(outcome: Outcome, business: str, previous: int | None) -> RolloutReport:
    """A rollout that is over.

    Args:
        previous: what was in service before it.
    """
    return RolloutReport(
        business=business,
        version=outcome.version,
        previous_version=previous,
        state="done" if outcome.result == "promoted" else outcome.result,
        reason=outcome.reason,
        started_at=outcome.started_at,
        steps=outcome.steps,
    )


def _nothing_yet(canary: Canary, business: BusinessConfig) -> StepEvidence:
    return StepEvidence(
        share=0.0 if canary.in_shadow else current_step(canary, business.rollout).share,
        started_at=canary.step_started_at,
        ended_at=None,
        candidate_users=0,
        control_users=0,
        checks=(),
        is_ab=canary.ab is not None,
    )
