"""What stands around a controller in tests: a gateway, and calls that end in a crash."""

from typing import TYPE_CHECKING, Any

from flows.controller.gateways import GatewayUnavailable
from pipeline.gateway.guard import Trip
from pipeline.records import Route, Routes
from pipeline.rollout.store import RolloutStore

if TYPE_CHECKING:
    from tests.controller_world import World


class Crash(BaseException):
    """The process was killed here."""


class Fragile:
    """Passes every call on, and crashes at the one that the world names."""

    def __init__(self, thing: Any, world: "World") -> None:
        self._thing = thing
        self._world = world

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            world = self._world
            world.calls += 1
            crash = world.crash_at is not None and world.calls - 1 == world.crash_at
            if crash and world.calls % 2:
                raise Crash(f"before {name}")
            result = value(*arguments, **named)
            if crash:
                raise Crash(f"after {name}")
            return Fragile(result, world) if isinstance(result, RolloutStore) else result  # the store, fenced

        return call


class FakeGateway:
    """Keeps the newest table, as gateways do."""

    def __init__(self) -> None:
        self.routes = Routes(generation=-1, routes=())
        self.pushes: list[Routes] = []
        self.tripped: tuple[Trip, ...] = ()
        self.down = False

    def push(self, routes: Routes) -> None:
        if self.down:
            raise GatewayUnavailable("the gateway is down")
        self.pushes.append(routes)
        if routes.generation > self.routes.generation:
            self.routes = routes

    def trips(self) -> tuple[Trip, ...]:
        return self.tripped

    def route(self, business: str) -> Route:
        return next(route for route in self.routes.routes if route.business == business)
