"""What a gateway knows and keeps: ids, keys, routes, barred candidates, session arms."""

import sqlite3
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from pipeline.config import BurstConfig, EngineConfig
from pipeline.control import open_control
from pipeline.errors import ConfigError, DataError
from pipeline.gateway.arms import DatabaseArmStore, SessionArm, SessionArms
from pipeline.gateway.auth import KeyRing, create_key, list_keys, revoke_key
from pipeline.gateway.guard import Guard
from pipeline.gateway.ids import Ids, made_at
from pipeline.gateway.routes import RouteTable
from pipeline.gateway.routing import Assignment
from pipeline.gateway.tasks import ArmSync
from pipeline.records import Arm, Route, Routes, Target
from tests.gateway_stub import BASE, canary, gateway_config

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
ENGINE = "http://127.0.0.1:9"
CANDIDATE = "support-v2-abcdef01"


@pytest.fixture
def database(tmp_path: Path) -> Engine:
    return open_control(f"sqlite:///{tmp_path / 'control.db'}")


# ids


@given(st.integers(0, 2**47 * 1_000_000))
def test_an_interaction_id_is_a_uuid7_with_its_time(now_ns: int) -> None:
    parsed = uuid.UUID(Ids("salt", clock_ns=lambda: now_ns).new_interaction("support"))
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == now_ns // 1_000_000


def test_an_id_tells_when_it_was_made() -> None:
    made = Ids("salt", clock_ns=lambda: int(NOW.timestamp() * 1e9)).new_interaction("support")
    assert made_at(made) == NOW


def test_ids_of_one_process_sort_by_time_and_are_distinct() -> None:
    times = iter(range(10**18, 10**18 + 1000 * 10_000, 10_000))
    ids = Ids("salt", clock_ns=lambda: next(times))
    made = [ids.new_interaction("support") for _ in range(1000)]
    assert len(set(made)) == 1000
    assert made == sorted(made)


def test_an_id_tells_whose_it_is_to_every_gateway_with_the_salt() -> None:
    made = [Ids("salt").new_interaction("support") for _ in range(200)]
    assert all(Ids("salt").belongs(one, "support") for one in made)
    assert not any(Ids("salt").belongs(one, "sales") for one in made)
    assert not any(Ids("other").belongs(one, "support") for one in made)


def test_an_id_has_one_spelling() -> None:
    made = Ids("salt").new_interaction("support")
    bare = made.replace("-", "")
    spellings = (made.upper(), bare, f"{bare}----", f"--{bare}--", f"{made}\n", f" {made[1:]}", f"{made[:-1]}\uff11")
    for other in {*spellings} - {made}:
        assert not Ids("salt").belongs(other, "support")


@given(st.text(max_size=40))
def test_any_text_may_be_asked_about(text: str) -> None:
    assert not Ids("salt").belongs(text, "support")


def test_keys_of_users_differ_between_businesses_and_parts_do_not_run_together() -> None:
    ids = Ids("salt")
    assert ids.user_key("support", "u") != ids.user_key("sales", "u")
    assert ids.session("support", "ab", "c") != ids.session("support", "a", "bc")


# keys


def test_a_key_works_until_it_is_revoked_and_is_stored_as_a_hash(database: Engine) -> None:
    key = create_key(database, "app", ["support", "sales", "support"], NOW)
    assert key.startswith("tk-")
    ring = KeyRing(list_keys(database))
    found = ring.find(f"Bearer {key}".encode())
    assert found is not None
    assert (found.name, found.businesses, found.created_at.replace(tzinfo=UTC)) == ("app", ("sales", "support"), NOW)
    assert key not in repr(list_keys(database))
    for wrong in (b"", b"Bearer ", b"Bearer tk-x", key.encode(), f"Basic {key}".encode()):
        assert ring.find(wrong) is None
    revoke_key(database, "app", NOW)
    revoke_key(database, "app", NOW + timedelta(days=1))
    ring.replace(list_keys(database))
    assert ring.find(f"Bearer {key}".encode()) is None
    assert list_keys(database)[0].revoked_at == NOW.replace(tzinfo=None)


