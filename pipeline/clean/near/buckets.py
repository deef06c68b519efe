"""The inner loops of the search, compiled: rows in the buckets of their bands, walked as linked lists."""

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt


class Given(NamedTuple):
    """What is known of the rows before the search begins."""

    buckets: npt.NDArray[np.int32]
    """(bands, rows): which bucket of the band a row is in."""
    shared: npt.NDArray[np.bool_]
    """(rows): whether it shares one with any other row."""
    groups: npt.NDArray[np.int64]
    """(rows): rows of different groups are never near."""
    signed: npt.NDArray[np.uint32]
    """(rows, values): signatures."""
    least: int
    """Equal values without which two rows are not compared."""
    sets: npt.NDArray[np.uint32]
    """Sorted distinct shingles of one text after the other."""
    ends: npt.NDArray[np.int64]
    """(rows, texts, 2): where those of a row's texts begin and end; filled in for shared rows only."""
    threshold: float


@numba.njit(cache=True, nogil=True)
def band_hashes(signed, groups, values):  # type: ignore[no-untyped-def]
    rows, width = signed.shape
    hashes = np.empty((width // values, rows), np.uint64)
    for row in range(rows):
        for band in range(width // values):
            state = np.uint64(groups[row])  # rows of other groups are seldom even proposed
            for at in range(band * values, (band + 1) * values):
                state = (state ^ np.uint64(signed[row, at])) * np.uint64(0x9E3779B97F4A7C15)
                state ^= state >> np.uint64(29)
            hashes[band, row] = state
    return hashes


@numba.njit(cache=True, nogil=True)
def sort_each(hashes, offsets):  # type: ignore[no-untyped-def]
    """Sort each text's hashes, distinct ones first; return how many of these there are."""
    lengths = np.empty(len(offsets) - 1, np.int64)
    for text in range(len(lengths)):
        own = hashes[offsets[text] : offsets[text + 1]]
        own.sort()
        count = 0
        for at in range(len(own)):
            if at == 0 or own[at] != own[count - 1]:
                own[count] = own[at]
                count += 1
        lengths[text] = count
    return lengths


@numba.njit(cache=True, nogil=True)
def _jaccard(sets, one, other):  # type: ignore[no-untyped-def]
    left, right, shared = one[0], other[0], 0
    while left < one[1] and right < other[1]:
        if sets[left] == sets[right]:
            shared += 1
            left += 1
            right += 1
        elif sets[left] < sets[right]:
            left += 1
        else:
            right += 1
    return shared / (one[1] - one[0] + other[1] - other[0] - shared)


@numba.njit(cache=True, nogil=True)
def _near(one, other, given):  # type: ignore[no-untyped-def]
    if given.groups[one] != given.groups[other]:
        return False
    equal = 0
    for at in range(given.signed.shape[1]):
        equal += given.signed[one, at] == given.signed[other, at]
    if equal < given.least:
        return False
    for text in range(given.ends.shape[1]):
        if _jaccard(given.sets, given.ends[one, text], given.ends[other, text]) < given.threshold:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _nothing_stored(given):  # type: ignore[no-untyped-def]
    """Heads of the lists of stored rows by band and bucket, the next one of each, and for whom each was looked at."""
    return (
        np.full(given.buckets.shape, -1, np.int32),
        np.full(given.buckets.shape, -1, np.int32),
        np.full(len(given.signed), -1, np.int32),
    )


@numba.njit(cache=True, nogil=True)
def _store(row, stored, given):  # type: ignore[no-untyped-def]
    heads, following, _ = stored
    for band in range(len(given.buckets)):
        bucket = given.buckets[band, row]
        following[band, row] = heads[band, bucket]
        heads[band, bucket] = row


@numba.njit(cache=True, nogil=True)
def _first_near(row, stored, given):  # type: ignore[no-untyped-def]
    """The first of the stored rows that is near to a row; -1 when none is."""
    heads, following, seen = stored
    first = -1
    for band in range(len(given.buckets)):
        other = heads[band, given.buckets[band, row]]
        while other >= 0:
            if (first < 0 or other < first) and seen[other] != row:
                seen[other] = row
                if _near(row, other, given):
                    first = other
            other = following[band, other]
    return first


@numba.njit(cache=True, nogil=True)
def first_come(starts, given):  # type: ignore[no-untyped-def]
    """See `Neighbours.first_come`."""
    stored = _nothing_stored(given)
    nearest = np.full(len(given.signed), -1, np.int32)
    for unit in range(len(starts) - 1):
        gives_way = True
        for row in range(starts[unit], starts[unit + 1]):
            if given.shared[row]:
                nearest[row] = _first_near(row, stored, given)
            gives_way = gives_way and nearest[row] >= 0
        for row in range(starts[unit], starts[unit + 1]):
            if not gives_way:
                nearest[row] = -1
                if given.shared[row]:
                    _store(row, stored, given)
    return nearest


@numba.njit(cache=True, nogil=True)
def near_any_of(first, given):  # type: ignore[no-untyped-def]
    """See `Neighbours.near_any_of`."""
    stored = _nothing_stored(given)
    found = np.zeros(len(given.signed) - first, np.bool_)
    for row in range(len(given.signed)):
        if given.shared[row] and row < first:
            _store(row, stored, given)
        elif given.shared[row]:
            found[row - first] = _first_near(row, stored, given) >= 0
    return found


@numba.njit(cache=True, nogil=True)
def pairs(given):  # type: ignore[no-untyped-def]
    """See `Neighbours.pairs`; in no order."""
    stored = _nothing_stored(given)
    heads, following, seen = stored
    found = np.empty((1024, 2), np.int32)
    count = 0
    for row in range(len(given.signed)):
        for band in range(len(given.buckets) if given.shared[row] else 0):
            other = heads[band, given.buckets[band, row]]
            while other >= 0:
                if seen[other] != row:
                    seen[other] = row
                    if _near(row, other, given):
                        if count == len(found):
                            found = np.concatenate((found, np.empty_like(found)))
                        found[count, 0] = other
                        found[count, 1] = row
                        count += 1
                other = following[band, other]
        if given.shared[row]:
            _store(row, stored, given)
    return found[:count]
