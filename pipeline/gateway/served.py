"""What is the same for all requests of a business under one route: made when the route changes, not by request."""

from msgspec import Raw

from pipeline.gateway.exchange import Headers
from pipeline.gateway.guard import Guard
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.request import engine_fields
from pipeline.gateway.routing import Assignment, arm_now, target_of
from pipeline.records import Arm, Route

_STABLE, _CONTROL, _CANDIDATE = Arm.STABLE, Arm.CONTROL, Arm.CANDIDATE  # a look-up in an enum costs as much as a call


class ServedArm:
    """One arm of a route."""

    __slots__ = ("adapter", "arm", "fields", "headers", "model", "name", "replicas", "stats")

    def __init__(self, route: Route, arm: Arm, cache_salt: str, metrics: Metrics) -> None:
        target = target_of(route, arm)
        self.arm = arm
        self.name = arm.value
        self.model = target.model
        self.adapter = None if target.version is None else target.model
        self.replicas = target.replicas
        self.fields: dict[str, Raw] = engine_fields(target.model, cache_salt)
        """What the engine gets in place of the client's own."""
        self.headers: Headers = b"x-model-version: %b\r\nx-arm: %b\r\n" % (target.model.encode(), arm.value.encode())
        self.stats = metrics.arm(route.business, arm.value, target.model)


class ServedRoute:
    """A route as requests need it."""

    def __init__(self, route: Route, cache_salt: str, metrics: Metrics) -> None:
        self.route = route
        self.business = route.business
        self.salt = route.salt
        self.has_shadow = route.shadow > 0.0
        self.stable = ServedArm(route, _STABLE, cache_salt, metrics)
        self.control: ServedArm | None = None
        self.candidate: ServedArm | None = None
        if route.candidate is not None:
            self.control = ServedArm(route, _CONTROL, cache_salt, metrics)
            self.candidate = ServedArm(route, _CANDIDATE, cache_salt, metrics)

    def arm(self, assignment: Assignment, guard: Guard) -> ServedArm:
        """What serves a conversation's turn (see `routing.arm_now`)."""
        if self.candidate is None or self.control is None or assignment.arm is _STABLE:
            return self.stable
        barred = guard.is_barred(self.business, self.candidate.model)
        arm = arm_now(assignment, self.route, candidate_barred=barred)
        return self.candidate if arm is _CANDIDATE else self.control if arm is _CONTROL else self.stable
