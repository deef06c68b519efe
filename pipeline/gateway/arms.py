"""Which arm each conversation was given, so that it keeps it: in memory, behind it a store that gateways share.

The first assignment of a conversation stands. Gateways on one store exchange what they assigned twice a second, off
the requests' way. While a rollout is under way, a conversation that is new to a gateway is claimed in the store before
it is served (`pipeline.gateway.claims`): another gateway may have drawn it a moment ago, with another share. The store
is the control database, or a Redis when several hosts share (`pipeline.gateway.shared`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Engine, Executable, Table, bindparam, delete, exists, select, tuple_
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

    def claim(self, rows: list[SessionArm]) -> list[SessionArm]:
        """Write our assignments; a conversation that lives already keeps its own.

        Returns:
            What stands for each row, in order.
        """

    def purge(self, before: datetime) -> None:
        """Delete conversations that are over."""

    def forget(self, business: str, goes: Callable[[str], bool]) -> int:
        """Delete the assignments of conversations for whose session `goes` is true; returns of how many."""


class DatabaseArmStore:
    """The table `session_arms` of the control database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._insert = _insert_new(postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert)

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

    def claim(self, rows: list[SessionArm]) -> list[SessionArm]:
        """See `ArmStore`."""
        self._add(rows)
        table = session_arms.c
        wanted = tuple_(table.business, table.session).in_([(row.business, row.session) for row in rows])
        with self._engine.connect() as connection:
            found = connection.execute(select(session_arms).where(wanted).order_by(table.assigned_at)).all()
        latest = {(row.business, row.session): _from_row(row) for row in found}
        return [latest.get((row.business, row.session), row) for row in rows]

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
                "since": row.assigned_at - LIFE,
            }
            for row in rows
        ]
        with self._engine.begin() as connection:
            connection.execute(self._insert, values)

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


def _insert_new(insert: Callable[[Table], postgresql.Insert] | Callable[[Table], sqlite.Insert]) -> Executable:
    """An assignment goes in unless its conversation has one that lives, be it of another rollout."""
    table = session_arms.c
    living = exists().where(
        table.business == bindparam("business"),
        table.session == bindparam("session"),
        table.assigned_at >= bindparam("since", type_=table.assigned_at.type),
    )
    names = [column.name for column in session_arms.columns]
    row = select(*(bindparam(name, type_=session_arms.c[name].type) for name in names)).where(~living)
    return insert(session_arms).from_select(names, row).on_conflict_do_nothing()


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
