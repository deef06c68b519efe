"""Intervals by user: honest with few users, the same for the same seed, and as powerful as they say."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evals.stats import POWER, Interval, chance_of_as_low, holm, paired_interval

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
Spread = Callable[[np.random.Generator, int], NDArray[np.float64]]


def interval(differences: NDArray[np.float64], users: NDArray[np.int64], seed: int = 0) -> Interval:
    return paired_interval(differences, users, confidence=0.95, samples=300, seed=seed)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Differences of two to eight users, each with at least one."""
    groups = draw(st.integers(2, 8))
    extra = draw(st.lists(st.integers(0, groups - 1), max_size=20))
    users = np.array([*range(groups), *extra])
    values = draw(st.lists(st.floats(-1, 1, width=32), min_size=len(users), max_size=len(users)))
    return np.array(values, dtype=np.float64), users


@settings(deadline=None)
@given(rows())
def test_each_user_counts_once_and_the_mean_lies_between_its_bounds(sample: Rows) -> None:
    differences, users = sample
    found = interval(differences, users)
    assert found.estimate == pytest.approx(np.mean([differences[users == user].mean() for user in set(users)]))
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.estimate + 1e-9
    assert found.high >= found.estimate - 1e-9


@settings(deadline=None)
@given(rows())
def test_swapping_the_sides_mirrors_the_interval(sample: Rows) -> None:
    found, mirrored = interval(*sample), interval(-sample[0], sample[1])
    assert found.low is not None
    assert mirrored.high is not None
    # The bootstrap draws the same users, so even its percentiles mirror.
    assert mirrored.high == pytest.approx(-found.low, abs=1e-9)


def test_same_seed_same_bounds() -> None:
    rng = np.random.default_rng(1)
    differences, users = rng.normal(size=60), np.arange(60) % 12
    assert interval(differences, users, seed=5) == interval(differences, users, seed=5)


def test_many_answers_of_one_user_are_one_voice() -> None:
    """Repeating each user's answers tenfold adds no certainty."""
    rng = np.random.default_rng(2)
    differences, users = rng.normal(size=10), np.arange(10)
    once = interval(differences, users)
    tenfold = interval(np.tile(differences, 10), np.tile(users, 10))
    assert once.low is not None
    assert tenfold.low is not None
    assert tenfold.low == pytest.approx(once.low)


def test_one_user_has_no_interval() -> None:
    found = interval(np.array([0.5, 0.4]), np.array([0, 0]))
    assert (found.low, found.high, found.smallest_effect) == (None, None, None)


def test_no_items_are_no_estimate() -> None:
    with pytest.raises(ValueError, match="no differences"):
        interval(np.array([]), np.array([], dtype=np.int64))


def scores(rng: np.random.Generator, groups: int, effect: float) -> Rows:
    """Shares of four checks kept, with users who differ, minus the same of the other side plus an effect."""
    users = np.repeat(np.arange(groups), rng.integers(1, 6, size=groups))
    base = np.clip(0.5 + rng.normal(0, 0.2, size=groups), 0, 1)
    swing = rng.normal(0, 0.1, size=groups)
    before, after = np.clip(base - swing / 2, 0, 1), np.clip(base + swing / 2 + effect, 0, 1)
    return (rng.binomial(4, after[users]) - rng.binomial(4, before[users])) / 4, users


def test_one_busy_user_moves_nothing_beyond_their_own_voice() -> None:
    rng = np.random.default_rng(4)
    differences, users = rng.normal(size=12), np.arange(12)
    busy = interval(np.append(differences, [differences[0]] * 500), np.append(users, [0] * 500))
    assert busy[:4] == pytest.approx(interval(differences, users)[:4])


@pytest.mark.parametrize("groups", [3, 6, 12, 40])
def test_an_equal_side_rarely_looks_better(groups: int) -> None:
    rng = np.random.default_rng(groups)
    found = [interval(*scores(rng, groups, 0.0), seed=trial) for trial in range(400)]
    looks_better = np.mean([one.low is not None and one.low > 0 for one in found])
    assert looks_better <= 0.05


def test_a_minority_that_loses_much_is_not_averaged_away() -> None:
    """Nine in ten gain 0.1, the tenth loses 0.9: on average nothing. Student's t alone errs in about 7 % here."""
    rng = np.random.default_rng(5)
    found = [
        interval(np.where(rng.random(60) < 0.1, -0.9, 0.1) + rng.normal(0, 0.02, 60), np.arange(60), seed=trial)
        for trial in range(400)
    ]
    assert np.mean([one.low is not None and one.low > 0 for one in found]) <= 0.04


def test_holm_names_the_clearest_and_stops_at_the_first_that_may_be_chance() -> None:
    assert holm([0.03, 0.001, 0.02], 0.05) == [True, True, True]
    assert holm([0.04, 0.001, 0.03], 0.05) == [False, True, False]
    assert holm([], 0.05) == []


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.2))
def test_holm_names_no_more_than_single_tests_and_no_less_than_bonferroni(chances: list[float], alpha: float) -> None:
    named = holm(chances, alpha)
    for chance, one in zip(chances, named, strict=True):
        assert one <= (chance <= alpha)
        assert one >= (chance <= alpha / len(chances))


def test_the_chance_of_an_estimate_is_that_of_students_t() -> None:
    assert chance_of_as_low(0.0, 0.0, 1.0, 10) == pytest.approx(0.5)
    assert chance_of_as_low(-2.262, 0.0, 1.0, 10) == pytest.approx(0.025, abs=1e-4)
    assert (chance_of_as_low(-0.1, 0.0, 0.0, 10), chance_of_as_low(0.0, 0.0, 0.0, 10)) == (0.0, 1.0)


@pytest.mark.parametrize("spread", [lambda rng, n: rng.normal(0, 0.25, n), lambda rng, n: rng.exponential(0.25, n)])
def test_the_stated_effect_is_found_as_often_as_planned(spread: Spread) -> None:
    rng = np.random.default_rng(3)
    stated = np.median([interval(spread(rng, 30), np.arange(30)).smallest_effect for _ in range(100)])
    middle = spread(rng, 100_000).mean()
    found = [interval(spread(rng, 30) - middle + stated, np.arange(30), seed=trial) for trial in range(400)]
    # Of skewed scores more: the interval's wider side is counted, whichever side matters.
    assert np.mean([one.low is not None and one.low > 0 for one in found]) >= POWER - 0.05


def test_no_difference_at_all_is_not_taken_for_certainty() -> None:
    few, many = (interval(np.zeros(n), np.arange(n)) for n in (5, 200))
    assert (few.low, few.high) == (0, 0)
    assert few.smallest_effect == pytest.approx(1 - (1 - POWER) ** (1 / 5))
    assert many.smallest_effect is not None
    assert many.smallest_effect < 0.015
