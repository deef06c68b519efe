"""What a user of datasketch writes: one `MinHash` a text, one `MinHashLSH`, all at their defaults. And the truth."""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import scipy.sparse
from datasketch import MinHash, MinHashLSH

THRESHOLD = 0.8
_UNIT = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff_]+")


def shingles(text: str) -> set[bytes]:
    """Runs of three words or Chinese characters: the units of the search, written apart from it."""
    units = _UNIT.findall(unicodedata.normalize("NFKC", text).casefold())
    return {" ".join(units[at : at + 3]).encode() for at in range(max(1, len(units) - 2))}


def keep_first(texts: Sequence[str]) -> list[int]:
    """Places of the texts that no earlier kept one is proposed for."""
    index = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    kept = []
    for place, text in enumerate(texts):
        sketch = MinHash(num_perm=128)
        sketch.update_batch(list(shingles(text)))
        if not index.query(sketch):
            index.insert(place, sketch)
            kept.append(place)
    return kept


def proposed_pairs(texts: Sequence[str]) -> set[tuple[int, int]]:
    """All pairs that `MinHashLSH` proposes."""
    index = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    pairs: set[tuple[int, int]] = set()
    for place, text in enumerate(texts):
        sketch = MinHash(num_perm=128)
        sketch.update_batch(list(shingles(text)))
        pairs |= {(other, place) for other in index.query(sketch)}
        index.insert(place, sketch)
    return pairs


def true_pairs(texts: Sequence[str]) -> set[tuple[int, int]]:
    """All pairs whose shingles have a Jaccard index of at least the threshold, counted exactly."""
    sets = [shingles(text) for text in texts]
    numbers: dict[bytes, int] = {}
    columns = [numbers.setdefault(shingle, len(numbers)) for found in sets for shingle in found]
    sizes = np.array([len(found) for found in sets])
    ends = np.concatenate(([0], np.cumsum(sizes)))
    matrix = scipy.sparse.csr_array((np.ones(len(columns), np.int32), columns, ends), shape=(len(texts), len(numbers)))
    pairs: set[tuple[int, int]] = set()
    for first in range(0, len(texts), 500):
        shared = (matrix[first : first + 500] @ matrix.T).tocoo()
        rows, others = shared.row + first, shared.col
        near = shared.data >= THRESHOLD * (sizes[rows] + sizes[others] - shared.data)
        pairs |= {
            (one, other) for one, other in zip(rows[near].tolist(), others[near].tolist(), strict=True) if one < other
        }
    return pairs
