"""Rows of a CSV or Parquet file as elements."""

import csv
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from pipeline.collect.importers.elements import Element, Elements, not_encoded
from pipeline.collect.importers.refusal import Refusal, RefusalReason
from pipeline.collect.importers.source import Source

csv.field_size_limit(16 * 1024 * 1024)
_ROWS = 256


def csv_rows(source: Source, part: str | None = None) -> Elements:
    """Rows by the names in the header; the place of a row is the line on which it begins.

    Separated by comma, semicolon or tab, whichever the header holds most of.
    """
    with source.open(part) as file:
        lines = _lines(file, source.encoding or "utf-8-sig")
        try:
            header = next(lines, "")
            delimiter = max(",;\t", key=header.count)
            names = next(csv.reader([header], delimiter=delimiter), [])
            if not any(name.strip() for name in names):
                return
            yield from _rows(csv.reader(lines, delimiter=delimiter, strict=True), [name.strip() for name in names])
        except UnicodeError:
            yield Refusal("file", RefusalReason.NOT_UTF8, not_encoded(source))


def _rows(reader: Any, names: list[str]) -> Elements:
    while True:
        line = reader.line_num + 2  # its first one, behind the header
        try:
            row = next(reader, None)
        except csv.Error as error:
            reason = RefusalReason.CUT_SHORT if "unexpected end" in str(error) else RefusalReason.BAD_ROW
            yield Refusal(f"line {line}", reason, str(error)[:100])
            if reason is RefusalReason.CUT_SHORT:
                return
            continue
        if row is None:
            return
        if not row:
            continue
        if len(row) != len(names):
            yield Refusal(f"line {line}", RefusalReason.BAD_ROW, f"{len(row)} fields under a header of {len(names)}")
        else:
            yield Element(f"line {line}", dict(zip(names, row, strict=True)))


def _lines(file: BinaryIO, encoding: str) -> Iterator[str]:
    with io.TextIOWrapper(file, encoding=encoding, errors="strict", newline="") as text:
        yield from text


def parquet_rows(source: Source) -> Elements:
    """Rows of a Parquet file, some hundreds at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(source.path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                for value in batch.to_pylist():
                    row += 1
                    yield Element(f"row {row}", value)
    except (pa.ArrowException, OSError) as error:
        yield Refusal(f"behind row {row}", RefusalReason.UNREADABLE, " ".join(str(error).split())[:100])
