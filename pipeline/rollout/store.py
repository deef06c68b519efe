"""The rollouts and routes in the control database, written by compare-and-set, with the audit trail beside them.

A transition, what it still owes to the outside (tags, reports) and its line in the audit trail are one transaction: a
crash can delay what is owed, never lose or repeat the transition.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from pydantic import JsonValue
from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from pipeline.control import audit as audit_table
from pipeline.control import aware, published_routes, rollouts
from pipeline.errors import PipelineError, Transient
from pipeline.records import Route, Routes
from pipeline.rollout.lease import Lease
from pipeline.rollout.ledger import AuditEntry, Ledger, Request, record_decision
from pipeline.rollout.state import Canary, Paused, RolloutState, Steady

log = logging.getLogger(__name__)


class WriteConflict(PipelineError, Transient):
    """Another writer was quicker: read again and decide anew."""


class Stored(NamedTuple):
    """A ledger and the generation that a writer has to name."""

    generation: int
    ledger: Ledger

    @property
    def state(self) -> RolloutState:
        return self.ledger.state


class RolloutStore:
    """Owner of the tables `rollouts`, `audit` and `published_routes`."""

    def __init__(self, engine: Engine, lease: Lease | None = None) -> None:
        """
        Args:
            lease: what is written needs it; None for what people command, which any controller does.
        """
        self._engine = engine
        self._lease = lease

    def fenced(self, lease: Lease) -> "RolloutStore":
        """The same store for the one controller that acts by itself: every write raises `LostLease` when it is not."""
        return RolloutStore(self._engine, lease)

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
            if self._lease is not None:
                self._lease.check(connection)
        return Stored(expected_generation + 1, ledger)

    def decide(
        self,
        stored: Stored,
        state: Steady | Canary | Paused,
        now: datetime,
        *,
        actor: str,
        action: str,
        reason: str,
        request: Request | None = None,
    ) -> Stored:
        """Write a decision, what it owes and its line in the audit trail.

        Args:
            stored: as it was read.
            state: the next state; the same as before when a request was refused.
            request: the wish that the decision deals with.

        Raises:
            WriteConflict: somebody else decided first.
        """
        ledger, entry = record_decision(
            stored.ledger, state, actor=actor, action=action, reason=reason, now=now, request=request
        )
        written = self.write(ledger, stored.generation, now, entry)
        log.info("%s: v%s: %s by %s: %s", state.business, entry.detail["version"], action, actor, reason)
        return written

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
            AuditEntry(at=aware(r.at), business=r.business, actor=r.actor, action=r.action, detail=r.detail)
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

        Numbers begin at the Unix time in seconds: those of a database that was lost lie below, so that gateways, which
        keep the highest they have seen, take the new ones.

        Raises:
            WriteConflict: somebody did.
        """
        body = [route.model_dump(mode="json") for route in routes]
        generation = expected_generation + 1 if expected_generation else int(now.timestamp())
        values = {"generation": generation, "routes": body, "updated_at": now}
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
            if self._lease is not None:
                self._lease.check(connection)
        return Routes(generation=generation, routes=routes)

    @staticmethod
    def _insert(connection: Connection, business: str, values: Mapping[str, object]) -> None:
        try:
            connection.execute(insert(rollouts).values(business=business, **values))
        except IntegrityError as error:
            raise _conflict(business, 0) from error


def _conflict(what: str, generation: int) -> WriteConflict:
    return WriteConflict(f"{what}: generation {generation} is no longer the newest; read again and decide anew")
