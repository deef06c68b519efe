"""A training that starts wrong, explodes or ends babbling has failed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import TrainingError
from pipeline.records import Method
from pipeline.train.checks import AnswerCheck, LossWatch, check_bos

AT_REFERENCE = {"loss": 2.0, "rewards/margins": 0.0, "rewards/chosen": 0.0}


@pytest.mark.parametrize(("name", "value"), [("loss", math.nan), ("loss", math.inf), ("grad_norm", math.nan)])
def test_what_is_not_finite_stops_the_training_at_once(name, value):
    watch = LossWatch(Method.SFT, 1e-3)
    watch.see(1, {"loss": 2.0, "grad_norm": 1.0})
    with pytest.raises(TrainingError, match=f"{name} is .* at step 2"):
        watch.see(2, {"loss": 2.0, "grad_norm": 1.0, name: value})


def test_dpo_must_start_at_its_reference():
    LossWatch(Method.DPO, 1e-3).see(1, AT_REFERENCE)
    for wrong in ({"rewards/margins": -0.16}, {"rewards/chosen": 0.5}):
        with pytest.raises(TrainingError, match="instead of ln 2"):
            LossWatch(Method.DPO, 1e-3).see(1, AT_REFERENCE | wrong)


def test_only_the_first_step_stands_at_the_reference():
    watch = LossWatch(Method.DPO, 1e-3)
    watch.see(1, AT_REFERENCE)
    watch.see(2, AT_REFERENCE | {"rewards/margins": 3.0, "rewards/chosen": 1.0})


def test_a_loss_that_rises_and_stays_up_diverges():
    watch = LossWatch(Method.SFT, 1e-3)
    for step in range(1, 16):
        watch.see(step, {"loss": 2.0 if step < 9 else 9.0})
    with pytest.raises(TrainingError, match="from 2 to 9 by step 16: training diverges"):
        watch.see(16, {"loss": 9.0})


@given(st.lists(st.floats(min_value=0, max_value=4), min_size=1, max_size=60))
def test_a_noisy_loss_that_falls_passes(noise):
    watch = LossWatch(Method.SFT, 1e-3)
    for step, extra in enumerate(noise):
        watch.see(step, {"loss": 4.0 + extra})
    assert 4.0 <= watch.summary()["loss_last"] <= 8.0


def test_one_beginning_of_sequence_is_enough():
    check_bos([[1, 5, 1, 6], [5], []], bos_id=1)
    check_bos([[1, 1]], bos_id=None)
    with pytest.raises(TrainingError, match="row 1 begins with two"):
        check_bos([[1, 5], [1, 1, 5]], bos_id=1)


def test_chosen_answers_that_are_unlearned_stop_the_training():
    watch = LossWatch(Method.DPO, 1e-3, lowest_reward=-4.0)
    watch.see(1, AT_REFERENCE)
    for step in range(2, 9):  # the margin grows all the while
        watch.see(step, {"loss": 0.1, "rewards/margins": 2.0 * step, "rewards/chosen": -6.0 if step < 8 else 20.0})
    for step in range(9, 16):
        watch.see(step, {"loss": 0.1, "rewards/margins": 30.0, "rewards/chosen": -4.1})
    with pytest.raises(TrainingError, match=r"reward fell to -4.1 by step 16: .*unlearns"):
        watch.see(16, {"loss": 0.1, "rewards/margins": 30.0, "rewards/chosen": -4.1})


CHECK = AnswerCheck.of([[1] * 3, [1] * 21])


def test_most_answers_must_end_by_themselves():
    assert (CHECK.limit, CHECK.taught) == (58, 12)
    ends, runs = [5, 5, 2], [5] * 58
    assert CHECK.judge([ends, ends, ends, runs], {2})["answer_tokens_taught"] == 12
    with pytest.raises(TrainingError, match="only 2 of 4 answers end within 58"):
        CHECK.judge([ends, runs, ends, runs], {2})


def test_answers_many_times_longer_than_taught_are_refused():
    short = AnswerCheck.of([[1] * 4] * 99 + [[1] * 60])
    short.judge([[5] * 30 + [2]], {2})
    with pytest.raises(TrainingError, match="lengths explode"):
        short.judge([[5] * 59 + [2]], {2})
