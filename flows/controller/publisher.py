"""Turns the states of the rollouts into the one table of routes, and gives it to the gateways."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from flows.controller.fleet import Fleet
from flows.controller.versions import VersionBook
from pipeline.config import Config
from pipeline.errors import RegistryError
from pipeline.records import Route, Routes, Target
from pipeline.rollout.routes import published_target, route_of
from pipeline.rollout.state import previous_of
from pipeline.rollout.store import RolloutStore, WriteConflict

log = logging.getLogger(__name__)

ATTEMPTS = 5
"""At compare-and-set, before it is left to the next tick."""


class Publisher:
    """Safe to call from several threads. The generation rises only when the content of the table changes."""

    def __init__(
        self,
        config: Config,
        store: RolloutStore,
        fleet: Fleet,
        versions: VersionBook,
        push: Callable[[Routes], None],
    ) -> None:
        self._config = config
        self._store = store
        self._fleet = fleet
        self._versions = versions
        self._push = push
        self._alone = threading.Lock()
        self._pushed = -1

    def publish(self, now: datetime, store: RolloutStore) -> Routes:
        """Make the table that follows from the ledgers, keep it, and push it if the gateways lack it.

        Args:
            store: the one to write it by, fenced for what the loop does by itself.

        Raises:
            PipelineError: a gateway did not take it; it polls, and the next call pushes again.
            WriteConflict: another controller keeps writing.
        """
        with self._alone:
            routes = self._kept(now, store)
            if routes.generation != self._pushed:
                self._push(routes)
                self._pushed = routes.generation
                log.info("routes: generation %d", routes.generation)
            return routes

    def _kept(self, now: datetime, store: RolloutStore) -> Routes:
        for _ in range(ATTEMPTS - 1):
            try:
                return self._write(now, store)
            except WriteConflict:
                continue
        return self._write(now, store)

    def _write(self, now: datetime, store: RolloutStore) -> Routes:
        published = self._store.routes()
        wanted = tuple(self._route(name, published) for name in sorted(self._config.businesses))
        if wanted == published.routes:
            return published
        return store.publish(wanted, published.generation, now)

    def _route(self, business: str, published: Routes) -> Route:
        state = self._store.read(business).state
        previous = None
        if (version := previous_of(state)) is not None:
            with suppress(RegistryError):  # nobody knows its name yet; the next call asks again
                previous = self.target(business, version, published)
        return route_of(
            state,
            self._config.businesses[business].rollout,
            lambda version: self.target(business, version, published),
            previous,
        )

    def is_published(self, business: str, version: int) -> bool:
        """Whether gateways were last told of an engine that serves the version."""
        routes = {route.business: route for route in self._store.routes().routes}
        target = published_target(routes, business, version)
        return target is not None and bool(target.replicas)

    def target(self, business: str, version: int | None, published: Routes | None = None) -> Target:
        """What serves a version now; without any proven replica, what was last published
        for it and may still serve it.

        Raises:
            RegistryError: the version's name cannot be had, and it was never published.
        """
        if version is None:
            return Target(model=self._config.system.base_model.id, version=None, replicas=self._fleet.base_replicas())
        routes = (published or self._store.routes()).routes
        last = published_target({route.business: route for route in routes}, business, version)
        try:
            name = self._versions.get(business, version).serving_name
        except RegistryError:
            if last is None:
                raise
            name = last.model
        replicas = self._fleet.replicas(name) or self._fleet.may_still_serve(name, last.replicas if last else ())
        return Target(model=name, version=version, replicas=replicas)
