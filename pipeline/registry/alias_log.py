"""Who set or removed an alias, and when: MLflow keeps neither.

MLflow's process writes (`pipeline.registry.mlflow_app`), before it changes the alias: whoever sees an alias finds who
set it. The controller reads.
"""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Engine, insert, select

from pipeline.control import alias_changes, aware


class AliasChange(NamedTuple):
    """One change that somebody asked of the registry."""

    at: datetime
    business: str
    alias: str
    version: int | None
    """None: removed."""
    by: str


class AliasLog:
    """Owner of the table `alias_changes`; lines are added and never changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, change: AliasChange) -> None:
        """Keep a change for good when this returns."""
        with self._engine.begin() as connection:
            connection.execute(insert(alias_changes).values(**change._asdict()))

    def changes(self, business: str, limit: int = 100) -> tuple[AliasChange, ...]:
        """The last changes of a business's aliases, oldest first."""
        newest_first = (
            select(alias_changes)
            .where(alias_changes.c.business == business)
            .order_by(alias_changes.c.id.desc())
            .limit(limit)
        )
        with self._engine.connect() as connection:
            rows = connection.execute(newest_first).all()
        return tuple(AliasChange(aware(row.at), row.business, row.alias, row.version, row.by) for row in reversed(rows))

    def who_set(self, business: str, alias: str, version: int) -> str | None:
        """Who last set the alias on the version; None when that went past MLflow's plugin."""
        last = (
            select(alias_changes.c.by)
            .where(
                alias_changes.c.business == business,
                alias_changes.c.alias == alias,
                alias_changes.c.version == version,
            )
            .order_by(alias_changes.c.id.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            return connection.execute(last).scalar_one_or_none()
