"""One JSON document of any size, cut into its objects: an array of them, an object that holds such an array, or a few
documents one behind the other.

Only brackets and strings are looked at, to find where an object ends; Python's own parser reads each one. So an object
that is wrong costs that object, its line is known, and neither deep nesting nor long numbers can hurt. (A streaming
parser stops at the first mistake for good, forgets what it had read in the same block, and cannot name the line.)
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pipeline.collect.importers.elements import MAX_LINE, Elements, as_object, not_encoded
from pipeline.collect.importers.refusal import Refusal, RefusalReason
from pipeline.collect.importers.source import Source

_BLOCK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(rb'[^"\[\]{}]*+(' + _STRING + rb"|[\[\]{}])", re.DOTALL)
_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[\]{}])", re.DOTALL)


def json_document(source: Source, part: str | None, inside: tuple[str, ...]) -> Elements:
    """The objects of a JSON document, each at its number and line.

    Args:
        inside: keys under which a list of objects may stand; without any of them the document itself is the object.
    """
    names = inside if inside and _holds_one(source, part, inside) else ()
    with source.open(part) as file:
        for number, piece in enumerate(_Splitter(file, names).pieces(), 1):
            place = f"item {number} (line {piece.line})"
            if piece.fault is not None:
                yield Refusal(place, piece.fault, piece.detail)
                continue
            try:
                text = piece.text.decode(source.encoding or "utf-8")
            except UnicodeDecodeError:
                yield Refusal(place, RefusalReason.NOT_UTF8, not_encoded(source))
            else:
                yield as_object(source, place, text)


def _holds_one(source: Source, part: str | None, inside: tuple[str, ...]) -> bool:
    with source.open(part) as file:
        splitter = _Splitter(file, inside)
        next(splitter.pieces(), None)
        return splitter.found_list


@dataclass(frozen=True)
class _Piece:
    line: int
    text: bytes = b""
    fault: RefusalReason | None = None
    detail: str = ""


class _Splitter:
    """Finds objects `target` brackets deep: 0 for documents, 1 in an array, 2 in an array inside an object."""

    def __init__(self, file: BinaryIO, names: tuple[str, ...]) -> None:
        self._file = file
        self._names = frozenset(b'"%b"' % name.encode() for name in names)
        self._data = file.read(_BLOCK).removeprefix(_BOM)
        self._at = 0
        self._start = -1
        self._depth = 0
        self._target = 0
        self._name = b""
        self._line, self._counted = 1, 0
        self._too_long = False
        self.found_list = False
        """Whether one of the named lists has begun."""

    def pieces(self) -> Iterator[_Piece]:
        """Objects and faults, in their order."""
        while True:
            pattern = _BRACKET if self._start >= 0 or self._too_long else _TOKEN
            found = pattern.match(self._data, self._at)
            if found is not None:
                piece = self._take(found[1], found.start(1))
                if piece is not None:
                    yield piece
            elif len(self._data) - max(self._start, self._at, 0) > MAX_LINE and self._start < 0:
                yield self._fault(self._at, RefusalReason.TOO_LONG, "a text that does not end; the rest is left out")
                return
            elif not self._read_more():
                break
        rest = self._data[self._at :].strip(b" \t\r\n,")
        if self._start >= 0 or self._depth or self._too_long:
            at = self._start if self._start >= 0 else self._at
            yield self._fault(at, RefusalReason.CUT_SHORT, "the file ends inside it")
        elif rest:
            yield self._fault(self._at, RefusalReason.BAD_JSON, "no JSON")

    def _take(self, token: bytes, begin: int) -> _Piece | None:
        """Go past a token. A fault is told once for all that stands between two objects."""
        gap, self._at = self._data[self._at : begin], begin + len(token)
        outside = self._start < 0 and not self._too_long and self._depth == self._target
        stray = outside and bool(gap.strip(b" \t\r\n,"))
        if outside and token != b"{":
            return self._beside(token, begin, stray)
        if token[:1] == b'"':
            self._name = token if self._depth == 1 else b""
        elif token in b"[{":
            self._open(token, begin)
        else:
            return self._close(begin)
        return self._bare_value(begin) if stray else None

    def _beside(self, token: bytes, begin: int, stray: bool) -> _Piece | None:
        """A token where an object could begin, and none does."""
        if token in b"]}":
            too_many = self._depth == 0
            self._depth = max(0, self._depth - 1)
            self._target = 0 if self._depth == 0 else -1
            if too_many:
                return self._fault(begin, RefusalReason.BAD_JSON, "a bracket too many")
        elif token == b"[" and self._depth == 0:
            self._depth = self._target = 1
        elif token == b"[":
            self._start = begin
            self._depth += 1
        else:
            stray = True
        return self._bare_value(begin) if stray else None

    def _bare_value(self, at: int) -> _Piece:
        return self._fault(at, RefusalReason.WRONG_FORM, "a bare value instead of an object")

    def _open(self, token: bytes, begin: int) -> None:
        if self._depth == 0 and self._names and token == b"{":
            self._target = -1  # wait for one of the names
        elif self._depth == self._target and self._start < 0:
            self._start = begin
        elif self._depth == 1 and self._target == -1 and token == b"[" and self._name in self._names:
            self._target = 2
            self.found_list = True
        self._depth += 1

    def _close(self, begin: int) -> _Piece | None:
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._target == -1:
            self._target = 0
        if self._depth != self._target:
            return None
        start, self._start = self._start, -1
        if self._too_long:
            self._too_long = False
            return self._fault(begin, RefusalReason.TOO_LONG, f"an object of more than {MAX_LINE} bytes")
        return _Piece(self._line_of(start), self._data[start : self._at]) if start >= 0 else None

    def _read_more(self) -> bool:
        """Forget what is done, and read at least as much again: a long text is then looked at twice, not often."""
        if self._start >= 0 and len(self._data) - self._start > MAX_LINE:
            self._start, self._too_long = -1, True
        keep = self._start if self._start >= 0 else self._at
        self._line_of(keep)
        block = self._file.read(max(_BLOCK, len(self._data) - keep))
        self._data = self._data[keep:] + block
        self._at -= keep
        self._counted -= keep
        self._start = 0 if self._start >= 0 else -1
        return bool(block)

    def _line_of(self, at: int) -> int:
        """The line of a place; places come in rising order."""
        if at > self._counted:
            self._line += self._data.count(b"\n", self._counted, at)
            self._counted = at
        return self._line

    def _fault(self, at: int, reason: RefusalReason, detail: str) -> _Piece:
        return _Piece(self._line_of(at), fault=reason, detail=detail)
