"""Times as other tools write them, with or without a zone, as text or as a count since 1970."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from pipeline.collect.importers.refusal import RefusalReason, Refused

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((1e9, 1e10, 1.0), (1e12, 1e13, 1e3), (1e15, 1e16, 1e6), (1e18, 1e19, 1e9))
"""From, to, and how many make a second: between 2001 and 2286 the size of a count tells its unit."""
_YEARS = (1990, 2200)


def moment(value: Any, zone: tzinfo) -> datetime:
    """A time in UTC.

    Args:
        value: seconds, milli-, micro- or nanoseconds since 1970; or a date and time.
        zone: of a date and time that names none.

    Raises:
        Refused: there is no time, or an impossible one.
    """
    found = _read(value, zone)
    if found is None:
        raise Refused(RefusalReason.NO_TIME, f"{str(value)[:40]!r} is no time" if value else "no time")
    return found


def first_moment(zone: tzinfo, *values: Any) -> datetime | None:
    """The first of several values that is a time; None when there is not even a bad one.

    Raises:
        Refused: none of those that are there is a time.
    """
    for value in values:
        found = _read(value, zone)
        if found is not None:
            return found
    bad = next((value for value in values if value), None)
    return None if bad is None else moment(bad, zone)


def uuid7_moment(text: str) -> datetime | None:
    """When a UUIDv7 was made; None for everything else."""
    digits = text.replace("-", "")
    if len(digits) != 32 or digits[12] != "7":
        return None
    try:
        return _read(int(digits[:12], 16), UTC)
    except ValueError:
        return None


def _read(value: Any, zone: tzinfo) -> datetime | None:
    if isinstance(value, dict):  # MongoDB's extended JSON
        value = value.get("$date")
        value = value.get("$numberLong") if isinstance(value, dict) else value
    if isinstance(value, datetime):
        return _plausible(value, zone)
    if isinstance(value, str):
        text = value.strip()
        if text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdigit():
            return _count(float(text)) if len(text) < 40 else None
        try:
            return _plausible(datetime.fromisoformat(text.removesuffix(" UTC")), zone)
        except ValueError:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _count(value)
    return None


def _count(value: float) -> datetime | None:
    for low, high, per_second in _UNITS:
        if low <= value < high:
            return _EPOCH + timedelta(microseconds=round(value * (1e6 / per_second)))
    return None


def _plausible(found: datetime, zone: tzinfo) -> datetime | None:
    if not _YEARS[0] <= found.year < _YEARS[1]:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
