"""Texts as sets of shingles: runs of three units, hashed to 32 bits.

A unit is a word, or one character where the script writes none of its words apart, so one rule fits Chinese, English
and both in one text. Width, case, script (traditional or simplified), spaces and sentence punctuation don't count.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from pipeline.clean.text import fold_script, repair_text, simplified

Hashes: TypeAlias = npt.NDArray[np.uint32]
Offsets: TypeAlias = npt.NDArray[np.int64]

UNITS = 3
_BREAK, _WORD, _SINGLE, _NOTHING = range(4)
_UNSPACED = (
    (0x0E00, 0x0F00),  # Thai, Lao
    (0x1000, 0x10A0),  # Burmese
    (0x1780, 0x1800),  # Khmer
    (0x3040, 0x3100),  # kana
    (0x31F0, 0x3200),
    (0x3400, 0xA000),  # Han
    (0xF900, 0xFB00),
    (0x20000, 0x40000),
)
_FORMS = ((0, 0x3400), (0xA000, 0xAC00), (0xF900, 0x20000), (0x2F800, 0x2FA20))
"""Where characters are that have another form; not those in between, which are Han, Hangul, surrogates, private."""
_MEANING = frozenset("%‰#@&*/\\_§")
"""Punctuation that says something."""
_INVISIBLE = (0xAD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_END_1, _END_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def shingle_hashes(texts: Sequence[str]) -> tuple[Hashes, Offsets]:
    """The shingles of each text in their order, repeated ones too; a text has at least one.

    Returns:
        All hashes one after the other, and where each text's begin (one more offset than texts).
    """
    points, starts = _points(texts)
    involved = _any_in_each(_table().involved[points], starts)
    if involved.any():
        texts = [_comparable(text) if rare else text for text, rare in zip(texts, involved, strict=True)]
        points, starts = _points(texts)
    hashes = np.empty(len(points) + len(texts), np.uint32)
    offsets = np.zeros(len(texts) + 1, np.int64)
    _fill(_table().plain[points], starts, _table().kinds, hashes, offsets)
    return hashes[: offsets[-1]], offsets


def _points(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], Offsets]:
    """Code points of all texts, and where each text begins."""
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=starts[1:])
    return np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32), starts


def _any_in_each(flags: npt.NDArray[np.bool_], starts: Offsets) -> npt.NDArray[np.bool_]:
    before = np.concatenate(([0], np.cumsum(flags)))
    found: npt.NDArray[np.bool_] = before[starts[1:]] > before[starts[:-1]]
    return found


def _comparable(text: str) -> str:
    return fold_script(unicodedata.normalize("NFKC", repair_text(text)).casefold())


@dataclass(frozen=True)
class _Table:
    """What is known of each code point."""

    plain: npt.NDArray[np.uint32]
    """Its comparable form, where that is one code point whatever stands beside it; else itself."""
    involved: npt.NDArray[np.bool_]
    """Where it is not: it joins with others, or becomes several."""
    kinds: npt.NDArray[np.uint8]
    """What it does to a text's units."""


@cache
def _table() -> _Table:
    plain = np.arange(0x110000, dtype=np.uint32)
    involved = np.zeros(0x110000, bool)
    involved[0xD800:0xE000] = True
    involved[0x1100:0x1200] = True  # the parts that Korean syllables are written with
    for code in (code for first, end in _FORMS for code in range(first, end)):
        form = _comparable(char := chr(code))
        if form != char:
            plain[code] = ord(form) if len(form) == 1 else code
        involved[code] |= len(form) != 1 or "M" in (unicodedata.category(char)[0], unicodedata.category(form)[0])
    for code, form in simplified().items():
        plain[code] = ord(form)
    return _Table(plain, involved, _kinds())


def _kinds() -> npt.NDArray[np.uint8]:
    kinds = np.full(0x110000, _BREAK, np.uint8)
    for code in range(0x20000):
        char = chr(code)
        category = unicodedata.category(char)[0]
        if category == "S" or char in _MEANING:
            kinds[code] = _SINGLE
        elif category not in "PZC":
            kinds[code] = _WORD
    for first, end in _UNSPACED:
        letters = kinds[first:end] == _WORD if end <= 0x20000 else np.ones(end - first, bool)
        kinds[first:end][letters] = _SINGLE
    kinds[list(_INVISIBLE)] = _NOTHING
    return kinds


@numba.njit(inline="always")
def _step(state, value):  # type: ignore[no-untyped-def]
    state = (state ^ value) * _MIX
    return state ^ (state >> np.uint64(29))


@numba.njit(inline="always")
def _finish(state):  # type: ignore[no-untyped-def]
    state = (state ^ (state >> np.uint64(33))) * _END_1
    state = (state ^ (state >> np.uint64(33))) * _END_2
    return state ^ (state >> np.uint64(33))


@numba.njit(cache=True, nogil=True)
def _units(points, kinds, units):  # type: ignore[no-untyped-def]
    """Fill in the hash of each unit; return how many there are."""
    count = 0
    word = np.uint64(0)
    inside = False
    for point in points:
        kind = kinds[point]
        if kind == _WORD:
            word = _step(word, np.uint64(point))
            inside = True
        elif kind != _NOTHING:
            if inside:
                units[count] = word
                count += 1
                word = np.uint64(0)
                inside = False
            if kind == _SINGLE:
                units[count] = _step(np.uint64(0), np.uint64(point))
                count += 1
    if inside:
        units[count] = word
        count += 1
    if count == 0:  # a text of nothing but punctuation is what it is
        for point in points:
            units[count] = _step(np.uint64(0), np.uint64(point))
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _fill(points, starts, kinds, hashes, offsets):  # type: ignore[no-untyped-def]
    longest = 0
    for text in range(len(starts) - 1):
        longest = max(longest, starts[text + 1] - starts[text])
    units = np.empty(longest + 1, np.uint64)
    end = 0
    for text in range(len(starts) - 1):
        count = _units(points[starts[text] : starts[text + 1]], kinds, units)
        for first in range(max(1, count - UNITS + 1)):
            state = np.uint64(0)
            for unit in range(first, min(first + UNITS, count)):
                state = _step(state, units[unit])
            hashes[end] = np.uint32(_finish(state))
            end += 1
        offsets[text + 1] = end
