"""Lines of the event log, read just far enough to tell whose they are."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from pipeline.erase.erased import Erased, Kind

Tick = Callable[[int], None]
"""Called with so many bytes of files as were looked at."""
_BATCH = 256
"""Lines of the lake that are in memory at once; one may have megabytes."""


class InteractionLine(msgspec.Struct):
    """Of an `Interaction` what is needed here."""

    interaction_id: str
    business: str
    session: str
    user_key: str | None = None
    regenerates: str | None = None


class FeedbackLine(msgspec.Struct):
    """Of a `Feedback` what is needed here."""

    event_id: str
    interaction_id: str
    business: str
    value: Any = None
    user_key: str | None = None


class ShadowLine(msgspec.Struct):
    """Of a `ShadowAnswer` what is needed here: it is the user's as the interaction is that it repeats."""

    interaction_id: str
    business: str
    session: str
    user_key: str | None = None
    regenerates: None = None


class _Line(msgspec.Struct):
    interaction: InteractionLine | None = None
    feedback: FeedbackLine | None = None
    shadow: ShadowLine | None = None


_READ = msgspec.json.Decoder(_Line)
_FIELD = re.compile(rb'"(?P<name>business|interaction_id|event_id|session|user_key)"\s*:\s*"(?P<value>[^"\\]{1,200})"')
_KINDS = {
    b"interaction_id": Kind.INTERACTION,
    b"event_id": Kind.EVENT,
    b"session": Kind.SESSION,
    b"user_key": Kind.USER,
}


def read_line(text: bytes) -> InteractionLine | FeedbackLine | ShadowLine | None:
    """A line of the log; None when it is none: torn, blank, or unreadable to everybody."""
    try:
        line = _READ.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return line.interaction or line.feedback or line.shadow


def covers(erased: Erased, text: bytes) -> bool:
    """Whether a line goes. One that cannot be read goes when it names somebody or something that is erased."""
    match read_line(text):
        case InteractionLine() | ShadowLine() as one:
            return erased.interaction(one)
        case FeedbackLine() as one:
            return erased.feedback(one)
    fields = [(found["name"], found["value"].decode("utf-8", "replace")) for found in _FIELD.finditer(text)]
    businesses = [value for name, value in fields if name == b"business"][:1]
    return any(
        erased.has(business, _KINDS[name], value)
        for business in businesses
        for name, value in fields
        if name != b"business"
    )


def of_segment(path: Path) -> Iterator[tuple[int, bytes]]:
    """Each line of a segment with where it begins, and its newline if it has one: the last may have none yet."""
    place = 0
    with path.open("rb") as file:
        for text in file:
            yield place, text
            if not text.endswith(b"\n"):
                return  # a gateway is about to go on with it: what comes next would be the rest of a line
            place += len(text)


def of_lake(path: Path) -> Iterator[bytes]:
    """Each line of a file of the lake, in the order of its rows."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH, columns=["json"], use_threads=False):
            for text in batch.column(0).to_pylist():
                yield text.encode("utf-8", "surrogatepass")
