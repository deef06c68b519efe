"""The routes that this gateway serves: the table with the highest generation it has seen, kept in its state folder.

A restart with no controller serves the last table; with no table at all every business is served by the base model.
"""

import logging
import os
import re
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from pipeline.config import Config
from pipeline.errors import DataError
from pipeline.gateway.guard import Barred, Guard
from pipeline.records import Record, Route, Routes, Target

log = logging.getLogger(__name__)

NO_GENERATION = -1
_LAST_GENERATION = 2**63 - 1
_Kept = TypeVar("_Kept", bound=Record)


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
        self.routes = _read(self._file, Routes) or Routes(generation=NO_GENERATION, routes=())
        self.guard = Guard(config.system.burst, _read(self._barred_file, Barred))
        self._by_business = self._index(self.routes)

    def route(self, business: str) -> Route | None:
        """What is done for a business; None when it is not configured."""
        return self._by_business.get(business)

    def all(self) -> tuple[Route, ...]:
        """Every route in force, the defaults too."""
        return tuple(self._by_business.values())

    def put(self, routes: Routes) -> bool:
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
        _write(self._file, routes)
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

    def keep_barred(self) -> None:
        """Write down what the guard bars."""
        try:
            _write(self._barred_file, self.guard.state())
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


def _read(path: Path, kind: type[_Kept]) -> _Kept | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        log.error("%s is not readable and is ignored; the controller's next routes replace it", path)
        return None


def _write(path: Path, value: Record) -> None:
    """Replace a file so that a crash leaves either the old or the new one."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(value.model_dump_json().encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
