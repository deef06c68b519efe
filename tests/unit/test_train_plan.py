"""Which phases a snapshot allows, how many steps they get, and in which order rows are seen."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import TrainingError
from pipeline.records import Method
from pipeline.train.plan import Phase, count_steps, draw_order, plan_phases
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, SftRow, VoteRow

TAUGHT = SftRow([1, 2], [3, 9], 1.0)
LOOSE = SftRow([1, 2], [4, 9], 1.0)
PAIR = PairRow([1, 2], [3, 9], [5, 9], 1.0)
UP = VoteRow([1, 2], [3, 9], True, 1.0)
DOWN = VoteRow([1, 2], [5, 9], False, 1.0)


@pytest.mark.parametrize(
    ("sft", "pairs", "votes", "expected"),
    [
        ([TAUGHT, LOOSE], [PAIR], [UP, DOWN], [(Method.SFT, (LOOSE,)), (Method.DPO, (PAIR,))]),
        ([TAUGHT], [PAIR], [], [(Method.DPO, (PAIR,))]),
        ([TAUGHT, LOOSE], [], [UP, DOWN], [(Method.SFT, (LOOSE,)), (Method.KTO, (UP, DOWN))]),
        ([TAUGHT, LOOSE], [], [UP], [(Method.SFT, (TAUGHT, LOOSE))]),
        ([LOOSE], [], [DOWN], [(Method.SFT, (LOOSE,))]),
        ([], [], [UP, DOWN], [(Method.KTO, (UP, DOWN))]),
    ],
)
def test_auto_uses_every_row_once(sft, pairs, votes, expected):
    phases = plan_phases(Recipe(), sft, pairs, votes)
    assert [(phase.method, phase.rows) for phase in phases] == expected


def test_a_named_method_takes_its_own_rows_only():
    everything = ([TAUGHT, LOOSE], [PAIR], [UP, DOWN])
    assert plan_phases(Recipe(method=Method.SFT), *everything) == (Phase(Method.SFT, (TAUGHT, LOOSE)),)
    assert plan_phases(Recipe(method=Method.DPO), *everything) == (Phase(Method.DPO, (PAIR,)),)
    assert plan_phases(Recipe(method=Method.KTO), *everything) == (Phase(Method.KTO, (UP, DOWN)),)


@pytest.mark.parametrize("votes", [[UP] * 40, [DOWN], []])
def test_kto_refuses_votes_of_one_sign(votes):
    with pytest.raises(TrainingError, match="one_class"):
        plan_phases(Recipe(method=Method.KTO), [], [], votes)


def test_nothing_to_train_on_says_what_to_do():
    with pytest.raises(TrainingError, match=r"has no rows .*max_length 1024; raise it"):
        plan_phases(Recipe(), [], [], [UP])


def phases_of(*sizes: int) -> list[Phase]:
    return [Phase(Method.SFT, (LOOSE,) * size) for size in sizes]


def test_steps_follow_epochs_or_are_shared_out():
    recipe = Recipe(batch_size=4, gradient_accumulation=2, epochs=1.5)
    assert count_steps(phases_of(40, 3), recipe) == (8, 1)
    assert count_steps(phases_of(40), recipe, processes=4) == (2,)
    assert count_steps(phases_of(30, 90), Recipe(max_steps=20)) == (5, 15)
    assert count_steps(phases_of(1, 999), Recipe(max_steps=20)) == (1, 20)


sizes = st.integers(min_value=1, max_value=30)


@given(size=sizes, passes=st.integers(min_value=1, max_value=3), seed=st.integers(min_value=0, max_value=99))
def test_equal_weights_show_every_row_once_a_pass(size, passes, seed):
    order = draw_order([0.3] * size, size * passes, seed)
    for begin in range(0, size * passes, size):
        assert sorted(order[begin : begin + size]) == list(range(size))


@given(
    weights=st.lists(st.floats(min_value=0.01, max_value=10), min_size=1, max_size=20),
    seed=st.integers(min_value=0, max_value=99),
)
def test_a_row_is_seen_as_often_as_its_weight_says(weights, seed):
    size = len(weights)
    order = draw_order(weights, size, seed)
    assert len(order) == size
    seen = Counter(order)
    for row, weight in enumerate(weights):
        due = weight * size / sum(weights)
        assert due - 1.001 < seen[row] < due + 1.001


def test_order_is_the_seeds_and_a_row_of_weight_zero_is_never_seen():
    weights = [1.0, 0.0, 2.0, 1.0, 1.0, 1.0]
    orders = [draw_order(weights, 60, seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert 1 not in orders[0]
    assert any(a > b for a, b in pairwise(orders[0]))


@pytest.mark.parametrize("weights", [[], [0.0], [1.0, -1.0], [float("nan")], [float("inf")]])
def test_impossible_weights_are_refused(weights):
    with pytest.raises(TrainingError, match="weights"):
        draw_order(weights, 4, 0)
