"""Versions that never come into service, and what tells why."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pipeline.rollout.state import Canary, Steady
from tests.controller_world import World


@pytest.mark.parametrize("gate", ["pending", "reject", "inconclusive"])
def test_what_did_not_pass_the_gate_is_refused_and_told_why(world: World, gate: str) -> None:
    world.publish_version(gate)
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert isinstance(world.state, Steady)
    assert world.aliases() == {}
    assert gate in world.tags(1)["rollout_refused"]
    described = world.registry.entries["support", 1].description
    assert described.count(f"2026-03-10 08:00 UTC: not put into service: its gate says {gate}") == 1
    (entry,) = world.store.history("support")
    assert (entry.action, entry.actor) == ("refuse", "mlflow alias promote")
    assert all(engine.loads == 0 for engine in world.engines.values())


def test_an_override_lets_it_pass_and_nothing_says_any_more_that_it_was_refused(world: World) -> None:
    world.publish_version("reject")
    world.ask("promote", 1)
    for _ in range(2):
        world.tick()
    assert "rollout_refused" in world.tags(1)
    world.registry.set_tags("support", 1, {"override": "anna: the gate's items are out of date"})
    world.ask("promote", 1)
    for _ in range(2):
        world.tick()
    assert isinstance(world.state, Canary)
    assert "rollout_refused" not in world.tags(1)


@pytest.mark.parametrize(("users_a_day", "begins"), [(12, False), (40, True)])
def test_a_business_whose_traffic_cannot_carry_the_steps_is_told_before_its_users_are_split(
    world: World, users_a_day: int, begins: bool
) -> None:
    """A step of 50 % that needs 10 users of each arm within an hour."""
    world.tick()
    today = world.now
    for day in range(8, 0, -1):
        world.now = today - timedelta(days=day) + timedelta(minutes=1)
        world.talk(users_a_day)
    world.now = today
    world.ask("promote", world.publish_version())
    for _ in range(2):
        world.tick()
    assert isinstance(world.state, Canary) == begins
    if not begins:
        refused = world.tags(1)["rollout_refused"]
        assert "in a step of 50% each arm would have had 10 users within 60 minutes on 0 of the last 7 days" in refused
        assert "a share of 100%" in refused
        assert world.route.candidate is None


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        ({"base": {"id": "other", "revision": "r1", "digest": "0" * 64}}, "other"),
        ({"base": {"id": "base", "revision": "r0", "digest": "0" * 64}}, "revision r0"),
        ({"business": "kefu"}, "kefu"),
    ],
)
def test_an_adapter_of_another_lineage_never_reaches_an_engine(
    world: World, adapter: dict[str, Any], said: str
) -> None:
    entry = world.registry.entries["support", world.publish_version()]
    entry.adapter = entry.adapter.model_validate(entry.adapter.model_dump() | adapter)
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert said in world.tags(1)["rollout_refused"]
    assert all(engine.loads == 0 for engine in world.engines.values())


def test_a_broken_adapter_never_reaches_an_engine(world: World) -> None:
    world.broken = {world.publish_version()}
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert "nan" in world.tags(1)["rollout_refused"]
    assert all(engine.loads == 0 for engine in world.engines.values())


def _lose_a_file(world: World) -> None:
    world.registry.entries["support", 1].files.popitem()


def _change_a_file(world: World) -> None:
    files = world.registry.entries["support", 1].files
    files[next(iter(files))] += b" "


@pytest.mark.parametrize("harm", [_lose_a_file, _change_a_file])
def test_files_that_are_not_those_that_were_registered_are_refused(world: World, harm: Callable[[World], None]) -> None:
    sha256 = world.registry.get("support", world.publish_version()).adapter.sha256
    harm(world)
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert sha256[:12] in world.tags(1)["rollout_refused"]
    assert all(engine.loads == 0 for engine in world.engines.values())
