"""From the times at which requests started and the times at which people asked, how long it took. Pure."""

from bisect import bisect_left
from collections.abc import Sequence


def first_after(starts: Sequence[float], asked: float) -> float | None:
    """Seconds until the first candidate request that started after somebody asked; None when there was none.

    Args:
        starts: of the candidate's requests, sorted, in seconds.
    """
    place = bisect_left(starts, asked)
    return starts[place] - asked if place < len(starts) else None


def last_until(starts: Sequence[float], asked: float, until: float) -> float:
    """Seconds until the last candidate request started that did so in [asked, until); 0 when there was none."""
    place = bisect_left(starts, until) - 1
    return max(0.0, starts[place] - asked) if place >= 0 else 0.0
