"""Fields of what other tools wrote: any of them may be absent, null or of another type than documented."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from pipeline.collect.importers.refusal import RefusalReason, Refused

Row: TypeAlias = Mapping[str, Any]


def text(row: Row, *names: str) -> str:
    """The first of the named fields that holds something, as text; "" where none does. Ids are often numbers."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return ""


def key(row: Row, *names: str) -> str:
    """Like `text`, for an id without which the row is about nothing.

    Raises:
        Refused: there is none.
    """
    found = text(row, *names).strip()
    if not found:
        raise Refused(RefusalReason.NO_KEY, f"no {' or '.join(names)}")
    return found


def member(row: Row, name: str) -> dict[str, Any]:
    """An object inside; {} where there is none."""
    value = parsed(row.get(name))
    return value if isinstance(value, dict) else {}


def members(row: Row, name: str) -> list[dict[str, Any]]:
    """The objects of a list inside; other things in it are left out."""
    value = parsed(row.get(name))
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def texts(row: Row, name: str) -> list[str]:
    """The texts of a list inside, without empty ones."""
    value = parsed(row.get(name))
    return [one for one in value if isinstance(one, str) and one.strip()] if isinstance(value, list) else []


def parsed(value: Any) -> Any:
    """JSON inside a string becomes what it says; every other value stays. Many exports hold JSON twice wrapped."""
    for _ in range(2):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            return value
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def number(value: Any) -> float | None:
    """A number, also one written as text; None for everything else, truth values included."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else None
    if isinstance(value, str):
        try:
            found = float(value)
        except ValueError:
            return None
        return found if abs(found) < 1e300 else None
    return None
