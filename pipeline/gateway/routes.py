"""The routes that this gateway serves: the table with the highest generation it has seen, kept in its state folder.

A restart with no controller serves the last table; with no table at all every business is served by the base model.
"""

import logging
import re
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.config import Config
from pipeline.errors import DataError
from pipeline.gateway.guard import Barred, Guard
from pipeline.gateway.kept import read_kept, write_kept
from pipeline.records import Route, Routes, Target

log = logging.getLogger(__name__)

NO_GENERATION = -1
_LAST_GENERATION = 2**63 - 1


class RouteTable:
    """Routes by business, and the guard that follows them.

    Args:
        folder: where `routes.json` and `barred.json` are kept.
    """

    def __init__(self, config: Config, folder: Path) -> None:
        self._base_model = config.system.base_model.id
        replicas = tuple(engine.url for engine in config.system.engines if engine.serves in ("base", "both"))
        base = Target(model=self._base_model, version=None, replicas=replicas)
        self._default = {key: Route(business=key, stable=base) for key in config.businesses}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = folder / "routes.json"
        self._barred_file = folder / "barred.json"
        self.routes = read_kept(self._file, Routes) or Routes(generation=NO_GENERATION, routes=())
        self.guard = Guard(config.system.burst, read_kept(self._barred_file, Barred))
        self._by_business = self._index(self.routes)
        self._settle = timedelta(seconds=config.system.gateway.settle_s)
        self._begun: dict[str, datetime] = {}

    def route(self, business: str) -> Route | None:
        """What is done for a business; None when it is not configured."""
        return self._by_business.get(business)

    def all(self) -> tuple[Route, ...]:
        """Every route in force, the defaults too."""
        return tuple(self._by_business.values())

    def is_settled(self, business: str, now: datetime) -> bool:
        """False in the first moments of a business's rollout: until gateways have told each other of the conversations
        that began before it, one of those could be drawn anew elsewhere."""
        begun = self._begun.get(business)
        return begun is None or not timedelta() <= now - begun < self._settle

    def put(self, routes: Routes, now: datetime) -> bool:
        """Take a table if it is newer than ours; returns whether it was.

        Raises:
            DataError: a route would serve a business with another business's adapter, or from where no engine can be;
            nothing is taken.
        """
        if routes.generation <= self.routes.generation:
            return False
        if routes.generation > _LAST_GENERATION:
            raise DataError(f"generation: {str(routes.generation)[:40]} is above {_LAST_GENERATION}")
        index = self._index(routes)
        write_kept(self._file, routes)
        for business, route in index.items():
            if route.salt != self._by_business[business].salt:
                self._begun[business] = now
        self.routes = routes
        self._by_business = index
        if self.guard.follow(routes):
            self.keep_barred()
        return True

    def roll_back(self, business: str) -> str | None:
        """Send nothing more to the business's candidate; returns its model, or None when there is none."""
        route = self.route(business)
        if route is None or route.candidate is None:
            return None
        self.guard.roll_back(business, route.candidate.model)
        self.keep_barred()
        return route.candidate.model

    def failed(self, business: str, model: str, now: datetime) -> bool:
        """Note a hard failure of a candidate; True when this one made the burst that bars it."""
        trip = self.guard.failed(business, model, self._by_business[business].salt, now)
        if trip is None:
            return False
        log.error("candidate %s stopped: %d hard failures in a burst", trip.model, trip.failures)
        self.keep_barred()
        return True

    def keep_barred(self) -> None:
        """Write down what the guard bars."""
        try:
            write_kept(self._barred_file, self.guard.state())
        except OSError as error:  # it holds in memory all the same
            log.error("%s: %s; a restart would forget a barred candidate", self._barred_file, error.strerror)

    def _index(self, routes: Routes) -> dict[str, Route]:
        for route in routes.routes:
            for target in (route.stable, route.candidate):
                if target is not None:
                    self._check(route.business, target)
        return self._default | {route.business: route for route in routes.routes if route.business in self._default}

    def _check(self, business: str, target: Target) -> None:
        own = target.model == self._base_model if target.version is None else _is_own(business, target)
        if not own:
            raise DataError(
                f"route of '{business}': model '{target.model}' (version {target.version}) is neither the base model "
                f"'{self._base_model}' nor an adapter of this business ('{business}-v<version>-<8 hex digits>')"
            )
        for replica in target.replicas:
            if not _is_address(replica):
                raise DataError(f"route of '{business}': replica '{replica[:200]}' is no http(s)://host:port")


def _is_own(business: str, target: Target) -> bool:
    return re.fullmatch(rf"{re.escape(business)}-v{target.version}-[0-9a-f]{{8}}", target.model) is not None


def _is_address(replica: str) -> bool:
    """Whether a connection could be tried."""
    try:
        parts = urlsplit(replica)
        host, _ = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:
        return False
    return bool(host) and re.fullmatch(r"https?://[!-.0-~]+", replica) is not None
