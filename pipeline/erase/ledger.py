"""Who is erased: kept for as long as the business is, so that nothing of them comes back.

The list is written before anything is deleted. So an erasure that was killed knows what it was about when it is run
again, although the events that told so may be gone.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from pydantic import JsonValue
from sqlalchemy import Connection, Engine, Table, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.control import audit, erased, erasures
from pipeline.erase.erased import Erased, Kind, digest
from pipeline.records import content_id

_ROWS = 1000


def erasure_id(business: str, user_keys: Iterable[str]) -> str:
    """The same users of the same business are the same erasure, however often it is run."""
    return content_id(["erasure", business, sorted(digest(business, Kind.USER, key) for key in set(user_keys))])


class ErasureLedger:
    """Owner of the tables `erasures` and `erased`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert

    def erased(self, name: str | None = None) -> Erased:
        """What one erasure is about, or everything that was ever erased."""
        query = select(erased.c.digest)
        if name is not None:
            query = query.where(erased.c.erasure_id == name)
        with self._engine.connect() as connection:
            return Erased(frozenset(connection.execute(query).scalars()))

    def unfinished(self, name: str) -> datetime | None:
        """When an erasure was begun that has not ended; None when there is none."""
        query = select(erasures.c.begun_at).where(erasures.c.erasure_id == name, erasures.c.ended_at.is_(None))
        with self._engine.connect() as connection:
            begun = connection.execute(query).scalar()
        return begun and (begun if begun.tzinfo else begun.replace(tzinfo=UTC))  # SQLite forgets the zone

    def begin(
        self,
        business: str,
        name: str,
        digests: Iterable[str],
        *,
        actor: str,
        found: Mapping[str, JsonValue],
        now: datetime,
    ) -> None:
        """Put users and what is theirs on the list, with a line in the audit trail; all of it or nothing.

        Args:
            name: the erasure's id.
            digests: added to those that are on the list.
            found: counts of what is to go.
        """
        rows: list[dict[str, object]] = [{"erasure_id": name, "digest": one} for one in sorted(set(digests))]
        with self._engine.begin() as connection:
            for at in range(0, len(rows), _ROWS):
                self._add(connection, erased, rows[at : at + _ROWS])
            self._add(connection, erasures, [{"erasure_id": name, "business": business, "begun_at": now}])
            begun = {"begun_at": now, "ended_at": None}
            connection.execute(update(erasures).where(erasures.c.erasure_id == name).values(**begun))
            connection.execute(insert(audit).values(**_line(business, actor, "erase begin", name, found, now)))

    def end(self, business: str, name: str, *, actor: str, done: Mapping[str, JsonValue], now: datetime) -> None:
        """Note that an erasure has been through every store."""
        with self._engine.begin() as connection:
            connection.execute(update(erasures).where(erasures.c.erasure_id == name).values(ended_at=now))
            connection.execute(insert(audit).values(**_line(business, actor, "erase end", name, done, now)))

    def _add(self, connection: Connection, table: Table, rows: list[dict[str, object]]) -> None:
        if rows:
            connection.execute(self._insert(table).on_conflict_do_nothing(), rows)


def _line(
    business: str, actor: str, action: str, name: str, counts: Mapping[str, JsonValue], now: datetime
) -> dict[str, object]:
    detail = {"erasure": name, **counts}
    return {"at": now, "business": business, "actor": actor[:200], "action": action, "detail": detail}
