"""A rollout, two gateways that hear of it late, and people who talk: whatever happens, in whatever order.

Each step plays one thing: a look at some evidence, a command, a clock that jumps, a process that is killed, a gateway
that polls, a turn of a conversation. The invariants are what users and the audit rely on.
"""

from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from pipeline.config import RolloutConfig, ShadowConfig
from pipeline.gateway.routing import Assignment, arm_now, assign, assignment_hash
from pipeline.records import Arm, Route, Target
from pipeline.rollout.ab import AbTest
from pipeline.rollout.guardrails import GUARDRAILS, ArmEvidence, Evidence
from pipeline.rollout.ledger import Ledger
from pipeline.rollout.routes import route_of
from pipeline.rollout.state import (
    Action,
    Canary,
    Paused,
    Steady,
    advance,
    canary_of,
    confirm,
    current_step,
    pause,
    resume,
    return_to,
    roll_back,
    stable_of,
    start,
)
from tests.rollouts import NOW, STEPS

CONFIGS = (RolloutConfig(steps=STEPS), RolloutConfig(steps=STEPS, shadow=ShadowConfig(min_minutes=10, min_users=20)))
USERS = 12
"""Each with two conversations."""


def an_arm(users: int, silent: str | None, worse: str | None) -> ArmEvidence:
    values = {name: (float(name == worse),) * users for name in GUARDRAILS if name != silent}
    return ArmEvidence(users=users, requests=users, new_users=users, values=values)


