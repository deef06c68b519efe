"""The routes that follow from the states of the rollouts. Pure."""

from collections.abc import Callable, Mapping

from pipeline.config import RolloutConfig
from pipeline.records import Route, Target
from pipeline.rollout.state import Canary, Paused, Steady, canary_of, current_step, stable_of


def route_of(
    state: Steady | Canary | Paused,
    config: RolloutConfig,
    target_of: Callable[[int | None], Target],
    previous: Target | None = None,
) -> Route:
    """What gateways do for one business.

    A candidate that no replica is proven to serve gets no traffic; its users are stable until one is.

    Args:
        target_of: what serves a version (None: the base model).
        previous: what serves the version that a rollback of the last promotion returns to, if that is known.
    """
    stable = target_of(stable_of(state))
    canary = canary_of(state)
    if canary is None:
        return Route(business=state.business, stable=stable, previous=previous)
    candidate = target_of(canary.candidate)
    if not candidate.replicas:
        return Route(business=state.business, stable=stable, salt=canary.salt, previous=previous)
    return Route(
        business=state.business,
        stable=stable,
        candidate=candidate,
        share=current_step(canary, config).share,
        salt=canary.salt,
        shadow=config.shadow.share if config.shadow and canary.in_shadow else 0.0,
        previous=previous,
    )


def published_target(routes: Mapping[str, Route], business: str, version: int | None) -> Target | None:
    """What was last published for a version of a business."""
    route = routes.get(business)
    targets = (route.stable, route.candidate, route.previous) if route else ()
    return next((target for target in targets if target is not None and target.version == version), None)
