"""The rollout's state machine and its guardrails: what leads to which step, and what may never happen."""

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.config import RolloutConfig
from pipeline.rollout.guardrails import GUARDRAILS, LATENCIES, ArmEvidence, check_step, unreported
from pipeline.rollout.ledger import Ledger
from pipeline.rollout.state import (
    Action,
    Canary,
    Paused,
    Steady,
    advance,
    canary_of,
    confirm,
    pause,
    previous_of,
    resume,
    return_to,
    roll_back,
    stable_of,
    start,
)
from tests.rollouts import NOW, STEADY, STEPS, seen

CONFIG = RolloutConfig(steps=STEPS)
NOTHING = ArmEvidence()


def an_arm(users: int, new_users: int | None = None, **rates: float) -> ArmEvidence:
    """An arm whose users all behave well, but for the first so many of them."""
    values = {name: _first(users, rates.get(name, 0.0)) for name in (*GUARDRAILS, "ttft_limit")}
    return ArmEvidence(users=users, requests=users, new_users=users if new_users is None else new_users, values=values)


def _first(users: int, share: float) -> tuple[float, ...]:
    bad = round(users * share)
    return (1.0,) * bad + (0.0,) * (users - bad)


def to_step(step: int) -> Canary:
    """A canary that went well up to this step."""
    canary = start(STEADY, 2, NOW, CONFIG, "anna")
    for _ in range(step):
        at = canary.step_started_at + timedelta(minutes=10)
        decision = advance(canary, seen(canary, an_arm(20), an_arm(20)), at, CONFIG)
        assert isinstance(decision.state, Canary)
        canary = decision.state
    return canary


def test_a_good_candidate_takes_every_step_and_leaves_its_predecessor_for_rollback() -> None:
    canary = to_step(4)
    assert [step.share for step in canary.history] == [0.05, 0.10, 0.30, 0.50]
    bake = seen(canary, an_arm(20), ArmEvidence())
    decision = advance(canary, bake, canary.step_started_at + timedelta(minutes=10), CONFIG)
    assert decision.action is Action.PROMOTE
    assert isinstance(decision.state, Steady)
    assert (decision.state.stable, decision.state.previous) == (2, 1)
    assert decision.state.last is not None
    assert decision.state.last.result == "promoted"
    assert len(decision.state.last.steps) == 5


@pytest.mark.parametrize(
    ("candidate", "control", "minutes", "said"),
    [
        (an_arm(19), an_arm(20), 10, "19 of 20 users in candidate"),
        (an_arm(20), an_arm(19), 10, "19 of 20 users in control"),
        (ArmEvidence(), ArmEvidence(), 10, "0 of 20 users in candidate"),
        (an_arm(20), an_arm(20), 9, "the step lasts until 2026-03-10T12:10:00+00:00"),
        (an_arm(9000, new_users=9000), an_arm(9000, new_users=7000), 10, "sample ratio"),
    ],
)
def test_a_step_that_lacks_something_holds_and_is_rolled_back_at_its_time_out(
    candidate: ArmEvidence, control: ArmEvidence, minutes: float, said: str
) -> None:
    canary = to_step(0)
    evidence = seen(canary, candidate, control)
    decision = advance(canary, evidence, NOW + timedelta(minutes=minutes), CONFIG)
    assert decision.action is Action.HOLD
    assert decision.state == canary
    assert said in decision.reason
    if minutes >= 10:
        late = advance(canary, evidence, NOW + timedelta(minutes=60), CONFIG)
        assert late.action is Action.ROLL_BACK
        assert "timed out" in late.reason


@pytest.mark.parametrize("metric", GUARDRAILS)
def test_each_guardrail_rolls_back_before_the_step_has_its_minimum_and_while_paused(metric: str) -> None:
    canary = to_step(1)
    evidence = seen(canary, an_arm(19, **{metric: 1.0}), an_arm(19))
    at = canary.step_started_at + timedelta(minutes=1)
    for state in (canary, pause(canary, "bo", at)):
        decision = advance(state, evidence, at, CONFIG)
        assert decision.action is Action.ROLL_BACK
        assert metric in decision.reason
        assert isinstance(decision.state, Steady)
        assert decision.state.stable == 1


def test_better_is_never_a_reason_to_roll_back() -> None:
    canary = to_step(0)
    worst = dict.fromkeys(GUARDRAILS, 1.0) | {"hard_failure": 0.0}
    decision = advance(canary, seen(canary, an_arm(20), an_arm(20, **worst)), NOW + timedelta(minutes=10), CONFIG)
    assert decision.action is Action.ADVANCE


def test_the_first_adapter_of_a_business_is_not_blamed_for_being_slower_than_the_bare_base() -> None:
    first = start(Steady(business="support"), 1, NOW, CONFIG, "anna")
    slower = seen(first, an_arm(20, **dict.fromkeys(LATENCIES, 1.0)), an_arm(20))
    assert advance(first, slower, NOW + timedelta(minutes=10), CONFIG).action is Action.ADVANCE
    too_slow = seen(first, an_arm(20, ttft_p90=1.0, ttft_limit=1.0), an_arm(20))
    assert advance(first, too_slow, NOW + timedelta(minutes=10), CONFIG).action is Action.ROLL_BACK


