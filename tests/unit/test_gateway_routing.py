"""Who gets which arm."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.gateway.routing import Assignment, arm_now, assign, assignment_hash, choose_arm, pick_replica, user_group
from pipeline.records import Arm, Route, Target

SHARES = st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5, 1.0])
POSITIONS = st.floats(min_value=0, max_value=1, exclude_max=True)
BASE = Target(model="base", version=None, replicas=("http://e:1",))
ADAPTER = Target(model="support-v2-abcdef01", version=2, replicas=("http://e:1",))


def route(share: float, salt: str = "r1", *, candidate: bool = True) -> Route:
    return Route(business="support", stable=BASE, candidate=ADAPTER if candidate else None, share=share, salt=salt)


@given(POSITIONS, SHARES, SHARES)
def test_widening_keeps_every_earlier_candidate(position: float, one: float, other: float) -> None:
    narrow, wide = sorted((one, other))
    if choose_arm(position, narrow) is Arm.CANDIDATE:
        assert choose_arm(position, wide) is Arm.CANDIDATE


@given(POSITIONS, st.floats(min_value=0.0, max_value=1.0))
def test_candidate_and_control_never_overlap_and_mirror_each_other(position: float, share: float) -> None:
    arm = choose_arm(position, share)
    assert (arm is Arm.CANDIDATE) == (position < share)
    if arm is Arm.CONTROL:
        assert share <= 0.5
        assert position >= 1.0 - share
    if share > 0.5:
        assert arm is not Arm.CONTROL


def test_shares_are_right_over_many_users() -> None:
    arms = [choose_arm(assignment_hash("salt", f"user-{number}"), 0.1) for number in range(20_000)]
    for arm in (Arm.CANDIDATE, Arm.CONTROL):
        assert abs(arms.count(arm) / len(arms) - 0.1) < 0.01  # 4.7 standard deviations


def test_salts_are_independent() -> None:
    users = [f"user-{number}" for number in range(5000)]
    first = {user for user in users if assignment_hash("r1", user) < 0.1}
    second = {user for user in users if assignment_hash("r2", user) < 0.1}
    assert len(first & second) < 90  # 50 expected


@given(st.text(), st.text())
def test_the_hash_is_in_range_and_repeats(salt: str, who: str) -> None:
    salt, who = (text.encode("utf-8", "replace").decode() for text in (salt, who))
    position = assignment_hash(salt, who)
    assert 0.0 <= position < 1.0
    assert position == assignment_hash(salt, who)
    assert user_group(position) == f"g{int(position * 100):02d}"


@given(POSITIONS, SHARES, SHARES)
def test_a_conversation_keeps_its_arm_through_a_step_up(position: float, before: float, after: float) -> None:
    made = assign(route(before), position)
    assert made.share == before
    assert arm_now(made, route(after), candidate_barred=False) is made.arm


@given(POSITIONS, SHARES)
def test_a_conversation_from_before_the_rollout_is_stable_in_it(position: float, share: float) -> None:
    for earlier in (assign(route(0.0, "", candidate=False), position), assign(route(0.5, "r0"), position)):
        assert arm_now(earlier, route(share, "r1"), candidate_barred=False) is Arm.STABLE


@given(POSITIONS, SHARES)
def test_rollback_sends_everyone_to_stable_and_the_bar_only_candidates(position: float, share: float) -> None:
    made = assign(route(share), position)
    assert arm_now(made, route(0.0, candidate=False), candidate_barred=False) is Arm.STABLE
    barred = arm_now(made, route(share), candidate_barred=True)
    assert barred is (Arm.STABLE if made.arm is Arm.CANDIDATE else made.arm)


def test_without_a_candidate_nobody_is_drawn() -> None:
    assert assign(route(0.5, candidate=False), 0.0) == Assignment(salt="r1", arm=Arm.STABLE, share=0.0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 1000))
def test_the_least_busy_replica_wins_and_affinity_breaks_ties(loads: list[int], preferred: int) -> None:
    replicas = tuple(f"http://e:{number}" for number in range(len(loads)))
    busy = dict(zip(replicas, loads, strict=True))
    picked = pick_replica(replicas, busy, preferred)
    assert busy[picked] == min(loads)
    favourite = replicas[preferred % len(replicas)]
    if busy[favourite] == min(loads):
        assert picked == favourite
