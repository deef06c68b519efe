"""The rollouts and routes in the control database, written by compare-and-set, with the audit trail beside them.

A transition, what it still owes to the outside (tags, reports) and its line in the audit trail are one transaction: a
crash can delay what is owed, never lose or repeat the transition.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, JsonValue
from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.control import audit as audit_table
from pipeline.control import published_routes, rollouts
from pipeline.errors import PipelineError, Transient
from pipeline.records import Record, Route, Routes
from pipeline.rollout.state import Outcome, RolloutState, Steady


class WriteConflict(PipelineError, Transient):
    """Another writer was quicker: read again and decide anew."""


class Owed(Record):
    """What a transition still owes to the registry and to the readers of reports. Doing it twice does no harm."""

    version: int
    tags: dict[str, str] = {}
    drop_alias: Literal["promote", "rollback"] | None = None
    """The request that was dealt with."""
    report: Outcome | None = None
    """The finished rollout to write a report about."""
    previous_version: int | None = None
    """For the report: what was in service before."""


class Ledger(Record):
    """All that is kept about a business's rollouts."""

    state: RolloutState
    champion_seen: int | None = None
    """The alias `champion` as it was last dealt with. Any other value that is not the stable version is a person's."""
    newest_tried: int = 0
    """The newest version that was ever rolled out or refused: `auto_canary` starts only newer ones."""
    owed: tuple[Owed, ...] = ()


class Stored(NamedTuple):
    """A ledger and the generation that a writer has to name."""

    generation: int
    ledger: Ledger

    @property
    def state(self) -> RolloutState:
        return self.ledger.state


class AuditEntry(Record):
    """Who did what, when, and why."""

    at: AwareDatetime
    business: str
    actor: str
    action: str
    detail: dict[str, JsonValue]


class RolloutStore:
    """Owner of the tables `rollouts`, `audit` and `published_routes`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, business: str) -> Stored:
        """The business's ledger; generation 0 and a steady base model when nothing was ever written."""
        with self._engine.connect() as connection:
            row = connection.execute(
                select(rollouts.c.generation, rollouts.c.state).where(rollouts.c.business == business)
            ).one_or_none()
        if row is None:
            return Stored(0, Ledger(state=Steady(business=business)))
        return Stored(row.generation, Ledger.model_validate(row.state))

    def write(self, ledger: Ledger, expected_generation: int, now: datetime, entry: AuditEntry | None = None) -> Stored:
        """Replace the ledger, with its line in the audit trail, if nobody else did since it was read.

        Raises:
            WriteConflict: somebody did.
        """
        business = ledger.state.business
        values = {"generation": expected_generation + 1, "state": ledger.model_dump(mode="json"), "updated_at": now}
        with self._engine.begin() as connection:
            if expected_generation == 0:
                self._insert(connection, business, values)
            else:
                changed = connection.execute(
                    update(rollouts)
                    .where(rollouts.c.business == business, rollouts.c.generation == expected_generation)
                    .values(**values)
                )
                if changed.rowcount != 1:
                    raise _conflict(business, expected_generation)
            if entry is not None:
                connection.execute(insert(audit_table).values(**dict(entry)))
        return Stored(expected_generation + 1, ledger)

    def audit(self, business: str, actor: str, action: str, detail: Mapping[str, JsonValue], now: datetime) -> None:
        """Add a line that belongs to no transition."""
        with self._engine.begin() as connection:
            connection.execute(
                insert(audit_table).values(at=now, business=business, actor=actor, action=action, detail=dict(detail))
            )

    def history(self, business: str, limit: int = 100) -> tuple[AuditEntry, ...]:
        """The last lines of the audit trail, oldest first."""
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(audit_table)
                .where(audit_table.c.business == business)
                .order_by(audit_table.c.id.desc())
                .limit(limit)
            ).all()
        return tuple(
            AuditEntry(at=_aware(r.at), business=r.business, actor=r.actor, action=r.action, detail=r.detail)
            for r in reversed(rows)
        )

    def routes(self) -> Routes:
        """The routes last published; generation 0 when there are none."""
        with self._engine.connect() as connection:
            row = connection.execute(select(published_routes.c.generation, published_routes.c.routes)).one_or_none()
        if row is None:
            return Routes(generation=0, routes=())
        return Routes(generation=row.generation, routes=tuple(Route.model_validate(r) for r in row.routes))

    def publish(self, routes: tuple[Route, ...], expected_generation: int, now: datetime) -> Routes:
        """Make a new generation of the routes, if nobody else did since they were read.

        Raises:
            WriteConflict: somebody did.
        """
        body = [route.model_dump(mode="json") for route in routes]
        values = {"generation": expected_generation + 1, "routes": body, "updated_at": now}
        with self._engine.begin() as connection:
            if expected_generation == 0:
                try:
                    connection.execute(insert(published_routes).values(id=1, **values))
                except IntegrityError as error:
                    raise _conflict("routes", 0) from error
            else:
                changed = connection.execute(
                    update(published_routes)
                    .where(published_routes.c.generation == expected_generation)
                    .values(**values)
                )
                if changed.rowcount != 1:
                    raise _conflict("routes", expected_generation)
        return Routes(generation=expected_generation + 1, routes=routes)

    @staticmethod
    def _insert(connection: Connection, business: str, values: Mapping[str, object]) -> None:
        try:
            connection.execute(insert(rollouts).values(business=business, **values))
        except IntegrityError as error:
            raise _conflict(business, 0) from error


def _conflict(what: str, generation: int) -> WriteConflict:
    return WriteConflict(f"{what}: generation {generation} is no longer the newest; read again and decide anew")


def _aware(value: datetime) -> datetime:
    """SQLite forgets the zone; everything is written in UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)