def test_the_last_step_is_judged_by_absolute_limits_without_a_control() -> None:
    canary = to_step(4)
    at = canary.step_started_at + timedelta(minutes=10)
    for metric, said in (("hard_failure", "hard_failure_limit"), ("ttft_limit", "ttft_limit")):
        decision = advance(canary, seen(canary, an_arm(20, **{metric: 0.9}), ArmEvidence()), at, CONFIG)
        assert decision.action is Action.ROLL_BACK
        assert said in decision.reason


def test_evidence_of_another_rollout_or_step_is_no_evidence() -> None:
    canary = to_step(1)
    at = canary.step_started_at + timedelta(minutes=10)
    good = seen(canary, an_arm(20), an_arm(20))
    for other in (
        good.model_copy(update={"salt": "another"}),
        good.model_copy(update={"since": NOW}),
        None,
    ):
        assert advance(canary, other, at, CONFIG).action is Action.HOLD
    once = advance(canary, good, at, CONFIG)
    again = advance(once.state, good, at, CONFIG)
    assert once.action is Action.ADVANCE
    assert again.state == once.state


def test_a_pause_does_not_count_towards_the_time_out() -> None:
    canary = to_step(0)
    paused = pause(canary, "bo", NOW + timedelta(minutes=50))
    assert advance(paused, None, NOW + timedelta(days=3), CONFIG).state == paused
    resumed = resume(paused, NOW + timedelta(days=3))
    assert isinstance(resumed, Canary)
    assert resumed.deadline == NOW + timedelta(days=3, minutes=10)
    assert resume(resumed, NOW) == resumed


def test_a_promotion_is_undone_once_and_never_back_to_what_was_left() -> None:
    canary = to_step(4)
    promoted = advance(
        canary, seen(canary, an_arm(20), ArmEvidence()), canary.step_started_at + timedelta(minutes=10), CONFIG
    ).state
    undone = roll_back(promoted, "bo", "complaints", NOW)
    assert (undone.stable, undone.previous) == (1, None)
    assert undone.last is not None
    assert (undone.last.version, undone.last.result, len(undone.last.steps)) == (2, "rolled_back", 5)
    assert roll_back(undone, "bo", "clicked twice", NOW) == undone


def test_a_candidate_that_is_in_service_cannot_be_written() -> None:
    with pytest.raises(ValidationError, match="already in service"):
        start(STEADY, 1, NOW, CONFIG, "anna")


def test_a_person_passes_over_time_and_users_and_over_nothing_else() -> None:
    canary = to_step(0)
    few = seen(canary, an_arm(3), an_arm(2))
    decision = confirm(canary, few, NOW, CONFIG, "a quiet week")
    assert decision.action is Action.ADVANCE
    assert decision.reason == (
        "a quiet week (confirmed although insufficient data: 3 of 20 users in candidate, 2 of 20 users in control)"
    )
    enough = confirm(canary, seen(canary, an_arm(20), an_arm(20)), NOW + timedelta(minutes=10), CONFIG, "go")
    assert enough.reason == "go (confirmed with all that it needed)"
    for state, evidence, at, said in (
        (canary, seen(canary, an_arm(19, hard_failure=1.0), an_arm(19)), NOW, "about to be rolled back: worse"),
        (canary, few, NOW + timedelta(minutes=60), "about to be rolled back: the step of 5% timed out"),
        (canary, few.model_copy(update={"misassigned": 1}), NOW, "assignment: 1 request"),
        (canary, few.model_copy(update={"served": False}), NOW, "no engine is proven"),
        (pause(canary, "bo", NOW), few, NOW, "it is paused by bo"),
        (STEADY, None, NOW, "no canary is under way"),
    ):
        held = confirm(state, evidence, at, CONFIG, "go")
        assert (held.action, held.state) == (Action.HOLD, state)
        assert said in held.reason


def test_a_person_who_confirms_while_the_clock_is_set_back_does_not_count_the_last_step_s_users_twice() -> None:
    canary = to_step(1)
    decision = confirm(canary, None, canary.step_started_at - timedelta(hours=5), CONFIG, "go")
    assert isinstance(decision.state, Canary)
    assert decision.state.step_started_at == canary.step_started_at


@pytest.mark.parametrize(
    ("users", "with_value", "held"), [(2, 0, False), (3, 1, False), (20, 4, True), (20, 11, False)]
)
def test_a_few_users_who_happen_to_have_no_value_hold_nothing(users: int, with_value: int, held: bool) -> None:
    canary = to_step(0)
    candidate = an_arm(users)
    values = dict(candidate.values) | {"tpot_p50": (0.0,) * with_value}
    evidence = seen(canary, candidate.model_copy(update={"values": values}), an_arm(20))
    assert unreported(evidence) == (("tpot_p50",) if held else ())


