"""Which arm each conversation was given, so that it keeps it: in memory, behind it a store that gateways share.

Writing is behind (once a second, in a thread); reading is never on a request's way but for a conversation that memory
had to let go. Gateways on one store learn each other's assignments within about a second; the first one stands. The
store is the control database, or a Redis when several hosts share (`pipeline.gateway.shared`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Engine, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.control import session_arms
from pipeline.gateway.routing import Assignment
from pipeline.records import Arm

log = logging.getLogger(__name__)

LIFE = timedelta(days=7)
"""A conversation is over this long after its first turn."""
_OVERLAP = timedelta(seconds=5)  # a row of another gateway may become visible a little after its time


@dataclass(frozen=True, slots=True)
class SessionArm:
    """One conversation's assignment."""

    business: str
    session: str
    assignment: Assignment
    user_known: bool
    assigned_at: datetime


class ArmStore(Protocol):
    """Where gateways keep their assignments. All methods block: call them in a thread."""

    def exchange(
        self, rows: list[SessionArm], cursor: str | None, now: datetime, limit: int
    ) -> tuple[list[SessionArm], str]:
        """Write our assignments (one that is there already stands) and read everyone's.

        Args:
            cursor: what the last call returned; None the first time.

        Returns:
            The newest `limit` living assignments since `cursor`, oldest first (some may be known already), and the
            next cursor.
        """

    def find_living(self, business: str, session: str, now: datetime) -> SessionArm | None:
        """The latest assignment of a conversation that is not over."""

    def purge(self, before: datetime) -> None:
        """Delete conversations that are over."""

    def forget(self, business: str, goes: Callable[[str], bool]) -> int:
        """Delete the assignments of conversations for whose session `goes` is true; returns of how many."""


class DatabaseArmStore:
    """The table `session_arms` of the control database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert

    def exchange(
        self, rows: list[SessionArm], cursor: str | None, now: datetime, limit: int
    ) -> tuple[list[SessionArm], str]:
        """See `ArmStore`. The cursor is a time."""
        if rows:
            self._add(rows)
        since = now - LIFE if cursor is None else datetime.fromisoformat(cursor) - _OVERLAP
        query = select(session_arms).where(session_arms.c.assigned_at >= since)
        with self._engine.connect() as connection:
            known = connection.execute(query.order_by(session_arms.c.assigned_at.desc()).limit(limit)).all()
        return [_from_row(row) for row in reversed(known)], now.isoformat()

    def _add(self, rows: list[SessionArm]) -> None:
        values = [
            {
                "business": row.business,
                "session": row.session,
                "salt": row.assignment.salt,
                "arm": row.assignment.arm.value,
                "share": row.assignment.share,
                "user_known": row.user_known,
                "assigned_at": row.assigned_at,
            }
            for row in rows
        ]
        with self._engine.begin() as connection:
            connection.execute(self._insert(session_arms).on_conflict_do_nothing(), values)

    def find_living(self, business: str, session: str, now: datetime) -> SessionArm | None:
        """See `ArmStore`."""
        after = now - LIFE
        table = session_arms.c
        query = select(session_arms).where(
            table.business == business, table.session == session, table.assigned_at >= after
        )
        with self._engine.connect() as connection:
            row = connection.execute(query.order_by(table.assigned_at.desc()).limit(1)).first()
        return None if row is None else _from_row(row)

    def purge(self, before: datetime) -> None:
        """See `ArmStore`."""
        with self._engine.begin() as connection:
            connection.execute(delete(session_arms).where(session_arms.c.assigned_at < before))

    def forget(self, business: str, goes: Callable[[str], bool]) -> int:
        """See `ArmStore`."""
        table = session_arms.c
        with self._engine.begin() as connection:
            sessions = connection.execute(select(table.session).where(table.business == business).distinct()).scalars()
            gone = [session for session in sessions if goes(session)]
            for session in gone:
                connection.execute(delete(session_arms).where(table.business == business, table.session == session))
        return len(gone)


class SessionArms:
    """Assignments in memory, the latest used last; above `capacity` the one not used for longest is let go."""

    def __init__(self, capacity: int = 200_000) -> None:
        self.capacity = capacity
        """How many conversations memory holds."""
        self._known: dict[tuple[str, str], SessionArm] = {}
        self._unwritten: list[SessionArm] = []
        self.overflowed = False
        """Some conversation was let go: one that is not found may still stand in the store."""

    def find(self, business: str, session: str, now: datetime) -> Assignment | None:
        """A living conversation's assignment."""
        key = (business, session)
        known = self._known.pop(key, None)
        if known is None or known.assigned_at < now - LIFE:
            return None
        self._known[key] = known  # now the latest used
        return known.assignment

    def remember(self, arm: SessionArm) -> None:
        """Note a new assignment; it is written by the next exchange."""
        self._keep(arm)
        self._unwritten.append(arm)
        if len(self._unwritten) > self.capacity:
            del self._unwritten[: self.capacity // 2]

    def learn(self, arm: SessionArm) -> None:
        """Take an assignment from the store: it stands before our own."""
        self._keep(arm)

    def all(self, business: str) -> list[SessionArm]:
        """Known assignments of a business."""
        return [arm for arm in self._known.values() if arm.business == business]

    def take_unwritten(self) -> list[SessionArm]:
        """Hand over what is not written yet."""
        rows, self._unwritten = self._unwritten, []
        return rows

    def give_back(self, rows: list[SessionArm]) -> None:
        """They could not be written."""
        self._unwritten[:0] = rows

    def _keep(self, arm: SessionArm) -> None:
        key = (arm.business, arm.session)
        self._known.pop(key, None)
        self._known[key] = arm
        if len(self._known) > self.capacity:
            del self._known[next(iter(self._known))]
            self.overflowed = True


def _from_row(row: Any) -> SessionArm:
    at = row.assigned_at if row.assigned_at.tzinfo else row.assigned_at.replace(tzinfo=UTC)  # SQLite keeps no zone
    assignment = Assignment(salt=row.salt, arm=Arm(row.arm), share=row.share)
    return SessionArm(row.business, row.session, assignment, row.user_known, at)
