"""Arithmetic of the measurements. Pure."""

from collections.abc import Sequence
from math import ceil
from statistics import median


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank); 0 of nothing.

    Args:
        values: sorted.
    """
    if not values:
        return 0.0
    rank = ceil(round(share * len(values), 9))  # rounded: 0.07 * 100 is a little above 7
    return values[min(len(values), max(1, rank)) - 1]


def middle(values: Sequence[float | None]) -> float | None:
    """The median of what was measured."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def paired_ratio(over: Sequence[float | None], under: Sequence[float | None]) -> float | None:
    """The median of the ratios of each round: what slowed a whole round down falls out."""
    pairs = zip(over, under, strict=True)
    return middle([a / b if a is not None and b else None for a, b in pairs])


def paired_difference(ours: Sequence[float | None], base: Sequence[float | None]) -> float | None:
    """The median of the differences of each round."""
    pairs = zip(ours, base, strict=True)
    return middle([a - b if a is not None and b is not None else None for a, b in pairs])
