"""A/B tests: no ramp, one end, users who stay where they are, and intervals that hold however often one looks."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evals.report import render_rollout_report
from pipeline.config import BusinessConfig, RolloutConfig, ShadowConfig
from pipeline.gateway.routing import arm_now, assign, assignment_hash
from pipeline.records import Arm, RolloutReport, Target
from pipeline.rollout.ab import OUTCOMES, AbTest, check_ab
from pipeline.rollout.guardrails import ArmEvidence, Evidence
from pipeline.rollout.routes import route_of
from pipeline.rollout.state import (
    Action,
    Canary,
    Paused,
    Steady,
    advance,
    confirm,
    current_step,
    pause,
    resume,
    roll_back,
    stable_of,
    start,
)
from tests.rollouts import NOW, STEADY, seen

CONFIG = RolloutConfig(shadow=ShadowConfig())
AB = AbTest(share=0.5, until=NOW + timedelta(days=7))


def ab_test(share: float = 0.5) -> Canary:
    return start(STEADY, 2, NOW, CONFIG, "anna", AB.model_copy(update={"share": share}))


def arm(users: int, **rates: float) -> ArmEvidence:
    """Users whose first so many share a value of 1, all others having 0."""
    names = ("hard_failure", *OUTCOMES)
    values = {name: tuple(float(n < round(users * rates.get(name, 0.1))) for n in range(users)) for name in names}
    return ArmEvidence(users=users, requests=users, new_users=users, values=values | {"hard_failure": (0.0,) * users})


shares = st.floats(0.01, 0.5)
minutes = st.integers(-60, 60 * 24 * 14)
rates = st.dictionaries(st.sampled_from(OUTCOMES), st.sampled_from([0.0, 0.5, 1.0]), max_size=3)
arms = st.builds(lambda users, rates: arm(users, **rates), st.integers(0, 300), rates)


@given(shares, st.lists(st.tuples(st.sampled_from(["look", "pause", "resume"]), minutes, arms, arms), max_size=12))
def test_the_split_never_changes_and_whatever_users_say_it_ends_at_its_end_with_what_served_before(
    share: float, happenings: list[tuple[str, int, ArmEvidence, ArmEvidence]]
) -> None:
    canary = ab_test(share)
    state: Steady | Canary | Paused = canary
    for kind, after, candidate, control in happenings:
        now = NOW + timedelta(minutes=after)
        before = state
        if kind == "pause":
            state = pause(state, "bo", now)
        elif kind == "resume":
            state = resume(state, now)
        else:
            decision = advance(state, seen(canary, candidate, control), now, CONFIG)
            state = decision.state
            assert decision.action is (Action.END if now >= AB.until else Action.HOLD)
            assert decision.action is Action.END or state == before
        if isinstance(state, Steady):
            assert (state.stable, state.previous) == (1, None)
            assert state.last is not None
            assert (state.last.result, len(state.last.steps)) == ("ended", 1)
            return
        running = state.canary if isinstance(state, Paused) else state
        assert current_step(running, CONFIG).share == share
        assert (running.step, running.in_shadow, running.history) == (0, False, ())


@given(shares, st.text(min_size=1), st.lists(st.text(), min_size=1, max_size=5))
def test_a_user_stays_with_a_version_in_every_conversation(share: float, user: str, sessions: list[str]) -> None:
    user = user.encode("utf-8", "replace").decode()
    route = route_of(
        ab_test(share), CONFIG, lambda version: Target(model=f"m{version}", version=version, replicas=("x",))
    )
    position = assignment_hash(route.salt, user)
    given_arms = {assign(route, position).arm for _ in sessions}
    assert given_arms == {Arm.CANDIDATE if position < share else Arm.CONTROL if position >= 1 - share else Arm.STABLE}


def test_half_and_half_leaves_nobody_out_and_old_conversations_alone() -> None:
    route = route_of(ab_test(), CONFIG, lambda version: Target(model=f"m{version}", version=version, replicas=("x",)))
    assigned = [assign(route, assignment_hash(route.salt, f"user-{n}")) for n in range(20_000)]
    assert abs(sum(one.arm is Arm.CANDIDATE for one in assigned) / len(assigned) - 0.5) < 0.017  # 4.8 std. deviations
    assert {one.arm for one in assigned} == {Arm.CANDIDATE, Arm.CONTROL}
    assert arm_now(replace(assigned[0], salt="before"), route, candidate_barred=False) is Arm.STABLE
    assert route.shadow == 0.0


def test_hard_failures_still_break_it_off_and_bad_outcomes_do_not() -> None:
    canary = ab_test()
    worst = arm(500, outcome_failed=1.0, thumb_down=1.0, edit=1.0, regeneration=1.0, thumb_up=0.0)
    at = NOW + timedelta(hours=1)
    assert advance(canary, seen(canary, worst, arm(500)), at, CONFIG).action is Action.HOLD
    broken = arm(500).model_copy(update={"values": arm(500).values | {"hard_failure": (1.0,) * 500}})
    for state in (canary, pause(canary, "bo", at)):
        decision = advance(state, seen(canary, broken, arm(500)), at, CONFIG)
        assert decision.action is Action.ROLL_BACK
        assert "hard_failure" in decision.reason
        assert stable_of(decision.state) == 1


def test_a_person_ends_it_by_step_and_breaks_it_off_by_rollback() -> None:
    canary, at = ab_test(), NOW + timedelta(days=1)
    ended = confirm(canary, seen(canary, arm(30), arm(30)), at, CONFIG, "we know enough")
    assert (ended.action, ended.reason) == (Action.END, "we know enough")
    assert isinstance(ended.state, Steady)
    assert ended.state.last is not None
    assert ended.state.last.steps[0].is_ab
    broken_off = roll_back(canary, "bo", "complaints", at)
    assert broken_off.last is not None
    assert broken_off.last.result == "rolled_back"


def test_an_end_or_a_split_that_cannot_be_is_refused() -> None:
    for share in (0.0, 0.51, 1.0):
        with pytest.raises(ValidationError):
            AbTest(share=share, until=NOW)
    with pytest.raises(ValidationError):
        AbTest.model_validate({"share": 0.5, "until": "2026-03-10T12:00:00"})


def test_intervals_are_two_sided_and_cover_all_outcomes_at_once_however_often_one_looks() -> None:
    """Promised: at most 5 % of tests have any interval that misses the truth, at any of 20 looks."""
    rng = np.random.default_rng(0)
    wrong, tests, users = 0, 100, 400
    step = CONFIG.steps[-1].model_copy(update={"share": 0.5})
    for _ in range(tests):
        drawn = {name: rng.binomial(1, 0.2, (2, users)).astype(float) for name in OUTCOMES}
        missed = False
        for upto in range(20, users + 1, 20):
            candidate, control = (
                ArmEvidence(
                    users=upto, requests=upto, values={name: tuple(v[side, :upto]) for name, v in drawn.items()}
                )
                for side in (0, 1)
            )
            evidence = Evidence(salt="r", since=NOW, candidate=candidate, control=control)
            outcomes = [check for check in check_ab(evidence, step, CONFIG) if check.metric in OUTCOMES]
            assert {check.role for check in outcomes} == {"information"}
            missed |= any(not check.low <= 0.0 <= check.high for check in outcomes)  # type: ignore[operator]
        wrong += missed
    assert wrong <= tests * 0.05
    better = Evidence(salt="r", since=NOW, candidate=arm(400, thumb_up=0.6), control=arm(400, thumb_up=0.2))
    (thumb_up,) = [check for check in check_ab(better, step, CONFIG) if check.metric == "thumb_up"]
    assert thumb_up.low is not None
    assert thumb_up.low > 0.0


def test_its_page_says_what_users_did_and_names_no_step_to_come() -> None:
    business = BusinessConfig(
        business="support", title="Shop", language="en", report_language="en", timezone="UTC", nightly="0 2 * * *"
    )
    canary = ab_test(0.3)
    evidence = seen(canary, arm(400, thumb_up=0.6, edit=0.6), arm(400, thumb_up=0.2, edit=0.2))
    state = advance(canary, evidence, AB.until, CONFIG).state
    assert isinstance(state, Steady)
    assert state.last is not None
    report = RolloutReport(
        business="support",
        version=2,
        previous_version=1,
        state="ended",
        reason=state.last.reason,
        started_at=NOW,
        steps=state.last.steps,
    )
    page = render_rollout_report(report, business=business, generated_at=AB.until)
    for told in (
        "The A/B test of version 2 is over",
        "Thumbs up: better with the new version, and not by chance.",
        "Answers rewritten by users: worse with the new version, and not by chance.",
        "A/B test: 30% of users",
        "版本 2 的 A/B 测试已结束",
    ):
        assert told in page
    assert "Task not solved: " not in page.split("Step by step")[0]
    assert 'class="ahead"' not in page
    running = report.model_copy(update={"state": "canary"})
    page = render_rollout_report(running, business=business, generated_at=NOW)
    assert "Version 2 is compared in an A/B test with 30% of the users" in page
    assert "Thumbs up: better with the new version, and not by chance." in page
