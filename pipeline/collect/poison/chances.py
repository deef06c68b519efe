"""The exact tail of chance, and how much votes of one user count when they resemble each other."""

from collections import Counter
from collections.abc import Collection

from scipy.special import betainc

_LEAST_LIKENESS = 0.3
"""Votes of one person are never taken as independent, however little can be learned from few of them."""


def binomial_tail(least: float, of: float, chance: float) -> float:
    """Probability of `least` or more successes of `of`; exact for whole numbers, continuous in between."""
    return 1.0 if least <= 0 else float(betainc(least, of - least + 1, chance))


def likeness(votes: Collection[Counter[int]], sign: int) -> float:
    """How alike the votes of one user are: the intra-class correlation by analysis of variance, in [0.3, 1].

    M. Ridout, C. Demétrio and D. Firth, "Estimating intraclass correlation for binary data", Biometrics 55, 1999.

    Args:
        votes: of each user, how often each sign.
        sign: the one that counts as success.
    """
    sizes = [own.total() for own in votes]
    total, users = sum(sizes), len(sizes)
    if users < 2 or total <= users:
        return _LEAST_LIKENESS
    mean = sum(own[sign] for own in votes) / total
    between = sum(n * (own[sign] / n - mean) ** 2 for n, own in zip(sizes, votes, strict=True)) / (users - 1)
    within = sum(own[sign] * (1 - own[sign] / n) for n, own in zip(sizes, votes, strict=True)) / (total - users)
    size = (total - sum(n * n for n in sizes) / total) / (users - 1)
    spread = between + (size - 1) * within
    return min(1.0, max(_LEAST_LIKENESS, (between - within) / spread)) if spread > 0 else _LEAST_LIKENESS


def design_effect(votes: Collection[Counter[int]], alike: float) -> float:
    """By how much votes that are alike within users count less than independent ones (L. Kish, "Survey Sampling",
    1965; for users with different numbers of votes)."""
    sizes = [own.total() for own in votes]
    return 1 + (sum(n * n for n in sizes) / sum(sizes) - 1) * alike
