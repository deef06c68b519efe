"""The search for near neighbours: bands propose, the whole signature sorts out, the exact Jaccard index decides.

A row is a tuple of texts, each of which must be near for the rows to be: a canned answer under different questions is
near to itself only. A band holds values of every text, so a long common text alone proposes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, sqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.clean.near.buckets import Given, band_hashes, first_come, near_any_of, pairs, sort_each
from pipeline.clean.near.shingles import shingle_hashes
from pipeline.clean.near.signatures import Signatures, signatures

Row: TypeAlias = Sequence[str]

_VALUES = 126
_MISSED = 0.003
"""Chance that two rows, each of whose texts is just near enough, share no band."""
_SURE = 5
"""Standard deviations by which two signatures may fall short of the threshold and still be looked at."""


@dataclass(frozen=True)
class Bands:
    """How a signature is cut for a threshold."""

    threshold: float
    values: int
    """In each band; the more, the fewer rows are proposed in vain."""

    @property
    def bands(self) -> int:
        return _VALUES // self.values

    @property
    def least(self) -> int:
        """Equal values of two signatures without which their rows are not compared."""
        values = self.bands * self.values
        spread = sqrt(values * self.threshold * (1 - self.threshold))
        return max(1, floor(values * self.threshold - _SURE * spread))

    @classmethod
    def at(cls, threshold: float) -> "Bands":
        """The bands that propose least and miss at most `_MISSED` of the pairs at the threshold."""
        fitting = (n for n in range(16, 0, -1) if (1 - threshold**n) ** (_VALUES // n) <= _MISSED)
        return cls(threshold, next(fitting))

    def shares(self, texts: int) -> list[int]:
        """How many values of a band each text of a row has. The first texts have the most."""
        return [len(range(text, self.values, texts)) for text in range(texts)]

    def signatures(self, rows: Sequence[Row]) -> Signatures:
        """One signature a row, its bands one after the other."""
        texts = len(rows[0]) if rows else 1
        parts = [
            signatures([row[text] for row in rows], self.bands * share).reshape(len(rows), self.bands, share)
            for text, share in enumerate(self.shares(texts))
            if share
        ]
        return np.ascontiguousarray(np.concatenate(parts, axis=2).reshape(len(rows), self.bands * self.values))


class Neighbours:
    """Rows among which neighbours are looked for.

    Args:
        rows: with as many texts each.
        signed: their signatures, as `bands.signatures` makes them.
        groups: only rows of one group are neighbours; all of them where it is None.
    """

    def __init__(
        self, rows: Sequence[Row], bands: Bands, signed: Signatures, groups: npt.NDArray[np.int64] | None = None
    ) -> None:
        count = len(rows)
        groups = np.zeros(count, np.int64) if groups is None else groups
        hashes = band_hashes(signed, groups, bands.values)
        buckets = np.empty((bands.bands, count), np.int32)
        shared = np.zeros(count, np.bool_)
        for band in range(bands.bands):
            _, buckets[band], sizes = np.unique(hashes[band], return_inverse=True, return_counts=True)
            shared |= sizes[buckets[band]] > 1
        sets, ends = _shingle_sets(rows, shared)
        self._given = Given(buckets, shared, groups, signed, bands.least, sets, ends, bands.threshold)

    def first_come(self, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Take rows in their order; a unit of rows gives way when each of its rows is near to one that was taken.

        Args:
            starts: of each unit's rows, and the number of rows at the end.

        Returns:
            For each row that gave way the first taken row that it is near to; -1 for a row that was taken.
        """
        return first_come(starts, self._given)  # type: ignore[no-any-return]

    def near_any_of(self, first: int) -> npt.NDArray[np.bool_]:
        """For each row behind the first so many, whether it is near to any of these."""
        return near_any_of(first, self._given)  # type: ignore[no-any-return]

    def pairs(self) -> npt.NDArray[np.int32]:
        """All pairs of near rows, sorted, the smaller place first: for small sets, as there may be many."""
        found: npt.NDArray[np.int32] = pairs(self._given)
        return found[np.lexsort((found[:, 1], found[:, 0]))]


def _shingle_sets(
    rows: Sequence[Row], wanted: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """`Given.sets` and `Given.ends`."""
    count = len(rows[0]) if rows else 1
    hashes, offsets = shingle_hashes([text for place in np.flatnonzero(wanted).tolist() for text in rows[place]])
    lengths = sort_each(hashes, offsets)
    ends = np.zeros((len(rows), count, 2), np.int64)
    ends[wanted, :, 0] = offsets[:-1].reshape(-1, count)
    ends[wanted, :, 1] = (offsets[:-1] + lengths).reshape(-1, count)
    return hashes, ends
