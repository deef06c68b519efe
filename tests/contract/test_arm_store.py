"""What every store of session arms promises: the control database and a real Redis."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from pipeline.control import open_control
from pipeline.gateway.arms import LIFE, ArmStore, DatabaseArmStore, SessionArm, SessionArms
from pipeline.gateway.limits import Usage
from pipeline.gateway.routing import Assignment
from pipeline.gateway.shared import RedisArmStore, RedisUsageStore, Shared
from pipeline.gateway.tasks import ArmSync
from pipeline.records import Arm

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(params=["database", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArmStore]:
    if request.param == "redis":
        yield Shared(request.getfixturevalue("redis_url")).arms
        return
    database = open_control(f"sqlite:///{tmp_path / 'control.db'}")
    yield DatabaseArmStore(database)
    database.dispose()


def session_arm(session: str, arm: Arm = Arm.CANDIDATE, *, at: datetime = NOW) -> SessionArm:
    return SessionArm("support", session, Assignment("r1", arm, 0.1), True, at)


@pytest.mark.anyio
async def test_arms_survive_a_restart_and_are_shared_the_first_one_stands(store: ArmStore) -> None:
    one, other = SessionArms(), SessionArms()
    sync_one, sync_other = ArmSync(one, store, lambda: NOW), ArmSync(other, store, lambda: NOW)
    one.remember(session_arm("s1"))
    await sync_one.once()
    other.remember(session_arm("s1", Arm.STABLE))
    other.remember(session_arm("s2", Arm.CONTROL))
    await sync_other.once()
    await sync_one.once()
    for arms in (one, other):
        assert arms.find("support", "s1", NOW) == Assignment("r1", Arm.CANDIDATE, 0.1)
        assert arms.find("support", "s2", NOW) == Assignment("r1", Arm.CONTROL, 0.1)
        assert arms.find("sales", "s1", NOW) is None
    restarted = SessionArms()
    await ArmSync(restarted, store, lambda: NOW).once()
    assert restarted.find("support", "s1", NOW) == Assignment("r1", Arm.CANDIDATE, 0.1)


def test_each_assignment_is_read_once_or_more_and_the_newest_when_not_all_fit(store: ArmStore) -> None:
    rows = [session_arm(f"s{number}", at=NOW + timedelta(seconds=number)) for number in range(10)]
    known, cursor = store.exchange([], None, NOW, 100)
    assert known == []
    now = NOW + timedelta(seconds=10)
    known, cursor = store.exchange(rows, cursor, now, 100)
    assert known == rows
    late = session_arm("late", at=now)
    known, cursor = store.exchange([late], cursor, now, 100)
    assert late in known
    newest, _ = store.exchange([], None, now, 3)
    assert newest == [*rows[-2:], late]


def test_who_claims_a_conversation_first_is_right_whatever_the_rollout(store: ArmStore) -> None:
    first = session_arm("s1", Arm.STABLE)
    elsewhere = SessionArm("sales", "s1", Assignment("r1", Arm.CONTROL, 0.1), False, NOW)
    assert store.claim([first, elsewhere]) == [first, elsewhere]
    moment_later = NOW + timedelta(seconds=1)
    of_next_rollout = SessionArm("support", "s1", Assignment("r2", Arm.CANDIDATE, 0.3), True, moment_later)
    new = session_arm("s2", at=moment_later)
    assert store.claim([of_next_rollout, new, session_arm("s2", Arm.STABLE)]) == [first, new, new]
    store.exchange([of_next_rollout], None, moment_later, 10)
    known = store.exchange([], None, moment_later, 10)[0]
    assert sorted(known, key=lambda arm: (arm.session, arm.business)) == [elsewhere, first, new]


def test_a_conversation_that_is_over_can_be_claimed_anew(store: ArmStore) -> None:
    if isinstance(store, RedisArmStore):
        pytest.skip("Redis forgets by its own clock")
    later = session_arm("s1", Arm.STABLE, at=NOW + LIFE + timedelta(seconds=1))
    other_rollout = SessionArm("support", "s1", Assignment("r2", Arm.STABLE, 0.0), True, later.assigned_at)
    store.claim([session_arm("s1")])
    assert store.claim([other_rollout]) == [other_rollout]


def test_gateways_that_claim_at_once_agree(store: ArmStore) -> None:
    """Each with another share, as beside a step-up."""
    sessions = [f"s{number}" for number in range(40)]

    def claim(arm: Arm) -> list[SessionArm]:
        return [store.claim([session_arm(session, arm)])[0] for session in sessions]

    with ThreadPoolExecutor(4) as gateways:
        told = list(gateways.map(claim, (Arm.STABLE, Arm.CANDIDATE, Arm.CONTROL, Arm.STABLE)))
    assert all(one == told[0] for one in told)


def test_a_conversation_is_over_after_its_life(store: ArmStore) -> None:
    row = session_arm("s1")
    store.exchange([row], None, NOW, 10)
    later = NOW + LIFE + timedelta(seconds=1)
    assert store.exchange([], None, later, 10)[0] == []
    store.purge(later)
    assert store.exchange([], None, NOW, 10)[0] == []


def test_sessions_can_be_forgotten(store: ArmStore) -> None:
    rows = [session_arm(f"s{number}", at=NOW + timedelta(seconds=number)) for number in range(3)]
    store.exchange(rows, None, NOW + timedelta(seconds=3), 10)
    assert store.forget("sales", lambda _: True) == 0
    assert store.forget("support", lambda session: session in ("s0", "s2")) == 2
    assert store.forget("support", lambda session: session == "s2") == 0
    assert store.exchange([], None, NOW + timedelta(seconds=3), 10)[0] == [rows[1]]
    anew = [session_arm(row.session, Arm.STABLE, at=row.assigned_at) for row in rows]
    assert store.claim(anew) == [anew[0], rows[1], anew[2]]


def test_what_gateways_used_adds_up(redis_url: str) -> None:
    one, other = RedisUsageStore(redis.Redis.from_url(redis_url)), RedisUsageStore(redis.Redis.from_url(redis_url))
    assert one.add({}) == {}
    assert one.add({"support": Usage(2, 30)}) == {"support": Usage(2, 30)}
    assert other.add({"support": Usage(1, 5), "sales": Usage(0, 7)}) == {"sales": Usage(0, 7), "support": Usage(3, 35)}