def test_impossible_keys_are_refused(database: Engine) -> None:
    create_key(database, "app", ["support"], NOW)
    for name, businesses in (("app", ["support"]), ("", ["support"]), ("b", []), ("c", ["../x"])):
        with pytest.raises(ConfigError) as refused:
            create_key(database, name, businesses, NOW)
        assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError):
        create_key(database, "d", ["../x"], NOW, admin=True)
    with pytest.raises(ConfigError, match="nobody"):
        revoke_key(database, "nobody", NOW)


def test_the_scope_admin_comes_with_businesses_or_none(database: Engine) -> None:
    keys = {
        name: create_key(database, name, businesses, NOW, admin=admin)
        for name, businesses, admin in (("app", ["support"], False), ("ops", [], True), ("both", ["support"], True))
    }
    ring = KeyRing(list_keys(database))
    found = {name: ring.find(f"Bearer {key}".encode()) for name, key in keys.items()}
    assert {name: (key.businesses, key.admin) for name, key in found.items() if key} == {
        "app": (("support",), False),
        "ops": ((), True),
        "both": (("support",), True),
    }


def test_a_key_is_found_by_its_prefix_while_it_is_good(database: Engine) -> None:
    create_key(database, "app", ["support"], NOW)
    ring = KeyRing(list_keys(database))
    (key,) = list_keys(database)
    assert len(key.prefix) == 16
    assert ring.find_by_prefix(key.prefix) == key
    assert ring.find_by_prefix("") is None
    revoke_key(database, "app", NOW)
    ring.replace(list_keys(database))
    assert ring.find_by_prefix(key.prefix) is None


def test_a_database_of_an_earlier_version_goes_on_and_serves_that_version_too(tmp_path: Path) -> None:
    path = tmp_path / "control.db"
    with closing(sqlite3.connect(path)) as old:
        old.execute(
            "CREATE TABLE api_keys (key_hash VARCHAR(64) NOT NULL PRIMARY KEY, name VARCHAR(80) NOT NULL UNIQUE, "
            "businesses JSON NOT NULL, created_at DATETIME NOT NULL, revoked_at DATETIME)"
        )
        insert = "INSERT INTO api_keys (key_hash, name, businesses, created_at) VALUES (?, ?, ?, ?)"
        old.execute(insert, ("ab" * 32, "old", '["support"]', "2026-01-01 00:00:00.000000"))
        old.commit()
    for _ in range(2):
        database = open_control(f"sqlite:///{path}")
        assert [(key.name, key.businesses, key.admin) for key in list_keys(database)] == [("old", ("support",), False)]
        database.dispose()
    with closing(sqlite3.connect(path)) as old:
        old.execute(insert, ("cd" * 32, "older", '["sales"]', "2026-01-01 00:00:00.000000"))
        old.commit()
    database = open_control(f"sqlite:///{path}")
    create_key(database, "new", [], NOW, admin=True)
    assert [(key.name, key.admin) for key in list_keys(database)] == [("new", True), ("old", False), ("older", False)]


def test_processes_that_meet_an_old_database_at_once_all_open_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'control.db'}"
    database = open_control(url)
    with database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE api_keys DROP COLUMN admin")
    database.dispose()
    with ThreadPoolExecutor(8) as pool:
        assert [list_keys(one) for one in pool.map(open_control, [url] * 8)] == [()] * 8


# routes


def table(folder: Path) -> RouteTable:
    engines = (
        EngineConfig(name="base", url=ENGINE, serves="base"),
        EngineConfig(name="adapters", url="http://127.0.0.1:8", serves="adapters"),
    )
    return RouteTable(gateway_config(folder, engines), folder / "gateway")


