"""The control database: its tables, and the one way to open it.

SQLite on one machine, PostgreSQL when several hosts share it. Each table has one owner: `rollouts`, `published_routes`
and `audit` are written by `pipeline.rollout.store`, `api_keys` by `pipeline.gateway.auth`, `session_arms` by
`pipeline.gateway.arms`, `quarantine` by `pipeline.collect.quarantine`, `erasures` and `erased` by
`pipeline.erase.ledger`, `alias_changes` by `pipeline.registry.alias_log`, `leases` by
`pipeline.rollout.lease`; quarantine and erasure also write to `audit` what was decided and done.
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    false,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.schema import CreateColumn

metadata = MetaData()

rollouts = Table(
    "rollouts",
    metadata,
    Column("business", String(40), primary_key=True),
    Column("generation", Integer, nullable=False),  # compare-and-set: a writer names the generation that it read
    Column("state", JSON, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)

published_routes = Table(
    "published_routes",
    metadata,
    Column("id", Integer, primary_key=True),  # always 1: there is one table of routes
    Column("generation", Integer, nullable=False),
    Column("routes", JSON, nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("holder", String(200), nullable=False),  # empty: nobody's
    Column("term", Integer, nullable=False),  # fences what an earlier holder still writes
    Column("beat", Integer, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("business", String(40), nullable=False, index=True),
    Column("actor", String(200), nullable=False),
    Column("action", String(80), nullable=False),
    Column("detail", JSON, nullable=False),
)

alias_changes = Table(
    "alias_changes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("business", String(256), nullable=False, index=True),  # any registered model's name, as people make them
    Column("alias", String(256), nullable=False),
    Column("version", Integer),  # null: removed
    Column("by", String(256), nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_hash", String(64), primary_key=True),  # SHA-256: the keys themselves are random, 256 bits
    Column("name", String(80), nullable=False, unique=True),
    Column("businesses", JSON, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("revoked_at", DateTime(timezone=True)),
    Column("admin", Boolean, nullable=False, server_default=false()),
)

session_arms = Table(
    "session_arms",
    metadata,
    Column("business", String(40), primary_key=True),
    Column("session", String(64), primary_key=True),
    Column("salt", String(64), primary_key=True),
    Column("arm", String(16), nullable=False),
    Column("share", Float, nullable=False),
    Column("user_known", Boolean, nullable=False),
    Column("assigned_at", DateTime(timezone=True), nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("finding_id", String(64), primary_key=True),
    Column("business", String(40), nullable=False, index=True),
    Column("state", String(16), nullable=False),
    Column("finding", JSON, nullable=False),
    Column("found_at", DateTime(timezone=True), nullable=False),
    Column("decided_at", DateTime(timezone=True)),
    Column("decided_by", String(200)),
    Column("why", String(1000)),
)

erasures = Table(
    "erasures",
    metadata,
    Column("erasure_id", String(64), primary_key=True),
    Column("business", String(40), nullable=False, index=True),
    Column("begun_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),  # null: killed on its way, to be run again
)

erased = Table(
    "erased",
    metadata,
    Column("erasure_id", String(64), primary_key=True),
    Column("digest", String(32), primary_key=True),  # of a user, session or id: see pipeline.erase.erased
)


def open_control_in(state_dir: Path) -> Engine:
    """Open the control database of a state folder; make what is missing, the folder too."""
    state_dir.mkdir(parents=True, exist_ok=True)
    return open_control(f"sqlite:///{state_dir / 'control.db'}")


def open_control(url: str) -> Engine:
    """Open the control database; make what is missing of its tables and columns.

    Args:
        url: an SQLAlchemy URL, such as `sqlite:////srv/tuneloop/control.db`.
    """
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _many_readers)
    metadata.create_all(engine)
    _add_columns(engine)
    return engine


def aware(value: datetime) -> datetime:
    """A time as it was written: SQLite forgets the zone, and everything is written in UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def wipe_free_space(engine: Engine, patience_s: float = 60.0) -> bool:
    """Leave nothing of deleted rows in SQLite's files: neither in free pages nor in the write-ahead log.

    PostgreSQL does it in its own time (`VACUUM`, and as its log is recycled).

    Returns:
        False when others read the database all the time, so that the log could not be emptied.
    """
    if engine.dialect.name != "sqlite":
        return True
    deadline = time.monotonic() + patience_s
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while True:
            try:
                connection.execute(text("VACUUM"))
                busy = connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)")).one()[0]
            except OperationalError:  # locked by a writer, or read from
                busy = 1
            if not busy or time.monotonic() > deadline:
                return not busy
            time.sleep(0.2)


def _add_columns(engine: Engine) -> None:
    """Bring tables that an earlier version made up to date. Columns are only ever added, each nullable or with a
    default of the database's, so that versions can run side by side while they are exchanged."""
    for table in metadata.tables.values():
        for column in _missing(engine, table):
            definition = CreateColumn(column).compile(dialect=engine.dialect)
            try:
                with engine.begin() as connection:
                    connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {definition}"))
            except DBAPIError:
                if column in _missing(engine, table):  # else another process was quicker
                    raise


def _missing(engine: Engine, table: Table) -> list[Column[Any]]:
    there = {column["name"] for column in inspect(engine).get_columns(table.name)}
    return [column for column in table.columns if column.name not in there]


def _many_readers(connection: object, _record: object) -> None:
    """Write-ahead logging lets gateway, controller and command line read while one of them writes."""
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()
