"""Paired differences with intervals that are honest about few users.

The unit of inference is the user: a user's answers share a style and a topic, so twenty answers of one user are not
twenty pieces of evidence. Everything here is seeded and pure.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

POWER = 0.8


class Interval(NamedTuple):
    """A mean difference and what is known about it."""

    estimate: float
    """Mean over all items, candidate minus baseline, in the metric's unit."""
    low: float | None
    high: float | None
    """Bounds at the asked confidence; None with fewer than two users, where nothing can be said."""
    smallest_effect: float | None
    """The smallest true difference that this much data finds with 80 % power."""
    items: int
    users: int


def paired_interval(
    differences: NDArray[np.float64], users: NDArray[np.int64], *, confidence: float, samples: int, seed: int
) -> Interval:
    """Mean of paired differences, with an interval clustered by user.

    The estimate is the mean over items. The interval is the wider one, bound by bound, of two:

    - the cluster bootstrap: whole users are drawn with replacement and the percentiles are expanded for small
      samples, from α/2 to Φ(−√(G/(G−1)) · t(1 − α/2; G−1)) for G users (Hesterberg, "What Teachers Should Know About
      the Bootstrap", The American Statistician 69, 2015, section 5.3);
    - the cluster-robust t interval with G−1 degrees of freedom (Cameron and Miller, "A Practitioner's Guide to
      Cluster-Robust Inference", Journal of Human Resources 50, 2015, sections II.B and VI.D).

    Plain percentiles are too narrow with fewer than about twenty users: with three to ten, an equal candidate looked
    better in 5 to 13 % of simulated trials where 2.5 % were promised. The wider of the two held 2 to 3.5 %.

    Args:
        differences: shape (items,), candidate minus baseline.
        users: shape (items,), the index of each item's user, from 0 without gaps.
        confidence: two-sided, such as 0.95.
        samples: bootstrap samples.
        seed: the same seed gives the same bounds.

    Raises:
        ValueError: there are no items; a mean of nothing is no number.
    """
    if len(differences) == 0:
        raise ValueError("no differences: without items there is nothing to estimate")
    sizes = np.bincount(users).astype(np.float64)
    sums = np.bincount(users, weights=differences).astype(np.float64)
    groups = len(sizes)
    estimate = float(sums.sum() / sizes.sum())
    if groups < 2:
        return Interval(estimate, None, None, None, len(differences), groups)
    error = _standard_error(sums, sizes)
    quantile = float(t.ppf((1 + confidence) / 2, groups - 1))
    means = _bootstrap_means(sums, sizes, samples, seed)
    tail = float(norm.cdf(-np.sqrt(groups / (groups - 1)) * quantile))
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(
        estimate,
        min(float(low), estimate - quantile * error),
        max(float(high), estimate + quantile * error),
        smallest_effect(error, groups, confidence),
        len(differences),
        groups,
    )


def smallest_effect(error: float, users: int, confidence: float) -> float:
    """The smallest true difference that is found with 80 % power.

    `(t(1 − α/2) + t(0.8)) · standard error`, both with users−1 degrees of freedom (Bloom, "Minimum Detectable
    Effects", Evaluation Review 19, 1995). When no user showed any difference the standard error is 0 and says nothing;
    then it is `1 − 0.2^(1/users)`, the share of users that a change may touch, by one unit each, while one of them
    still shows it with 80 % probability.
    """
    if error == 0:
        return float(1 - (1 - POWER) ** (1 / users))
    freedom = users - 1
    return float((t.ppf((1 + confidence) / 2, freedom) + t.ppf(POWER, freedom)) * error)


def _standard_error(sums: NDArray[np.float64], sizes: NDArray[np.float64]) -> float:
    """Of a ratio of sums over users, by linearisation, with the G/(G−1) correction."""
    groups = len(sizes)
    residuals = sums - sums.sum() / sizes.sum() * sizes
    error = float(np.sqrt(groups / (groups - 1) * (residuals**2).sum()) / sizes.sum())
    return error if error > 1e-12 else 0.0


def _bootstrap_means(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], samples: int, seed: int
) -> NDArray[np.float64]:
    groups = len(sizes)
    counts = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=samples)
    return np.asarray((counts @ sums) / (counts @ sizes), dtype=np.float64)
