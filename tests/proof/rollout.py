"""A canary of modelled traffic, decided by the product's own evidence and state machine."""

from datetime import timedelta

from evals.online import arm_evidence
from evals.worlds.canary import Traffic, canary_traffic
from evals.worlds.candidates import Online
from evals.worlds.content import Content
from pipeline.config import BusinessConfig
from pipeline.rollout.state import Canary, Steady, advance, current_step, start
from tests.proof.factory import NIGHT

_MODELS = ("stable-v1", "candidate-v2")
_LOOKS = 4
_WATCHED = 1.2
"""Each step sees so many times its users."""


def follow(content: Content, about: BusinessConfig, online: Online, seed: str) -> Steady:
    """Bring version 2 to the users of version 1; the state in which that ends."""
    steady = Steady(business=content.business, stable=1)
    state: Steady | Canary = start(steady, 2, NIGHT, about.rollout, "proof")
    seen = Traffic([], [])
    while isinstance(state, Canary):
        step, since = current_step(state, about.rollout), state.step_started_at
        more = canary_traffic(
            content,
            online,
            models=_MODELS,
            salt=state.salt,
            share=step.share,
            users=round(_WATCHED * step.min_users),
            since=since,
            minutes=step.min_minutes,
            seed=f"{seed}/{state.step}",
        )
        seen = Traffic([*seen.interactions, *more.interactions], [*seen.feedback, *more.feedback])
        state = _look(state, about, seen)
    return state


def _look(state: Canary, about: BusinessConfig, seen: Traffic) -> Steady | Canary:
    """Decide a few times while a step's events come in, and once more when all have come."""
    step, since = current_step(state, about.rollout), state.step_started_at
    for look in range(1, _LOOKS + 1):
        now = since + timedelta(minutes=step.min_minutes * look / _LOOKS)
        if look == _LOOKS:
            now = since + timedelta(minutes=step.timeout_minutes)
        evidence = arm_evidence(
            [one for one in seen.interactions if one.started_at < now],
            [said for said in seen.feedback if said.received_at < now],
            salt=state.salt,
            candidate_model=_MODELS[1],
            since=since,
            max_ttft_ms=about.rollout.max_ttft_p90_ms,
        )
        following = advance(state, evidence, now, about.rollout).state
        if isinstance(following, Steady) or (isinstance(following, Canary) and following.step != state.step):
            return following
    raise AssertionError("a step ends with its time")
