"""A registry and a control database that fail, fall behind or change under the controller."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import RegistryUnavailable
from pipeline.records import ModelVersion
from pipeline.registry.memory import MemoryRegistry
from pipeline.rollout.state import Canary, Steady
from tests.controller_world import ScriptedEngines, World


def test_a_registry_that_is_away_for_a_moment_refuses_nothing(world: World) -> None:
    number = world.publish_version()
    world.registry = HidesItsFiles(world.registry.entries)
    world.ask("promote", number)
    world.new_controller()
    world.tick()
    assert world.aliases() == {"promote": number}
    assert "away" in world.controller.problems["support: registry"]
    world.registry.hidden = False
    world.tick()
    assert world.aliases() == {"challenger": number}
    assert world.actions == ["start"]


class HidesItsFiles(MemoryRegistry):
    """It answers, and its artifacts cannot be had for now."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries=entries)
        self.hidden = True

    def fetch(self, version: ModelVersion, adapters_dir: Path) -> Path:
        if self.hidden:
            raise RegistryUnavailable("its artifacts are away")
        return super().fetch(version, adapters_dir)


def test_a_wish_that_comes_while_another_is_dealt_with_is_not_taken_away(world: World) -> None:
    first, second = world.publish_version(), world.publish_version()
    world.ask("promote", first)
    world.registry = MovedMeanwhile(world.registry.entries, second)
    world.registry.set_alias("support", "promote", first)
    world.new_controller()
    world.tick()
    assert world.aliases() == {"challenger": first, "promote": second}
    world.controller.roll_back("support", "bo", "the other one is better")
    world.tick()
    assert world.aliases() == {"challenger": second}


class MovedMeanwhile(MemoryRegistry):
    """Somebody moves `promote` to another version just when its first wish has been granted."""

    def __init__(self, entries: dict[Any, Any], to: int) -> None:
        super().__init__(entries=entries)
        self._to = to

    def set_tags(self, business: str, version: int, tags: Mapping[str, str]) -> None:
        super().set_tags(business, version, tags)
        if version != self._to:
            self.set_alias(business, "promote", self._to)


def test_a_wish_that_is_made_again_while_the_last_one_is_dealt_with_is_not_taken_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.promoted()
    number = world.publish_version()
    drop, again = world.registry.drop_alias, iter([True])

    def drop_and_be_overtaken(business: str, alias: str, version: int) -> None:
        drop(business, alias, version)
        if next(again, False):  # a person rolls back, and asks for the same version again
            world.controller.roll_back("support", "bo", "not now")
            world.ask("promote", number)

    monkeypatch.setattr(world.registry, "drop_alias", drop_and_be_overtaken)
    world.ask("promote", number)
    for _ in range(3):
        world.tick()
    assert isinstance(world.state, Canary)


def test_a_lost_control_database_takes_over_the_champion_of_the_registry_and_numbers_on(
    world: World, tmp_path: Path, scripted_engines: ScriptedEngines
) -> None:
    first = world.promoted()
    (tmp_path / "second").mkdir()
    with World(tmp_path / "second", scripted_engines, world.registry, auto_canary=True) as lost:
        lost.gateway = world.gateway
        lost.new_controller()
        lost.now = world.now + timedelta(minutes=1)
        held = world.gateway.routes.generation
        lost.tick()
        lost.tick()
        assert lost.route.stable.version == first
        assert lost.gateway.routes.generation > held
        assert lost.aliases() == {"champion": first}


def test_a_registry_that_takes_no_writes_does_not_bring_a_rolled_back_version_back(world: World) -> None:
    """The wish for it still stands in the registry, and was dealt with."""
    number = world.publish_version()
    world.ask("promote", number)
    world.registry = ReadOnly(world.registry.entries)
    world.registry.aliased = {"promote": number}
    world.new_controller()
    world.tick()
    assert isinstance(world.state, Canary)
    world.controller.roll_back("support", "bo", "complaints")
    world.tick()
    world.tick()
    assert isinstance(world.state, Steady)
    assert "support: registry" in world.controller.problems


class ReadOnly(MemoryRegistry):
    """Its database is full."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries=entries)
        self.aliased: dict[str, int] = {}

    def aliases(self, business: str) -> dict[str, int]:
        return self.aliased

    def set_tags(self, business: str, version: int, tags: Mapping[str, str]) -> None:
        raise RegistryUnavailable("the registry's disk is full")


def test_a_control_database_that_refuses_is_a_problem_that_says_what_to_do_and_ends_with_it(world: World) -> None:
    world.promoted()
    with world._database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE rollouts RENAME TO away")  # as good as a full disk: nothing is taken
    world.tick()
    told = [problem for where, problem in world.controller.problems.items() if where.startswith("support: ")]
    assert told
    assert all("free some space" in problem for problem in told)
    with world._database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO rollouts")
    world.tick()
    assert world.controller.problems == {}