def test_a_fresh_gateway_serves_the_base_model_where_it_is(tmp_path: Path) -> None:
    route = table(tmp_path).route("support")
    assert route is not None
    assert route.stable == Target(model=BASE, version=None, replicas=(ENGINE,))
    assert table(tmp_path).route("nobody") is None


@settings(max_examples=25)
@given(st.lists(st.integers(0, 6), max_size=8))
def test_the_highest_generation_wins_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory, generations: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("g")
    routes = table(folder)
    for generation in generations:
        routes.put(canary(ENGINE, generation=generation, salt=f"r{generation}"), NOW)
    for known in (routes, table(folder)):
        assert known.routes.generation == max(generations, default=-1)


def test_a_torn_routes_file_is_no_reason_not_to_start(tmp_path: Path) -> None:
    table(tmp_path).put(canary(ENGINE), NOW)
    (tmp_path / "gateway" / "routes.json").write_text('{"generation": 1')
    assert table(tmp_path).routes.generation == -1


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ("sales-v2-abcdef01", 2),
        ("support-v2-abcdef01", 3),
        ("support-v2-ABCDEF01", 2),
        ("support-v2-abcdef01/..", 2),
        ("other-base", None),
        (BASE, 2),
    ],
)
def test_a_route_to_what_is_not_the_business_own_is_refused(tmp_path: Path, model: str, version: int | None) -> None:
    routes = table(tmp_path)
    bad = Route(business="support", stable=Target(model=model, version=version, replicas=(ENGINE,)))
    with pytest.raises(DataError, match="support"):
        routes.put(Routes(generation=5, routes=(bad,)), NOW)
    assert routes.routes.generation == -1


@pytest.mark.parametrize(
    "replica",
    [
        "", "engine", "ftp://engine", "http://", "http://:80", "http://engine:99999", "http://engine:x", "http://[::",
        "http://engine\r\nx: y", "http://engine/path", "http://" + "a" * 64, "http://a..b", "http://e\x00", "http://é",
    ],
)  # fmt: skip
def test_a_route_to_where_no_engine_can_be_is_refused(tmp_path: Path, replica: str) -> None:
    routes = table(tmp_path)
    with pytest.raises(DataError, match="replica"):
        routes.put(canary(replica), NOW)
    assert routes.routes.generation == -1


@pytest.mark.parametrize(
    "replica", ["http://engine", "https://engine.example:8443", "http://10.0.0.1:80", "http://[::1]:80"]
)
def test_a_route_to_an_engine_anywhere_is_taken(tmp_path: Path, replica: str) -> None:
    assert table(tmp_path).put(canary(replica), NOW)


def test_a_generation_that_nobody_can_count_is_refused(tmp_path: Path) -> None:
    routes = table(tmp_path)
    with pytest.raises(DataError, match="generation"):
        routes.put(canary(ENGINE, generation=2**63), NOW)
    assert routes.put(canary(ENGINE, generation=2**63 - 1), NOW)


def test_a_rolled_back_candidate_stays_away_over_restarts_until_routes_drop_it(tmp_path: Path) -> None:
    routes = table(tmp_path)
    routes.put(canary(ENGINE, generation=1), NOW)
    assert routes.roll_back("support") == CANDIDATE
    assert routes.roll_back("sales") is None
    again = table(tmp_path)
    again.put(canary(ENGINE, generation=2, share=0.3), NOW)
    assert again.guard.is_barred("support", CANDIDATE)
    again.put(canary(ENGINE, generation=3, candidate=False), NOW)
    again.put(canary(ENGINE, generation=4), NOW)
    assert not again.guard.is_barred("support", CANDIDATE)
    assert not table(tmp_path).guard.is_barred("support", CANDIDATE)


