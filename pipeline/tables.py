"""Records as Parquet: the columns are derived from the record, never typed a second time.

Scalars keep their type, `tuple[str, ...]` is a list of strings, and everything nested is one column of canonical
JSON: nested shapes differ from row to row (messages, tools), and Arrow would have to guess them.
"""

import json
import os
import tempfile
import types
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import AwareDatetime, ValidationError

from pipeline.errors import DataError
from pipeline.records import Record, canonical_json

_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
    AwareDatetime: pa.timestamp("us", tz="UTC"),
}
_JSON = {b"json": b"1"}
"""Marks a column that holds JSON, for whoever reads the file without the record."""

R = TypeVar("R", bound=Record)


def arrow_schema(kind: type[Record]) -> pa.Schema:
    """Columns of a record: one for each field, in the record's order."""
    return pa.schema([_column(name, field.annotation) for name, field in kind.model_fields.items()])


def write_records(path: Path, kind: type[R], records: Sequence[R]) -> None:
    """Write records to one Parquet file. The file is there whole and on disk, or not at all.

    Raises:
        DataError: a value does not fit its column, such as an integer beyond 64 bits or a lone surrogate.
    """
    schema = arrow_schema(kind)
    as_json = {name for name in schema.names if _is_json(schema.field(name))}
    rows = [_row(record, as_json) for record in records]
    try:
        table = pa.Table.from_pylist(rows, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise DataError(
            f"{path}: a {kind.__name__} does not fit its columns ({' '.join(str(error).split())[:200]}); "
            "repair the text before it is written"
        ) from error
    write_table(path, table)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table so that the file is there whole and on disk, or not at all. Readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a rename is only on disk when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_records(path: Path, kind: type[R]) -> list[R]:
    """Read what `write_records` wrote.

    Raises:
        DataError: there is no such file, it is no Parquet, or its rows are no such records.
    """
    try:
        # Memory mapping and the thread pool cost more than they gain on files of a few thousand rows.
        table = pq.ParquetFile(path).read(use_threads=False)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: not readable as Parquet ({' '.join(str(error).split())[:200]})") from error
    schema = arrow_schema(kind)
    as_json = [name for name in schema.names if _is_json(schema.field(name))]
    records = []
    for number, row in enumerate(table.to_pylist()):
        try:
            row.update({name: json.loads(row[name]) for name in as_json if row.get(name) is not None})
            records.append(kind.model_validate(row))
        except (ValidationError, ValueError) as error:
            raise DataError(
                f"{path}: row {number} is no {kind.__name__}; it was written by another version, build it again"
            ) from error
    return records


def _row(record: Record, as_json: set[str]) -> dict[str, Any]:
    native = record.model_dump(exclude=as_json)
    nested = record.model_dump(mode="json", include=as_json)
    return native | {name: None if value is None else canonical_json(value) for name, value in nested.items()}


def _column(name: str, annotation: Any) -> pa.Field:
    inner, nullable = _unwrap(annotation)
    known = _native(inner)
    if known is None:
        # A JSON value can itself be null, so the column is nullable whatever the field says.
        return pa.field(name, pa.string(), nullable=True, metadata=_JSON)
    return pa.field(name, known, nullable=nullable)


def _is_json(field: pa.Field) -> bool:
    return bool(field.metadata == _JSON)


def _unwrap(annotation: Any) -> tuple[Any, bool]:
    """Strip `Annotated` and `| None`; say whether None was among the members."""
    if get_origin(annotation) is Annotated:
        return _unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        nullable = len(members) < len(get_args(annotation))
        if len(members) == 1:
            return _unwrap(members[0])[0], nullable
        return annotation, nullable
    return annotation, False


def _native(annotation: Any) -> pa.DataType | None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal and all(isinstance(value, str) for value in arguments):
        return pa.string()
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis and _unwrap(arguments[0]) == (str, False):
        return pa.list_(pa.string())
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return pa.string()
    return _SCALARS.get(annotation)
