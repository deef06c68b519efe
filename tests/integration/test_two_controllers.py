"""Two controllers on one database and the same engines: one acts, and the other takes over where it is silent."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from starlette.testclient import TestClient

from flows.controller.api import make_app
from flows.controller.process import Heart, Loop
from pipeline.config import Settings
from pipeline.rollout.lease import Lease
from pipeline.rollout.state import Canary, Steady
from tests.controller_world import PATIENCE_S, ScriptedEngines, World

SECRETS = Settings(user_salt="salt", admin_key="admin", webhook_secret="hook", report_secret="reports")


def look(world: World, *controllers: Any, seconds: float = 0) -> None:
    """Each of them looks, after a while."""
    world.now += timedelta(seconds=seconds)
    for controller in controllers:
        controller.tick(world.now)
        assert not [problem for problem in controller.problems.values() if problem.startswith("unexpected")]


def loads(world: World) -> list[int]:
    return [engine.loads for engine in world.engines.values()]


def test_one_is_killed_and_the_other_takes_over_within_a_poll_and_goes_on(world: World) -> None:
    one, other = world.controller, world.new_controller("other")
    world.publish_version()
    world.ask("promote", 1)
    look(world, other)  # it came first, so it leads
    look(world, one)
    loaded = loads(world)
    assert (world.actions, loaded) == (["start"], [0, 1, 1])
    route = world.route
    world.talk()
    world.now += timedelta(minutes=6)
    assert other.lease.hold()  # its last beat: it is killed here
    look(world, one)
    assert world.actions == ["start"]  # it may be only slow
    look(world, one, seconds=PATIENCE_S)
    assert world.actions == ["start", "advance"]
    world.talk()
    look(world, one, seconds=360)
    assert world.actions == ["start", "advance", "promote"]
    assert world.aliases() == {"champion": 1}
    assert loads(world) == loaded  # it proved what it found, and loaded nothing twice
    assert world.route.stable.replicas == route.candidate.replicas  # type: ignore[union-attr]


def test_one_that_is_stopped_and_goes_on_changes_nothing(world: World) -> None:
    one, other = world.controller, world.new_controller("other")
    world.publish_version()
    look(world, one, other)
    look(world, other, seconds=PATIENCE_S)
    world.ask("promote", 1)
    look(world, one, other)
    assert world.actions == ["start"]
    world.engines["one"].restart()
    before = loads(world)
    look(world, one)
    assert loads(world) == before
    look(world, other)
    assert loads(world) == [before[0], before[1] + 1, before[2]]


def test_a_rollback_that_reaches_the_one_that_follows_is_done_at_once(world: World) -> None:
    one, other = world.controller, world.new_controller("other")
    world.publish_version()
    world.ask("promote", 1)
    look(world, one, other)
    assert isinstance(world.state, Canary)
    app = make_app(other, SECRETS, lambda: None)
    with TestClient(app) as client:
        command = {"business": "support", "actor": "bo", "reason": "complaints"}
        admin = {"Authorization": "Bearer admin"}
        answer = client.post("/rollback", json=command, headers=admin)
        assert client.get("/status", headers=admin).json()["leader"] == "this"
    assert answer.status_code == 200
    assert world.route.candidate is None
    before = world.gateway.routes
    look(world, one, other, seconds=1)
    assert world.gateway.routes == before
    assert isinstance(world.state, Steady)
    assert (world.actions, world.tags(1)["rollout_by"]) == (["start", "roll_back"], "bo")


CHAPTERS: tuple[Callable[[World], None], ...] = (
    lambda world: world.ask("promote", world.publish_version()),
    lambda world: world.talk(),
    lambda world: world.talk(),  # version 1 is promoted
    lambda world: world.ask("champion", world.publish_version("reject")),
    lambda world: world.ask("promote", world.publish_version()),
    lambda world: world.talk(status=500, choices=(), stream_end="upstream_error"),  # version 3 is rolled back
)


def play(world: World, alive: list[tuple[int, ...]]) -> dict[str, Any]:
    pair = world.controller, world.new_controller("other")
    for happening, who in zip(CHAPTERS, alive, strict=True):
        happening(world)
        world.now += timedelta(minutes=6)
        look(world, *(pair[place] for place in who))
        look(world, *(pair[place] for place in who), seconds=PATIENCE_S)
        assert sum(controller.lease.is_held() for controller in pair) == 1
    look(world, pair[who[0]], seconds=PATIENCE_S)
    told = world.outcome()
    trail = [(actor, action, detail["version"]) for actor, action, detail in told["audit"]]
    kept = {key: told[key] for key in ("aliases", "owed", "loaded", "reports")}
    return kept | {"trail": trail, "loads": loads(world)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, scripted_engines: ScriptedEngines) -> dict[str, Any]:
    with World(tmp_path_factory.mktemp("undisturbed"), scripted_engines) as world:
        return play(world, [(0,)] * len(CHAPTERS))


turns = st.sampled_from([(0,), (1,), (0, 1), (1, 0)])


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(st.lists(turns, min_size=len(CHAPTERS), max_size=len(CHAPTERS)))
def test_whoever_lives_and_looks_first_the_story_is_told_once(
    undisturbed: dict[str, Any],
    scripted_engines: ScriptedEngines,
    tmp_path_factory: pytest.TempPathFactory,
    alive: list[tuple[int, ...]],
) -> None:
    """One trail, one load of each adapter into each engine."""
    told = [action for _, action, _ in undisturbed["trail"]]
    assert told == ["start", "advance", "promote", "refuse", "start", "roll_back"]
    with World(tmp_path_factory.mktemp("two"), scripted_engines) as world:
        assert play(world, alive) == undisturbed


def test_a_heart_keeps_the_lease_through_a_long_tick_and_lets_go_of_it_at_the_end_or_when_a_tick_hangs(
    control: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, lease, other = Loop(3600), Lease(control, "one", 0.5), Lease(control, "other", 0.5)
    ticking, ends = threading.Event(), threading.Event()

    def tick(_now: object) -> None:
        ticking.set()
        ends.wait(60)

    with Heart(lease, loop, every_s=0.05):
        thread = threading.Thread(target=loop.run, args=(tick,))
        thread.start()
        assert ticking.wait(60)
        for _ in range(4):
            assert lease.is_held() or lease.hold()
            assert not other.hold()
            threading.Event().wait(0.3)
        monkeypatch.setattr("flows.controller.process.STUCK_S", 0.0)
        while not other.hold():
            threading.Event().wait(0.05)
        ends.set()
        loop.stop()
        thread.join(60)
    assert not lease.is_held()
