"""Engines that restart, hang, fill up or serve something else: who gets traffic, and what is loaded."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.controller import fleet
from flows.lock import at_gate
from pipeline.rollout.state import Steady
from tests.controller_world import ScriptedEngines, World


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller gives engines a moment only."""
    monkeypatch.setattr(fleet, "PATIENCE_S", 0.3)


def eventually(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_engine_that_says_yes_and_serves_the_base_gets_no_traffic(world: World) -> None:
    world.publish_version()
    for engine in world.engines.values():
        engine.faults.serve_base = True
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert isinstance(world.state, Steady)
    assert "engines do not serve it" in world.tags(1)["rollout_refused"]
    assert world.route.candidate is None
    assert world.servers["one"].list() == world.servers["two"].list() == ()


def test_a_canary_waits_for_a_silent_engine_to_be_out_of_the_way_or_ready(world: World) -> None:
    world.publish_version()
    world.engines["one"].stop()
    world.engines["two"].stop()
    world.ask("promote", 1)
    world.tick()
    assert isinstance(world.state, Steady)
    assert world.aliases() == {"promote": 1}
    world.engines["two"].start()
    world.tick()
    assert world.route.candidate.replicas == world.urls("two")  # type: ignore[union-attr]
    world.engines["one"].start()
    world.tick()
    assert world.route.candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]


def test_a_restarted_engine_is_out_of_the_routes_until_it_is_whole_again(world: World) -> None:
    world.in_canary()
    world.engines["one"].restart()
    world.busy = True  # one adapter a tick
    world.tick()
    assert world.servers["one"].list() == (world.route.stable.model,)
    assert world.route.stable.replicas == world.urls("two")
    assert world.route.candidate.replicas == world.urls("two")  # type: ignore[union-attr]
    world.tick()
    assert world.route.stable.replicas == world.route.candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]


def test_engines_that_all_restarted_get_no_traffic_before_they_are_proven(world: World) -> None:
    world.in_canary()
    for name in ("one", "two"):
        world.engines[name].restart()
        world.engines[name].faults.refuse_loads = "no room"
    world.new_controller().tick(world.now)
    assert world.route.candidate is None
    assert world.route.stable.replicas == ()
    for name in ("one", "two"):
        world.engines[name].faults.refuse_loads = ""
    world.tick()
    assert world.route.stable.replicas == world.urls("one", "two")
    assert world.route.candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]


def test_an_engine_that_hangs_keeps_neither_rollouts_nor_other_engines_waiting(world: World, impatient: None) -> None:
    """It hangs for longer than a tick waits for it; what is asked of it meanwhile is not piled up."""
    stable, _ = world.in_canary()
    world.engines["one"].faults.hang = True
    world.tick()
    assert world.route.stable.replicas == world.route.candidate.replicas == world.urls("two")  # type: ignore[union-attr]
    threads = threading.active_count()
    world.ask("rollback", stable)
    world.tick()
    assert world.route.candidate is None
    assert threading.active_count() <= threads
    world.engines["one"].faults.hang = False
    eventually(lambda: world.tick() or world.route.stable.replicas == world.urls("one", "two"))


def test_a_load_that_hangs_is_left_behind_when_something_urgent_comes(world: World, impatient: None) -> None:
    stable = world.promoted()
    loads = world.engines["one"].loads
    world.engines["one"].restart()
    world.engines["one"].faults.hang_loads = True
    world.busy = True
    world.tick()
    world.tick()
    assert world.route.stable.replicas == world.urls("two")
    world.engines["one"].faults.hang_loads = False
    eventually(lambda: world.tick() or world.route.stable.replicas == world.urls("one", "two"))
    assert world.engines["one"].loads == loads + 1
    assert world.route.stable.version == stable


def test_a_full_engine_makes_room_by_what_is_unneeded_for_the_longest_and_never_by_what_is_needed(
    tmp_path: Path, scripted_engines: ScriptedEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "SPARE", 1)
    with World(tmp_path, scripted_engines, max_adapters=3) as world:
        _see_room_made(world)


def _see_room_made(world: World) -> None:
    world.promoted()
    rest = [world.promoted() for _ in range(2)]
    world.tick(minutes=1)  # the first is unneeded from now on, and may still be asked for
    rest += [world.promoted(), world.promoted()]
    assert world.route.stable.replicas == world.urls("one", "two")
    for name in ("one", "two"):
        assert world.servers[name].list() == tuple(sorted(world.name(number) for number in rest))


def test_an_engine_that_is_silent_for_a_moment_is_better_than_none(world: World) -> None:
    world.promoted()
    world.engines["one"].stop()
    world.engines["two"].stop()
    world.tick()
    assert world.route.stable.replicas == world.urls("one", "two")
    world.new_controller().tick(world.now)
    assert world.route.stable.replicas == world.urls("one", "two")


def test_what_nobody_needs_is_unloaded_after_a_while_and_what_is_at_the_gate_is_left_alone(world: World) -> None:
    first, second = world.in_canary()
    number = world.publish_version("pending")
    gated = world.name(number)
    names = [world.name(number) for number in (first, second)]
    one = world.servers["one"]
    one.load(gated, world.folder / "trained" / str(number))
    world.controller.roll_back("support", "bo", "complaints")
    world.tick(minutes=1)
    assert one.list() == tuple(sorted([*names, gated]))  # a gateway with an older table may still ask for it
    world.tick(minutes=2)
    assert one.list() == tuple(sorted([names[0], gated]))
    folder = world.config.state_dir / "adapters" / world.registry.get("support", second).adapter.sha256
    assert folder.is_dir()


def test_a_version_that_is_at_the_gate_again_is_left_alone_until_the_night_ends(world: World) -> None:
    number = world.publish_version("inconclusive")  # a night that was killed after its verdict is run again
    gated, folder = world.name(number), world.folder / "trained" / str(number)
    one = world.servers["one"]
    one.load(gated, folder)
    with at_gate(world.config.state_dir, "support"):
        for _ in range(4):
            world.tick(minutes=1)
        assert one.list() == (gated,)
    for _ in range(3):
        world.tick(minutes=1)
    assert one.list() == ()


def test_what_is_loaded_again_is_unneeded_from_then_on(world: World) -> None:
    number = world.publish_version("inconclusive")
    gated, folder = world.name(number), world.folder / "trained" / str(number)
    one = world.servers["one"]
    one.load(gated, folder)
    while one.list():
        world.tick(minutes=1)
    one.load(gated, folder)
    world.tick(minutes=1)
    assert one.list() == (gated,)
