"""What the controller would do next with a rollout, and why: told by the very function that does it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from flows.controller.controller import Controller
from pipeline.events.visits import read_visits
from pipeline.rollout.explanation import Explanation, StepView
from pipeline.rollout.forecast import Forecast, first_looks, forecast
from pipeline.rollout.state import Canary, canary_of, current_step, previous_of, stable_of


def explain(controller: Controller, business: str, now: datetime) -> Explanation:
    """Look as the loop does, and act on nothing.

    Raises:
        ConfigError: there is no such business.
        PipelineError: what it would be decided on cannot be read.
    """
    stored, concluded = controller.look_ahead(business, now)
    state = stored.state
    canary = canary_of(state)
    version = canary.candidate if canary else stored.ledger.asked.version if stored.ledger.asked else None
    step = None
    if canary is not None and concluded.shown is not None:
        config = controller.config.business(business).rollout
        current = current_step(canary, config)
        step = StepView(
            version=canary.candidate,
            step=canary.step + 1,
            steps=len(config.steps),
            share=current.share,
            started_at=canary.step_started_at,
            ready_at=canary.step_started_at + timedelta(minutes=current.min_minutes),
            deadline=canary.deadline,
            min_users=current.min_users,
            candidate_users=concluded.shown.candidate_users,
            control_users=concluded.shown.control_users if 0.0 < current.share < 1.0 else None,
            kind="A/B test" if canary.ab else "shadow" if canary.in_shadow else "step",
            checks=concluded.shown.checks,
        )
    return Explanation(
        business=business,
        at=now,
        state=state.kind,
        stable=stable_of(state),
        previous=previous_of(state),
        action=concluded.decision.action,
        reason=concluded.decision.reason,
        actor=concluded.actor,
        step=step,
        forecasts=tuple(_forecasts(controller, business, canary, step, now)),
        asked=stored.ledger.asked,
        waits_for=controller.waits_for(business, version),
        history=controller.store.history(business, 5),
        problems={what: why for what, why in dict(controller.problems).items() if _touches(what, business)},
    )


def _forecasts(
    controller: Controller, business: str, canary: Canary | None, step: StepView | None, now: datetime
) -> Sequence[Forecast]:
    config = controller.config.business(business).rollout
    if canary is not None and canary.ab:
        return []
    coming = config.steps[canary.step :] or config.steps[-1:] if canary else config.steps
    visits = read_visits(controller.events_dir, business, first_looks(coming, now), now)
    made = [forecast(visits, one, now) for one in coming]
    if canary is not None and step is not None and not canary.in_shadow:
        seen = step.candidate_users if step.control_users is None else min(step.candidate_users, step.control_users)
        waited = (now - step.started_at) / timedelta(minutes=1)
        made[0] = forecast(visits, coming[0], now, seen, waited)
    return made


def _touches(what: str, business: str) -> bool:
    """Whether a problem there can be a problem of the business."""
    return what.partition(":")[0] in (business, "engines", "gateways", "routes")