def test_engines_that_report_nothing_hold_the_step_and_it_times_out() -> None:
    canary = to_step(0)
    silent = {name: values for name, values in an_arm(20).values.items() if name != "output_length"}
    candidate = an_arm(20).model_copy(update={"values": silent})
    evidence = seen(canary, candidate, an_arm(20))
    decision = advance(canary, evidence, NOW + timedelta(minutes=10), CONFIG)
    assert decision.action is Action.HOLD
    assert "tell nothing of output_length" in decision.reason
    assert advance(canary, evidence, NOW + timedelta(minutes=60), CONFIG).action is Action.ROLL_BACK
    assert confirm(canary, evidence, NOW, CONFIG, "go").action is Action.HOLD
    rare = an_arm(20).model_copy(update={"values": silent | {"output_length": (0.0,) * 9}})
    assert advance(canary, seen(canary, candidate, rare), NOW + timedelta(minutes=10), CONFIG).action is Action.ADVANCE


def test_a_candidate_that_no_engine_serves_any_more_is_not_promoted() -> None:
    canary = to_step(4)
    evidence = seen(canary, an_arm(20), ArmEvidence()).model_copy(update={"served": False})
    assert advance(canary, evidence, canary.step_started_at + timedelta(minutes=10), CONFIG).action is Action.HOLD
    assert advance(canary, evidence, canary.deadline, CONFIG).action is Action.ROLL_BACK


def test_a_clock_that_is_set_back_during_a_pause_does_not_bring_the_time_out_nearer() -> None:
    canary = to_step(0)
    resumed = resume(pause(canary, "bo", NOW), NOW - timedelta(hours=3))
    assert resumed == canary


@dataclass(frozen=True)
class Move:
    """One thing that happens to a rollout."""

    kind: str
    minutes: int
    """Since the move before; negative when the clock is set back."""
    candidate: ArmEvidence = NOTHING
    control: ArmEvidence = NOTHING


rates = st.dictionaries(st.sampled_from(GUARDRAILS), st.sampled_from([0.0, 0.1, 0.9]), max_size=2)
arms = st.builds(lambda users, rates: an_arm(users, **rates), st.integers(0, 40), rates)
moves = st.one_of(
    st.builds(Move, st.just("look"), st.integers(-90, 90), arms, arms),
    st.builds(Move, st.sampled_from(["look", "pause", "resume", "start"]), st.integers(-90, 90)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(moves, max_size=25))
def test_whatever_happens_no_step_is_skipped_nothing_passes_without_evidence_and_rollback_is_always_there(
    happenings: list[Move],
) -> None:
    state: Steady | Canary | Paused = STEADY
    now, version = NOW, 1
    for move in happenings:
        now += timedelta(minutes=move.minutes)
        before = state
        canary = canary_of(before)
        match move.kind:
            case "start" if isinstance(before, Steady):
                version += 1
                state = start(before, version, now, CONFIG, "anna")
            case "pause":
                state = pause(before, "bo", now)
            case "resume":
                state = resume(before, now)
            case "look":
                evidence = seen(canary, move.candidate, move.control) if canary else None
                decision = advance(before, evidence, now, CONFIG)
                assert decision == advance(before, evidence, now, CONFIG)
                state = decision.state
                if decision.action in (Action.ADVANCE, Action.PROMOTE):
                    assert isinstance(before, Canary)
                    assert move.candidate.users >= 20
                    assert move.control.users >= 20 or before.step == 4
                    assert now >= before.step_started_at + timedelta(minutes=10)
                if decision.action is Action.ADVANCE:
                    assert isinstance(state, Canary)
                    assert isinstance(before, Canary)
                    assert state.step == before.step + 1
                if decision.action is Action.PROMOTE:
                    assert isinstance(before, Canary)
                    assert (before.step, stable_of(state)) == (4, before.candidate)
                if decision.action is Action.HOLD:
                    assert state == before
        stored = Ledger(state=state).model_dump_json()
        assert Ledger.model_validate_json(stored).state == state  # a process that is killed here goes on with the same
        if stable_of(state) != stable_of(before):
            assert move.kind == "look"
        if canary_of(state):
            undone = roll_back(state, "bo", "why not", now)
            assert (undone.stable, undone.previous) == (stable_of(state), previous_of(state))
            assert roll_back(undone, "bo", "again", now) == undone
            assert return_to(state, 77, "bo", "far back", now).stable == 77


def test_users_in_an_arm_they_were_not_drawn_for_hold_the_step_and_blame_nobody() -> None:
    canary = to_step(0)
    evidence = seen(canary, an_arm(20), an_arm(20)).model_copy(update={"misassigned": 3})
    decision = advance(canary, evidence, NOW + timedelta(minutes=10), CONFIG)
    assert decision.action is Action.HOLD
    assert "3 requests came from users who were not drawn for their arm" in decision.reason
    assert advance(canary, evidence, NOW + timedelta(minutes=60), CONFIG).action is Action.ROLL_BACK


def test_a_metric_without_data_is_neither_passed_nor_failed() -> None:
    canary = to_step(0)
    checks = check_step(seen(canary, ArmEvidence(), ArmEvidence()), CONFIG.steps[0], CONFIG, control_is_base=False)
    assert {check.passed for check in checks} == {None}
