"""Which phases a snapshot allows, how many steps they get, what is kept back, and what a row weighs."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import TrainingError
from pipeline.records import Method
from pipeline.train.plan import Phase, balanced_weights, count_steps, keep_back, plan_phases
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, SftRow, VoteRow

TAUGHT = SftRow([1, 2], [3, 9], 1.0, "u1")
LOOSE = SftRow([1, 2], [4, 9], 1.0, "u1")
PAIR = PairRow([1, 2], [3, 9], [5, 9], 1.0, "u1")
UP = VoteRow([1, 2], [3, 9], True, 1.0, "u1")
DOWN = VoteRow([1, 2], [5, 9], False, 1.0, "u1")


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


owners = st.lists(st.integers(0, 80).map("user-{}".format), min_size=200, max_size=400)


@given(owners=owners, share=st.floats(0.01, 0.5))
def test_what_is_kept_back_is_whole_users_and_nothing_is_lost(owners, share):
    rows = tuple(replace(LOOSE, owner=owner) for owner in owners)
    phase = keep_back(Phase(Method.SFT, rows), share)
    assert sorted(row.owner for row in (*phase.rows, *phase.validation)) == sorted(owners)
    assert not {row.owner for row in phase.rows} & {row.owner for row in phase.validation}
    assert phase.rows
    # Nobody changes sides when the business grows.
    more = keep_back(Phase(Method.SFT, (*rows, replace(LOOSE, owner="a new user"))), share)
    if phase.validation and more.validation:
        assert {row.owner for row in phase.validation} <= {row.owner for row in more.validation}


def test_about_the_share_is_kept_back_of_many_users_and_none_of_few():
    rows = tuple(replace(LOOSE, owner=f"user-{number}") for number in range(1000))
    assert 60 < len(keep_back(Phase(Method.SFT, rows), 0.1).validation) < 140
    assert keep_back(Phase(Method.SFT, rows), 0.0).validation == ()
    assert keep_back(Phase(Method.SFT, rows[:199]), 0.1).validation == ()


def test_kto_keeps_both_signs():
    votes = [replace(UP, owner=f"user-{number}") for number in range(300)]
    back = {row.owner for row in keep_back(Phase(Method.KTO, [*votes, replace(DOWN, owner="x")]), 0.1).validation}
    rare = replace(DOWN, owner=min(back))  # the only dislike is of a user who would be kept back
    assert keep_back(Phase(Method.KTO, [*votes, rare]), 0.1).validation == ()


weights = st.lists(st.floats(min_value=0.01, max_value=10), min_size=1, max_size=20)


@given(weights)
def test_weights_keep_their_ratios_and_have_a_mean_of_one(given_weights):
    found = balanced_weights([replace(LOOSE, weight=weight) for weight in given_weights])
    assert math.fsum(found) / len(found) == pytest.approx(1)
    for weight, scaled in zip(given_weights, found, strict=True):
        assert scaled / found[0] == pytest.approx(weight / given_weights[0])


def test_a_row_of_weight_zero_is_not_trained_on():
    nothing = replace(TAUGHT, weight=0.0)
    assert plan_phases(Recipe(), [nothing, LOOSE], [], []) == (Phase(Method.SFT, (LOOSE,)),)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_impossible_weights_are_refused(weight):
    with pytest.raises(TrainingError, match="row 1: weight"):
        plan_phases(Recipe(), [LOOSE, replace(TAUGHT, weight=weight)], [], [])
