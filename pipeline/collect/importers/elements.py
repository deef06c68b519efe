"""A file of any size as a stream of JSON objects, each with its place; what cannot be read is a refusal with its place.

Nothing here knows a tool. A bad line costs that line.
"""

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, BinaryIO, TypeAlias

from pydantic import ValidationError

from pipeline.clean.text import repair_json
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source

MAX_LINE = 32 * 1024 * 1024
"""Bytes of one line: what becomes of it must fit into a line of the event log."""
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Element:
    """One object of a file."""

    place: str
    value: dict[str, Any]


Elements: TypeAlias = Iterator[Element | Refusal]


def read_elements(source: Source, *inside: str, part: str | None = None) -> Elements:
    """The objects of a file, whatever form it has: JSON lines, one JSON array, one JSON document, CSV or Parquet.

    Args:
        inside: keys of a JSON document under which its list of objects may stand, such as `data`.
        part: of a zip archive or a folder.
    """
    suffix = source.suffix if part is None else part[part.rfind(".") :].lower()
    if not source.size:
        yield Refusal("file", RefusalReason.UNREADABLE, "it is empty")
        return
    try:
        if suffix in (".csv", ".tsv"):
            from pipeline.collect.importers.table import csv_rows

            yield from csv_rows(source, part)
        elif suffix == ".parquet":
            from pipeline.collect.importers.table import parquet_rows

            yield from parquet_rows(source)
        elif suffix in (".jsonl", ".ndjson") or _is_lines(source, part, inside):
            yield from json_lines(source, part)
        else:
            from pipeline.collect.importers.document import json_document

            yield from json_document(source, part, inside)
    except (EOFError, zlib.error, zipfile.BadZipFile) as error:
        yield Refusal("file", RefusalReason.UNREADABLE, f"damaged archive: {str(error)[:100]}")
    except OSError as error:
        if error.errno is not None:  # the disk, not what stands on it
            raise
        yield Refusal("file", RefusalReason.UNREADABLE, f"damaged archive: {str(error)[:100]}")


def read_each(elements: Elements, read_one: Callable[[dict[str, Any]], Iterable[Item]]) -> Iterator[Item]:
    """What `read_one` makes of each element: all of it, or one refusal at the element's place."""
    for element in elements:
        if isinstance(element, Refusal):
            yield element
        else:
            yield from attempt(element.place, lambda value=element.value: read_one(value))  # type: ignore[misc]


def attempt(place: str, read: Callable[[], Iterable[Item]]) -> list[Item]:
    """All that `read` gives, or one refusal. A refusal without a place gets this one."""
    try:
        return [
            Refusal(place, item.reason, item.detail) if isinstance(item, Refusal) and not item.place else item
            for item in read()
        ]
    except Refused as refused:
        return [Refusal(place, refused.reason, refused.detail)]
    except RecursionError:
        return [Refusal(place, RefusalReason.WRONG_FORM, "nested too deeply")]
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])[:100]
        return [Refusal(place, RefusalReason.WRONG_FORM, f"{where}: {first['msg'][:100]}")]


def json_lines(source: Source, part: str | None = None) -> Elements:
    """One object a line; empty lines are none."""
    with source.open(part) as file:
        for number in count(1):
            line = file.readline(MAX_LINE + 1)
            if not line:
                return
            place = f"line {number}"
            if len(line) > MAX_LINE:
                _skip_line(file)
                yield Refusal(place, RefusalReason.TOO_LONG, f"more than {MAX_LINE} bytes")
                continue
            line = line.removeprefix(_BOM) if number == 1 else line
            if line.strip():
                yield _line(source, place, line)


def as_object(source: Source, place: str, text: str, *, cut: bool = False) -> Element | Refusal:
    """A JSON text as an element; half of a surrogate pair becomes U+FFFD, counted.

    Args:
        cut: whether the file ends here, so that bad JSON means a cut file.
    """
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        return Refusal(place, RefusalReason.BAD_JSON, "nested too deeply")
    except ValueError as error:
        reason = RefusalReason.CUT_SHORT if cut else RefusalReason.BAD_JSON
        return Refusal(place, reason, str(error)[:100])
    return _checked(source, place, value, _SURROGATE.search(text.encode("utf-8", "replace")) is not None)


def _checked(source: Source, place: str, value: Any, suspect: bool) -> Element | Refusal:
    if not isinstance(value, dict):
        return Refusal(place, RefusalReason.WRONG_FORM, f"{type(value).__name__} instead of an object")
    if suspect:
        try:
            repaired = repair_json(value)
        except RecursionError:
            return Refusal(place, RefusalReason.BAD_JSON, "nested too deeply")
        source.repaired += repaired != value
        value = repaired
    return Element(place, value)


def _line(source: Source, place: str, line: bytes) -> Element | Refusal:
    try:
        text = line.decode(source.encoding or "utf-8")
    except UnicodeDecodeError:
        return Refusal(place, RefusalReason.NOT_UTF8, not_encoded(source))
    return as_object(source, place, text, cut=not line.endswith(b"\n"))


def not_encoded(source: Source) -> str:
    """What to say of bytes that are not in the encoding."""
    if source.encoding is None:
        return "not UTF-8; name the encoding with --encoding, such as gb18030"
    return f"not {source.encoding}; name the right one with --encoding"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
        pass


def _is_lines(source: Source, part: str | None, inside: tuple[str, ...]) -> bool:
    """Whether a file of JSON is one of lines: its first one is an object by itself, and not all that there is."""
    with source.open(part) as file:
        head = file.readline(MAX_LINE).removeprefix(_BOM)
        if not head.lstrip().startswith(b"{"):
            return False
        try:
            value = json.loads(head)
        except (ValueError, RecursionError):
            return False
        return not any(isinstance(value.get(name), list) for name in inside) or bool(file.read(1).strip())
