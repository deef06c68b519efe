"""A version in shadow: what its copies show, what that leads to, and that no user ever gets it."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.report import render_rollout_report
from evals.shadow import agreement, shadow_evidence
from pipeline.config import BusinessConfig, RolloutConfig, ShadowConfig
from pipeline.events.shadows import ShadowPair
from pipeline.gateway.routing import assign
from pipeline.records import Arm, RolloutReport, Target
from pipeline.rollout.guardrails import ArmEvidence, Evidence
from pipeline.rollout.routes import route_of
from pipeline.rollout.shadow import AGREEMENT
from pipeline.rollout.state import Action, Canary, advance, confirm, pause, start, step_evidence
from tests.builders import a_shadow, an_interaction
from tests.rollouts import NOW, STEADY

CONFIG = RolloutConfig(shadow=ShadowConfig(share=0.2, min_minutes=10, min_users=20, timeout_minutes=60))


def in_shadow() -> Canary:
    return start(STEADY, 2, NOW, CONFIG, "anna")


def seen(canary: Canary, users: int, failed: float = 0.0) -> Evidence:
    bad = round(users * failed)
    values = {"hard_failure": (1.0,) * bad + (0.0,) * (users - bad)}
    arm = ArmEvidence(users=users, requests=users, values=values)
    return Evidence(salt=canary.salt, since=canary.step_started_at, candidate=arm)


def later(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


@given(st.floats(0, 1, exclude_max=True))
def test_in_shadow_the_route_has_a_candidate_whom_nobody_gets(position: float) -> None:
    route = route_of(in_shadow(), CONFIG, lambda version: Target(model=f"m{version}", version=version, replicas=("x",)))
    assert (route.share, route.shadow) == (0.0, 0.2)
    assert route.candidate is not None
    assert assign(route, position).arm is Arm.STABLE


def test_it_goes_on_to_the_first_step_with_enough_users_and_time_and_under_the_same_salt() -> None:
    canary = in_shadow()
    for users, minutes, said in ((19, 10, "19 of 20 users in candidate"), (20, 9, "the step lasts until")):
        held = advance(canary, seen(canary, users), later(minutes), CONFIG)
        assert (held.action, held.state) == (Action.HOLD, canary)
        assert said in held.reason
    decision = advance(canary, seen(canary, 20), later(10), CONFIG)
    assert (decision.action, decision.reason) == (Action.ADVANCE, "shadow passed, on to 5%")
    assert isinstance(decision.state, Canary)
    assert (decision.state.in_shadow, decision.state.step, decision.state.salt) == (False, 0, canary.salt)
    assert [step.share for step in decision.state.history] == [0.0]


def test_with_a_single_step_the_shadow_is_no_promotion() -> None:
    config = CONFIG.model_copy(update={"steps": CONFIG.steps[-1:]})
    canary = start(STEADY, 2, NOW, config, "anna")
    decision = advance(canary, seen(canary, 20), later(10), config)
    assert decision.action is Action.ADVANCE
    assert isinstance(decision.state, Canary)


def test_without_evidence_it_holds_and_is_rolled_back_at_its_time_out() -> None:
    canary = in_shadow()
    assert advance(canary, None, later(59), CONFIG).action is Action.HOLD
    late = advance(canary, None, later(60), CONFIG)
    assert late.action is Action.ROLL_BACK
    assert "the shadow timed out: insufficient data" in late.reason


def test_hard_failures_roll_back_also_while_paused() -> None:
    canary = in_shadow()
    for state in (canary, pause(canary, "bo", NOW)):
        decision = advance(state, seen(canary, 19, failed=1.0), later(1), CONFIG)
        assert decision.action is Action.ROLL_BACK
        assert "hard_failure_limit" in decision.reason


def test_a_person_may_cut_it_short() -> None:
    canary = in_shadow()
    decision = confirm(canary, seen(canary, 3), later(1), CONFIG, "looks fine")
    assert decision.action is Action.ADVANCE
    assert "although insufficient data" in decision.reason


def test_a_shadow_that_left_the_configuration_still_ends() -> None:
    canary, config = in_shadow(), RolloutConfig()
    assert advance(canary, None, later(60), config).action is Action.ROLL_BACK


def pair(user: str, served: str, shadow: str | None, **fields: object) -> ShadowPair:
    name = f"i-{user}"
    return ShadowPair(
        an_interaction(name, user_key=user, answer=served, usage={"prompt_tokens": 1, "completion_tokens": 10}),
        a_shadow(name, answer=shadow, user_key=user, started_at=NOW, **fields),
    )


def test_pairs_become_evidence_of_each_user_once() -> None:
    refusal = "I'm sorry, but I can't help with that."
    pairs = [
        pair("u1", "By card.", "By card."),
        pair("u1", "By card.", None),
        pair("u2", refusal, "In cash.", usage={"prompt_tokens": 1, "completion_tokens": 16}),
        pair("u3", "By card.", refusal),
        pair("u4", "Of another rollout.", "So.", rollout_salt="r0"),
        pair("u5", "Of another version.", "So.", model_version="support-v1-aaaaaaaa"),
    ]
    evidence = shadow_evidence(pairs, salt="r1", candidate_model="support-v2-bbbbbbbb", since=NOW)
    assert (evidence.candidate.users, evidence.candidate.requests, evidence.control.users) == (3, 4, 0)
    assert evidence.candidate.values["hard_failure"] == (0.5, 0.0, 0.0)
    assert evidence.candidate.values["refusal"] == (0.0, 0.0, 1.0)
    assert evidence.control.values["refusal"] == (0.0, 1.0, 0.0)
    assert evidence.candidate.values["output_length"] == (1.0,)
    assert evidence.control.values["output_length"] == (0.0, 0.0, 0.0)
    assert evidence.candidate.values[AGREEMENT][0] == 1.0
    canary = in_shadow()
    told = step_evidence(canary, evidence, CONFIG)
    assert [(check.metric, check.role) for check in told.checks] == [
        ("hard_failure_limit", "guardrail"),
        (AGREEMENT, "information"),
        ("refusal", "information"),
        ("output_length", "information"),
    ]
    empty = shadow_evidence((), salt="r1", candidate_model="support-v2-bbbbbbbb", since=NOW)
    assert {check.passed for check in step_evidence(canary, empty, CONFIG).checks} == {None}


@given(st.text(), st.text())
def test_agreement_is_symmetric_and_whole_for_equal_texts(one: str, other: str) -> None:
    value = agreement(one, other)
    assert value == agreement(other, one)
    assert value is None or 0.0 <= value <= 1.0
    if one.strip():
        assert agreement(one, one) == pytest.approx(1.0)


def test_agreement_reads_chinese_and_widths() -> None:
    assert agreement("可以退款", "可以退款吗") == pytest.approx(6 / 7)
    assert agreement("ＡＢＣ", "ABC") == 1.0
    assert agreement("abc", "xyz") == 0.0


def test_its_page_says_that_nobody_sees_the_answers_and_what_is_needed() -> None:
    about = {"title": "Shop", "language": "en", "report_language": "en", "timezone": "UTC", "nightly": "0 2 * * *"}
    business = BusinessConfig.model_validate({"business": "support", "rollout": CONFIG, **about})
    canary = in_shadow()
    pairs = [pair("u1", "By card.", "In cash."), pair("u2", "By card.", "By card.")]
    evidence = shadow_evidence(pairs, salt="r1", candidate_model="support-v2-bbbbbbbb", since=NOW)
    report = RolloutReport(
        business="support",
        version=2,
        previous_version=1,
        state="canary",
        reason="insufficient data",
        started_at=NOW,
        steps=(step_evidence(canary, evidence, CONFIG),),
    )
    page = render_rollout_report(report, business=business, generated_at=NOW)
    for told in (
        "Version 2 is being tried unseen: no user gets its answers",
        "Copies of questions of 20 users are needed; there are those of 2 so far.",
        "The new version answered copies of questions of 2 users; nobody saw its answers",
        "Likeness to the answers that users got",
        "版本 2 正在后台试用，用户看不到其回答",
    ):
        assert told in page