def test_a_rollout_draws_nobody_in_its_first_moments(tmp_path: Path) -> None:
    """Until the conversations that began before it are known everywhere."""
    engines = (EngineConfig(name="both", url=ENGINE),)
    routes = RouteTable(gateway_config(tmp_path, engines, settle_s=1.0), tmp_path / "gateway")
    assert routes.is_settled("support", NOW)
    routes.put(canary(ENGINE, generation=1, share=0.05), NOW)
    seconds = (-1.0, 0.0, 0.9, 1.0, 60.0)
    settled = [routes.is_settled("support", NOW + timedelta(seconds=second)) for second in seconds]
    assert settled == [True, False, False, True, True]  # a clock that was set back holds nothing up
    assert routes.is_settled("sales", NOW)
    later = NOW + timedelta(seconds=60)
    routes.put(canary(ENGINE, generation=2, share=0.3), later)
    assert routes.is_settled("support", later), "a step-up is no new rollout: its conversations are claimed"
    routes.put(canary(ENGINE, generation=3, share=0.3, salt="r2"), later)
    assert not routes.is_settled("support", later)


# guard


@given(st.lists(st.floats(0, 30), min_size=1, max_size=20))
def test_only_a_burst_trips(gaps: list[float]) -> None:
    guard = Guard(BurstConfig(failures=3, within_s=10))
    times: list[float] = []
    now = 0.0
    for gap in gaps:
        now += gap
        times.append(now)
        trip = guard.failed("support", CANDIDATE, "r1", NOW + timedelta(seconds=now))
        burst = len(times) >= 3 and timedelta(seconds=now) - timedelta(seconds=times[-3]) <= timedelta(seconds=10)
        assert (trip is not None) == burst
        if trip is not None:
            assert guard.is_barred("support", CANDIDATE)
            assert not guard.is_barred("sales", CANDIDATE)
            assert guard.trips() == (trip,)
            assert guard.failed("support", CANDIDATE, "r1", NOW + timedelta(seconds=now)) is None
            return
    assert not guard.is_barred("support", CANDIDATE)


def test_a_candidate_that_is_tried_again_is_not_barred_for_what_it_did_before(tmp_path: Path) -> None:
    """Not even when this gateway never heard that the earlier rollout ended."""
    routes = table(tmp_path)
    routes.put(canary(ENGINE, generation=1, salt="r1"), NOW)
    assert [routes.failed("support", CANDIDATE, NOW) for _ in range(5)] == [False] * 4 + [True]
    routes.put(canary(ENGINE, generation=2, salt="r1", share=0.3), NOW)
    assert routes.guard.is_barred("support", CANDIDATE)
    routes.put(canary(ENGINE, generation=4, salt="r2"), NOW)
    assert not routes.guard.is_barred("support", CANDIDATE)


# session arms


def session_arm(session: str, arm: Arm = Arm.CANDIDATE, *, at: datetime = NOW, salt: str = "r1") -> SessionArm:
    return SessionArm("support", session, Assignment(salt, arm, 0.1), True, at)


def test_memory_is_bounded_and_says_that_it_let_go() -> None:
    arms = SessionArms(capacity=2)
    for session in ("s1", "s2"):
        arms.remember(session_arm(session))
    assert not arms.overflowed
    arms.find("support", "s1", NOW)
    arms.remember(session_arm("s3"))
    assert arms.overflowed
    assert arms.find("support", "s2", NOW) is None
    assert arms.find("support", "s1", NOW) is not None


@pytest.mark.anyio
async def test_a_database_that_fails_loses_no_assignment(database: Engine, tmp_path: Path) -> None:
    arms = SessionArms()
    arms.remember(session_arm("s1"))
    broken = open_control(f"sqlite:///{tmp_path / 'broken.db'}")
    with broken.begin() as connection:
        connection.exec_driver_sql("DROP TABLE session_arms")
    with pytest.raises(Exception, match="session_arms"):
        await ArmSync(arms, DatabaseArmStore(broken), lambda: NOW).once()
    await ArmSync(arms, DatabaseArmStore(database), lambda: NOW).once()
    assert DatabaseArmStore(database).exchange([], None, NOW, 10)[0] == [session_arm("s1")]
