"""Statistics that stay valid however often one looks: pure arithmetic, on numbers or on arrays of looks.

`make bench-gate` looks after every request of thousands of canaries and measures how often these err.
"""

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

Looks = TypeVar("Looks", float, NDArray[np.float64])
"""One look, or many at once."""


def boundary(users: Looks, alpha: float, tuned_for: float) -> Looks:
    """How many standard errors a mean may lie above the truth, at any number of users, but for probability `alpha`.

    `sqrt(2 (nρ² + 1) / (nρ²) · ln(1 + sqrt(nρ² + 1) / (2α)))`, with ρ chosen so that it is about tightest at
    `tuned_for` users: the one-sided Gaussian-mixture boundary of an asymptotic confidence sequence (Waudby-Smith,
    Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence sequences", Annals
    of Statistics 52, 2024).
    """
    doubled = -2 * math.log(2 * alpha)
    mixed = users * ((doubled + math.log(doubled + 1)) / tuned_for)
    width: Looks = np.sqrt(2 * (mixed + 1) / mixed * np.log1p(np.sqrt(mixed + 1) / (2 * alpha)))
    return width


def mean_variance(users: Looks, total: Looks, squares: Looks) -> Looks:
    """Estimated variance of the mean of values in [0, 1], one a user.

    One user at 0 and one at 1 are imagined besides: a handful of equal values has variance 0, and would prove anything.

    Args:
        users: how many.
        total: sum of their values.
        squares: sum of the squares of their values.
    """
    counted = users + 2
    return ((squares + 1) - (total + 1) ** 2 / counted) / (counted - 1) / users


def detectable(standard_errors: float, rate: float, candidate: float, control: float) -> float:
    """How much worse a candidate must be to lie so many standard errors above the control.

    The candidate's variance is taken as it would be at that difference: of a rare event it grows with its rate, so that
    the variance of two equal arms would promise too much.

    Args:
        rate: of the control, in [0, 1].
        candidate: variance of its mean, while it is at about the control's rate.
        control: variance of its mean.
    """
    rate = min(max(rate, 1e-6), 1 - 1e-6)
    difference = 0.0
    for _ in range(20):  # a contraction: ten steps settle it to three digits
        moved = min(rate + difference, max(rate, 0.5))
        grown = candidate * moved * (1 - moved) / (rate * (1 - rate))
        difference = standard_errors * math.sqrt(grown + control)
    return difference


def sample_ratio_evidence(first: Looks, second: Looks) -> Looks:
    """ln of the e-value against "a new user is as likely in either arm".

    A mixture over all ratios, uniform (Lindon and Malek, "Anytime-Valid Inference for Multinomial Count Data",
    NeurIPS 2022). Exceeding ln(1/α) at any time happens with probability at most α when the arms are equally likely.
    """
    log_beta: Any = betaln(first + 1, second + 1)
    evidence: Looks = log_beta + (first + second) * math.log(2)
    return evidence
