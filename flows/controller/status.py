"""What the controller shows of itself, as JSON."""

from collections.abc import Sequence
from typing import Any

from flows.controller.controller import Controller, Seen
from pipeline.config import BusinessConfig
from pipeline.rollout.ledger import AuditEntry
from pipeline.rollout.state import Paused, canary_of, current_step, previous_of, stable_of


def describe(controller: Controller) -> dict[str, Any]:
    """Businesses with their versions, arms, step, users so far and last decisions; engines; what does not work."""
    routes = controller.routes()
    published = {route.business: route.model_dump(mode="json") for route in routes.routes}
    return {
        "generation": routes.generation,
        "leader": controller.lease.holder(),
        "businesses": {
            name: {**_business(controller, business), "route": published.get(name)}
            for name, business in sorted(controller.config.businesses.items())
        },
        "engines": controller.fleet.describe(),
        "problems": dict(controller.problems),
    }


def _business(controller: Controller, business: BusinessConfig) -> dict[str, Any]:
    stored = controller.store.read(business.business)
    state = stored.state
    history = controller.store.history(business.business, 20)
    last = None if state.kind != "steady" or state.last is None else state.last.model_dump(mode="json")
    return {
        "title": business.title,
        "state": state.kind,
        "stable": stable_of(state),
        "previous": previous_of(state),
        "canary": _canary(controller, business),
        "asked": stored.ledger.asked.model_dump(mode="json") if stored.ledger.asked else None,
        "last_rollout": last,
        "last_decision": _last_decision(controller.seen.get(business.business), history),
        "history": [entry.model_dump(mode="json") for entry in history],
    }


def _last_decision(seen: Seen | None, history: Sequence[AuditEntry]) -> dict[str, Any] | None:
    """What the last look decided, holding included; after a restart what the audit trail says."""
    if seen:
        return {"at": seen.at.isoformat(), "action": str(seen.action), "reason": seen.reason}
    if not history:
        return None
    return {"at": history[-1].at.isoformat(), "action": history[-1].action, "reason": history[-1].detail.get("reason")}


def _canary(controller: Controller, business: BusinessConfig) -> dict[str, Any] | None:
    state = controller.store.read(business.business).state
    canary = canary_of(state)
    if canary is None:
        return None
    step = current_step(canary, business.rollout)
    seen = controller.seen.get(business.business)
    shown = seen.step if seen and seen.step and seen.step.started_at == canary.step_started_at else None
    return {
        "version": canary.candidate,
        "share": step.share,
        "step": canary.step + 1,
        "steps": len(business.rollout.steps),
        "in_shadow": canary.in_shadow,
        "ab": canary.ab.model_dump(mode="json") if canary.ab else None,
        "started_at": canary.started_at.isoformat(),
        "step_started_at": canary.step_started_at.isoformat(),
        "deadline": canary.deadline.isoformat(),
        "paused_by": state.by if isinstance(state, Paused) else None,
        "users": {
            "candidate": shown.candidate_users if shown else 0,
            "control": shown.control_users if shown else 0,
            "needed": step.min_users,
        },
        "checks": [check.model_dump(mode="json") for check in shown.checks] if shown else [],
    }
