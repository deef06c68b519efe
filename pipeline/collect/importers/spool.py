"""What belongs together but is strewn over a file (turns of a talk, spans of a trace), brought together on disk.

SQLite's private temporary database: it has no name, so that a killed import leaves no personal data behind.
"""

import json
import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from pipeline.collect.importers.elements import Element


class Spool:
    """Elements by group; groups come back in order of their names, elements in the order in which they came."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("PRAGMA cache_size = -32768")
        self._database.execute("CREATE TABLE elements (name TEXT, place TEXT, value TEXT)")

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def add(self, group: str, place: str, value: dict[str, Any]) -> None:
        """Keep an element."""
        self._database.execute("INSERT INTO elements VALUES (?, ?, ?)", (group, place, json.dumps(value)))

    def groups(self) -> Iterator[tuple[str, list[Element]]]:
        """Each group with its elements; call it once, when all is added."""
        self._database.execute("CREATE INDEX by_name ON elements (name)")
        names = self._database.execute("SELECT DISTINCT name FROM elements ORDER BY name")
        for (name,) in names:
            rows = self._database.execute("SELECT place, value FROM elements WHERE name = ? ORDER BY rowid", (name,))
            yield name, [Element(place, json.loads(value)) for place, value in rows]