def seldom(something: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    return st.one_of(st.none(), st.none(), st.none(), something)


metrics = seldom(st.sampled_from(GUARDRAILS))
arms = st.builds(an_arm, st.sampled_from([20, 40, 40, 19, 0]), metrics, metrics)
good = st.just(an_arm(40, None, None))
evidence = {
    "minutes": st.sampled_from([11, 11, 9, 0, -20]),
    "candidate": st.one_of(good, arms),
    "control": st.one_of(good, arms),
    "served": st.sampled_from([True] * 5 + [False]),
    "strangers": st.sampled_from([0] * 5 + [3]),
}


class Rollout(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.config = CONFIGS[0]
        self.state: Steady | Canary | Paused = Steady(business="support", stable=1)
        self.now = NOW
        self.versions = 10
        self.tables = [self._table(), self._table()]
        self.assigned: dict[tuple[str, str], Assignment] = {}
        """Conversation and salt to the arm, as the gateways share it."""
        self.told: dict[tuple[str, str], Arm] = {}
        """Conversation and salt to the arm that answered its first turn with a candidate about."""
        self.candidates: dict[str, set[str]] = {}
        """Salt to users who were drawn for the candidate, in any of their conversations."""

    def _table(self) -> Route:
        return route_of(
            self.state, self.config, lambda v: Target(model=f"v{v}", version=v, replicas=("http://engine",))
        )

    def _evidence(self, candidate: ArmEvidence, control: ArmEvidence, served: bool, strangers: int) -> Evidence | None:
        canary = canary_of(self.state)
        if canary is None:
            return None
        return Evidence(
            salt=canary.salt,
            since=canary.step_started_at,
            candidate=candidate,
            control=control,
            served=served,
            misassigned=strangers,
        )

    @rule(minutes=st.sampled_from([-100_000, -90, -30, 30, 90, 100_000]))
    def clock_jumps(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @precondition(lambda self: isinstance(self.state, Steady))
    @rule(shadow=st.sampled_from([False, False, True]), share=st.sampled_from([None, None, None, None, 0.1, 0.5]))
    def begins(self, shadow: bool, share: float | None) -> None:
        assert isinstance(self.state, Steady)
        self.config = CONFIGS[shadow]
        self.versions += 1
        self.now += timedelta(microseconds=1)  # no two rollouts of one moment
        test = AbTest(share=share, until=self.now + timedelta(hours=1)) if share else None
        self.state = start(self.state, self.versions, self.now, self.config, "anna", test)

    @precondition(lambda self: isinstance(self.state, Canary))
    @rule()
    def paused(self) -> None:
        self.state = pause(self.state, "bo", self.now)

    @precondition(lambda self: isinstance(self.state, Paused))
    @rule(minutes=st.sampled_from([-90, 0, 30]))
    def resumed(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        before = canary_of(self.state)
        self.state = resume(self.state, self.now)
        after = canary_of(self.state)
        assert before is None or (after is not None and after.deadline >= before.deadline)

    @rule(to=st.sampled_from(["before", 1, 2, None]))
    def taken_back(self, to: str | int | None) -> None:
        stable, canary = stable_of(self.state), canary_of(self.state)
        if isinstance(to, str):
            self.state = roll_back(self.state, "bo", "complaints", self.now)
            assert roll_back(self.state, "bo", "again", self.now) == self.state
            assert canary is None or self.state.stable == stable
        else:
            self.state = return_to(self.state, to, "bo", "far back", self.now)
            assert isinstance(self.state, Steady)

    @precondition(lambda self: not isinstance(self.state, Steady))
    @rule(looks=st.lists(st.fixed_dictionaries(evidence), min_size=1, max_size=6))
    def looks(self, looks: list[dict[str, Any]]) -> None:
        for look in looks:
            self._look(**look)

    def _look(self, minutes: int, candidate: ArmEvidence, control: ArmEvidence, served: bool, strangers: int) -> None:
        self.now += timedelta(minutes=minutes)
        before, evidence = self.state, self._evidence(candidate, control, served, strangers)
        decision = advance(before, evidence, self.now, self.config)
        assert decision == advance(before, evidence, self.now, self.config)
        self.state = decision.state
        if decision.action is Action.HOLD:
            assert self.state == before
        if decision.action in (Action.ADVANCE, Action.PROMOTE):
            self._passed(before, evidence, decision.state)
            assert isinstance(before, Canary)
            step = current_step(before, self.config)
            assert candidate.users >= step.min_users
            assert not 0 < step.share < 1 or control.users >= step.min_users
            assert self.now >= before.step_started_at + timedelta(minutes=step.min_minutes)

    @precondition(lambda self: isinstance(self.state, Canary))
    @rule(**evidence)
    def confirmed(
        self, minutes: int, candidate: ArmEvidence, control: ArmEvidence, served: bool, strangers: int
    ) -> None:
        self.now += timedelta(minutes=minutes)
        before, evidence = self.state, self._evidence(candidate, control, served, strangers)
        decision = confirm(before, evidence, self.now, self.config, "go")
        assert decision.action is not Action.ROLL_BACK
        if decision.action in (Action.ADVANCE, Action.PROMOTE):
            self._passed(before, evidence, decision.state)
        if decision.action is Action.HOLD:
            assert decision.state == before
        self.state = decision.state

    def _passed(
        self, before: Steady | Canary | Paused, evidence: Evidence | None, decided: Steady | Canary | Paused
    ) -> None:
        """What nobody passes over, and one step at a time."""
        assert isinstance(before, Canary)
        assert evidence is not None
        assert evidence.served
        assert not evidence.misassigned or current_step(before, self.config).share == 1.0
        for metric, theirs in evidence.control.values.items():
            assert not theirs or evidence.candidate.values.get(metric) or not evidence.candidate.users
        after = canary_of(decided)
        if after is not None:
            assert after.step == before.step + (not before.in_shadow)
            assert after.step_started_at >= before.step_started_at
        else:
            assert before.step == len(STEPS) - 1
            assert stable_of(decided) == before.candidate

    @rule(gateway=st.integers(0, 1))
    def gateway_hears(self, gateway: int) -> None:
        self.tables[gateway] = self._table()

    @rule(gateway=st.integers(0, 1), user=st.integers(0, USERS - 1), talk=st.integers(0, 1))
    def somebody_talks(self, gateway: int, user: int, talk: int) -> None:
        route, who, conversation = self.tables[gateway], f"u{user}", f"u{user}-{talk}"
        key = conversation, route.salt
        if key not in self.assigned:
            self.assigned[key] = assign(route, assignment_hash(route.salt, who))
        arm = arm_now(self.assigned[key], route, candidate_barred=False)
        if route.candidate is None:
            assert arm is Arm.STABLE
            return
        assert self.told.setdefault(key, arm) is arm  # for as long as the rollout lives, on either gateway
        if arm is Arm.CANDIDATE:
            self.candidates.setdefault(route.salt, set()).add(who)

    @invariant()
    def a_process_that_is_killed_here_goes_on_with_the_same(self) -> None:
        stored = Ledger(state=self.state).model_dump_json()
        assert Ledger.model_validate_json(stored).state == self.state

    @invariant()
    def who_was_drawn_stays_drawn_for_every_new_conversation(self) -> None:
        canary = canary_of(self.state)
        if canary is None:
            return
        table = self._table()
        for who in self.candidates.get(canary.salt, set()):
            assert assign(table, assignment_hash(canary.salt, who)).arm is Arm.CANDIDATE

    @invariant()
    def two_gateways_with_one_table_agree(self) -> None:
        one, other = self.tables
        if one == other:
            for user in range(USERS):
                position = assignment_hash(one.salt, f"u{user}")
                assert assign(one, position) == assign(other, position)

    @invariant()
    def rollback_is_always_there(self) -> None:
        undone = roll_back(self.state, "bo", "why not", self.now)
        assert canary_of(undone) is None
        assert stable_of(undone) == stable_of(self.state) or canary_of(self.state) is None


def test_whatever_happens_in_whatever_order() -> None:
    run_state_machine_as_test(Rollout, settings=settings(max_examples=75, stateful_step_count=30, deadline=None))
