"""MinHash signatures of many texts at once, equal to datasketch's (scheme affine32) value for value."""

from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numba
import numpy as np
import numpy.typing as npt
from datasketch import MinHash

from pipeline.clean.near.shingles import shingle_hashes

Signatures: TypeAlias = npt.NDArray[np.uint32]
"""(texts, permutations)."""

SCHEME = "datasketch affine32, seed 1, 3 units, form 1"
"""Signatures compare only with those of the same scheme; `form` counts the ways in which texts were ever folded and cut
into units."""


def signatures(texts: Sequence[str], permutations: int) -> Signatures:
    """What `datasketch.MinHash(num_perm=permutations)` has of each text's shingle hashes."""
    hashes, offsets = shingle_hashes(texts)
    factors, summands = _affine(permutations)
    made = np.full((len(texts), permutations), 0xFFFFFFFF, np.uint32)
    _fill(hashes, offsets, factors, summands, made)
    return made


@cache
def _affine(permutations: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    factors, summands = MinHash(num_perm=permutations, seed=1, scheme="affine32").permutations
    return np.ascontiguousarray(factors), np.ascontiguousarray(summands)


@numba.njit(cache=True, nogil=True)
def _fill(hashes, offsets, factors, summands, made):  # type: ignore[no-untyped-def]
    for text in range(len(offsets) - 1):
        row = made[text]
        for at in range(offsets[text], offsets[text + 1]):
            value = hashes[at]
            value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
            value = np.uint32((value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
            value ^= value >> np.uint32(16)
            for number in range(len(factors)):
                row[number] = min(row[number], np.uint32(factors[number] * value + summands[number]))
