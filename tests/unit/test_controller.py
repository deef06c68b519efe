"""What the controller does with wishes, engines, evidence and accidents."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.controller import fleet
from flows.controller.gateways import GatewayUnavailable
from pipeline.errors import RegistryUnavailable
from pipeline.gateway.guard import Trip
from pipeline.records import ModelVersion, Route
from pipeline.registry.alias_log import AliasChange
from pipeline.registry.memory import MemoryRegistry
from pipeline.rollout.state import Canary, Paused, Steady
from tests.controller_world import Engines, World


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with Engines() as engines:
        yield engines


@pytest.fixture
def world(tmp_path: Path, engines: Engines) -> Iterator[World]:
    with World(tmp_path, engines) as world:
        yield world


def route(world: World) -> Route:
    return world.gateway.route("support")


def state(world: World) -> Steady | Canary | Paused:
    return world.store.read("support").state


def promoted(world: World) -> int:
    """A version in service, as if its canary had gone well, with its predecessor for rollback."""
    number = world.publish_version()
    world.put_in_service(number)
    world.tick()
    return number


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller gives engines a moment only."""
    monkeypatch.setattr(fleet, "PATIENCE_S", 0.3)


def eventually(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_canary(world: World) -> tuple[int, int]:
    """Stable version and candidate of a canary under way."""
    stable = promoted(world)
    candidate = world.publish_version()
    world.ask("promote", candidate)
    world.tick(minutes=1)
    assert isinstance(state(world), Canary)
    return stable, candidate


def test_a_business_without_any_adapter_is_served_by_the_base_model(world: World) -> None:
    world.tick()
    assert route(world).stable.model == "base"
    assert route(world).stable.replicas == world.urls("base")
    assert route(world).candidate is None


def test_a_promoted_version_goes_through_its_canary_and_ends_as_champion(world: World) -> None:
    version = world.publish_version()
    world.ask("promote", version)
    world.tick()
    assert route(world).candidate is not None
    assert route(world).candidate.model == world.name(version)  # type: ignore[union-attr]
    assert route(world).candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]
    assert (route(world).share, route(world).stable.model) == (0.5, "base")
    assert world.aliases() == {"challenger": 1}
    world.talk()
    world.tick(minutes=6)
    assert route(world).share == 1.0
    world.talk()
    world.tick(minutes=6)
    assert world.aliases() == {"champion": 1}
    assert (route(world).stable.model, route(world).candidate) == (world.name(version), None)
    assert world.tags(1)["rollout"] == "stable"
    assert world.tags(1)["rollout_by"] == "controller"
    report = world.config.state_dir / "reports" / "support" / "rollout-v1.html"
    assert "<html" in report.read_text(encoding="utf-8")
    assert [entry.action for entry in world.store.history("support")] == ["start", "advance", "promote"]


def test_the_predecessor_stays_loaded_for_rollback(world: World) -> None:
    first, second = promoted(world), promoted(world)
    assert world.aliases() == {"champion": second, "previous": first}
    assert world.servers["two"].list() == tuple(sorted([world.name(first), world.name(second)]))


def test_doing_nothing_changes_nothing(world: World) -> None:
    in_canary(world)
    before, pushes = world.outcome(), len(world.gateway.pushes)
    for _ in range(3):
        world.tick()
    assert world.outcome() == before
    assert len(world.gateway.pushes) == pushes


def test_the_trail_and_the_version_name_the_person_who_set_the_alias(world: World) -> None:
    world.publish_version()
    for by, version in (("bo", 2), ("anna", 1)):
        world.alias_log.add(AliasChange(world.now, "support", "promote", version, by))
    world.ask("promote", 1)
    world.tick()
    (entry,) = world.store.history("support")
    assert (entry.actor, entry.action, entry.detail["reason"]) == ("anna", "start", "asked for by anna (alias promote)")
    assert world.tags(1)["rollout_by"] == "anna"


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


@pytest.mark.parametrize("gate", ["pending", "reject", "inconclusive"])
def test_what_did_not_pass_the_gate_is_refused_and_told_why(world: World, gate: str) -> None:
    world.publish_version(gate)
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert isinstance(state(world), Steady)
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
    assert isinstance(state(world), Canary)
    assert "rollout_refused" not in world.tags(1)


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
    assert [entry.action for entry in world.store.history("support")] == ["start"]


class HidesItsFiles(MemoryRegistry):
    """It answers, and its artifacts cannot be had for now."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries=entries)
        self.hidden = True

    def fetch(self, version: ModelVersion, adapters_dir: Path) -> Path:
        if self.hidden:
            raise RegistryUnavailable("its artifacts are away")
        return super().fetch(version, adapters_dir)


def test_an_engine_that_says_yes_and_serves_the_base_gets_no_traffic(world: World) -> None:
    world.publish_version()
    for engine in world.engines.values():
        engine.faults.serve_base = True
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert isinstance(state(world), Steady)
    assert "engines do not serve it" in world.tags(1)["rollout_refused"]
    assert route(world).candidate is None
    assert world.servers["one"].list() == world.servers["two"].list() == ()


def test_a_canary_waits_for_a_silent_engine_to_be_out_of_the_way_or_ready(world: World) -> None:
    world.publish_version()
    world.engines["one"].stop()
    world.engines["two"].stop()
    world.ask("promote", 1)
    world.tick()
    assert isinstance(state(world), Steady)
    assert world.aliases() == {"promote": 1}
    world.engines["two"].start()
    world.tick()
    assert route(world).candidate.replicas == world.urls("two")  # type: ignore[union-attr]
    world.engines["one"].start()
    world.tick()
    assert route(world).candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]


def test_a_restarted_engine_is_out_of_the_routes_until_it_is_whole_again(world: World) -> None:
    in_canary(world)
    world.engines["one"].restart()
    world.busy = True  # one adapter a tick
    world.tick()
    assert world.servers["one"].list() == (route(world).stable.model,)
    assert route(world).stable.replicas == world.urls("two")
    assert route(world).candidate.replicas == world.urls("two")  # type: ignore[union-attr]
    world.tick()
    assert route(world).stable.replicas == route(world).candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]


def test_engines_that_all_restarted_get_no_traffic_before_they_are_proven(world: World) -> None:
    in_canary(world)
    for name in ("one", "two"):
        world.engines[name].restart()
        world.engines[name].faults.refuse_loads = "no room"
    world.new_controller().tick(world.now)
    assert route(world).candidate is None
    assert route(world).stable.replicas == ()
    for name in ("one", "two"):
        world.engines[name].faults.refuse_loads = ""
    world.tick()
    assert route(world).stable.replicas == world.urls("one", "two")
    assert route(world).candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]


def test_an_engine_that_hangs_keeps_neither_rollouts_nor_other_engines_waiting(world: World, impatient: None) -> None:
    """It hangs for longer than a tick waits for it; what is asked of it meanwhile is not piled up."""
    stable, _ = in_canary(world)
    world.engines["one"].faults.hang = True
    world.tick()
    assert route(world).stable.replicas == route(world).candidate.replicas == world.urls("two")  # type: ignore[union-attr]
    threads = threading.active_count()
    world.ask("rollback", stable)
    world.tick()
    assert route(world).candidate is None
    assert threading.active_count() <= threads
    world.engines["one"].faults.hang = False
    eventually(lambda: world.tick() or route(world).stable.replicas == world.urls("one", "two"))


def test_a_load_that_hangs_is_left_behind_when_something_urgent_comes(world: World, impatient: None) -> None:
    stable = promoted(world)
    loads = world.engines["one"].loads
    world.engines["one"].restart()
    world.engines["one"].faults.hang_loads = True
    world.busy = True
    world.tick()
    world.tick()
    assert route(world).stable.replicas == world.urls("two")
    world.engines["one"].faults.hang_loads = False
    eventually(lambda: world.tick() or route(world).stable.replicas == world.urls("one", "two"))
    assert world.engines["one"].loads == loads + 1
    assert route(world).stable.version == stable


def test_a_full_engine_makes_room_by_what_is_unneeded_for_the_longest_and_never_by_what_is_needed(
    tmp_path: Path, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "SPARE", 1)
    with World(tmp_path, engines, max_adapters=3) as world:
        _see_room_made(world)


def _see_room_made(world: World) -> None:
    promoted(world)
    rest = [promoted(world) for _ in range(2)]
    world.tick(minutes=1)  # the first is unneeded from now on, and may still be asked for
    rest += [promoted(world), promoted(world)]
    assert route(world).stable.replicas == world.urls("one", "two")
    for name in ("one", "two"):
        assert world.servers[name].list() == tuple(sorted(world.name(number) for number in rest))


def test_an_engine_that_is_silent_for_a_moment_is_better_than_none(world: World) -> None:
    promoted(world)
    world.engines["one"].stop()
    world.engines["two"].stop()
    world.tick()
    assert route(world).stable.replicas == world.urls("one", "two")
    world.new_controller().tick(world.now)
    assert route(world).stable.replicas == world.urls("one", "two")


def test_what_nobody_needs_is_unloaded_after_a_while_and_what_is_at_the_gate_is_left_alone(world: World) -> None:
    first, second = in_canary(world)
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


def test_a_worse_candidate_is_rolled_back_and_not_started_again(tmp_path: Path, engines: Engines) -> None:
    with World(tmp_path, engines, auto_canary=True) as world:
        _see_it_rolled_back_for_good(world)


def _see_it_rolled_back_for_good(world: World) -> None:
    world.tick()
    world.publish_version()
    world.tick()
    assert isinstance(state(world), Canary)
    world.talk(status=500, choices=(), stream_end="upstream_error")
    world.tick(minutes=1)
    rolled_back = state(world)
    assert isinstance(rolled_back, Steady)
    assert rolled_back.last is not None
    assert "hard_failure" in rolled_back.last.reason
    assert route(world).candidate is None
    assert world.tags(1)["rollout"] == "rolled_back"
    assert world.aliases() == {}
    for _ in range(3):
        world.tick(minutes=10)
    assert isinstance(state(world), Steady)
    world.publish_version("reject")
    world.tick()
    assert isinstance(state(world), Steady)
    world.publish_version()
    world.tick()
    assert isinstance(state(world), Canary)


def test_without_traffic_a_canary_holds_and_is_rolled_back_at_its_time_out(world: World) -> None:
    in_canary(world)
    world.tick(minutes=58)
    assert isinstance(state(world), Canary)
    world.tick(minutes=3)
    assert isinstance(state(world), Steady)
    assert "timed out" in world.tags(2)["rollout_why"]


def test_an_event_log_that_cannot_be_read_is_no_evidence_and_no_excuse(world: World) -> None:
    in_canary(world)
    lake = world.config.state_dir / "events" / "lake" / "support" / "2026-03-10"
    lake.mkdir(parents=True)
    (lake / "gone.parquet").symlink_to(lake / "nowhere")
    world.tick()
    assert "support: evidence" in world.controller.problems
    world.tick(minutes=61)
    assert isinstance(state(world), Steady)


def test_a_gateway_s_alarm_rolls_back_and_an_old_one_does_not(world: World) -> None:
    _, candidate = in_canary(world)
    model = world.name(candidate)
    old = Trip(business="support", model=model, at=world.now.replace(year=2025), failures=5)
    world.gateway.tripped = (old,)
    world.tick()
    assert isinstance(state(world), Canary)
    world.gateway.tripped = (old.model_copy(update={"at": world.now}),)
    world.tick()
    assert isinstance(state(world), Steady)
    assert world.tags(candidate)["rollout_by"] == "gateway"


def test_a_rollback_reaches_the_gateways_before_it_returns_and_needs_neither_registry_nor_engines(
    world: World,
) -> None:
    stable, _ = in_canary(world)
    world.registry.available = False
    for engine in world.engines.values():
        engine.stop()
    world.new_controller()
    world.controller.roll_back("support", "bo", "complaints")
    assert route(world).candidate is None
    assert (route(world).stable.version, route(world).stable.replicas) == (stable, world.urls("one", "two"))
    world.tick()
    world.registry.available = True
    world.tick()
    assert world.aliases() == {"champion": stable}
    assert world.tags(2)["rollout_by"] == "bo"


def test_a_rollback_says_when_a_gateway_did_not_hear_it_and_the_next_tick_tells_it(world: World) -> None:
    in_canary(world)
    world.gateway.down = True
    with pytest.raises(GatewayUnavailable):
        world.controller.roll_back("support", "bo", "complaints")
    assert route(world).candidate is not None
    world.gateway.down = False
    world.tick()
    assert route(world).candidate is None


def test_the_last_promotion_is_rolled_back_to_the_previous_version_once(world: World) -> None:
    first, second = promoted(world), promoted(world)
    world.controller.roll_back("support", "bo", "complaints")
    world.controller.roll_back("support", "bo", "clicked twice")
    world.tick()
    assert world.aliases() == {"champion": first}
    assert world.tags(second)["rollout"] == "rolled_back"


def test_an_alias_rollback_returns_to_its_version_even_if_that_has_to_be_loaded_first(world: World) -> None:
    first = promoted(world)
    promoted(world)
    third = promoted(world)
    world.tick(minutes=2)
    world.tick(minutes=2)
    name = world.name(first)
    assert name not in world.servers["one"].list()
    world.engines["one"].stop()
    world.engines["two"].stop()
    world.ask("rollback", first)
    world.tick()
    assert route(world).stable.version == third  # serving goes on until the other one can take over
    world.engines["one"].start()
    world.engines["two"].start()
    world.tick()
    assert (route(world).stable.model, route(world).stable.replicas) == (name, world.urls("one", "two"))
    assert world.aliases() == {"champion": first}


def test_a_champion_moved_by_hand_is_put_back_and_means_promote_or_rollback(world: World) -> None:
    first, second = promoted(world), promoted(world)
    third = world.publish_version()
    world.ask("champion", third)
    world.tick()
    assert isinstance(state(world), Canary)
    assert world.aliases() == {"champion": second, "challenger": third, "previous": first}
    world.ask("champion", first)
    world.tick()
    assert world.aliases() == {"champion": first}
    assert route(world).stable.version == first
    world.publish_version("reject")
    for _ in range(2):  # the same wish again is heard again
        world.ask("champion", 4)
        world.tick()
        assert world.aliases() == {"champion": first}
    assert [entry.action for entry in world.store.history("support")][-2:] == ["refuse", "refuse"]
    world.registry.drop_alias("support", "champion", first)
    world.tick()
    assert world.aliases() == {"champion": first}


def test_a_paused_canary_waits_and_goes_on(world: World) -> None:
    in_canary(world)
    world.talk()
    world.controller.pause("support", "bo", "holiday")
    world.tick(minutes=90)
    assert isinstance(state(world), Paused)
    assert route(world).share == 0.5
    world.controller.resume("support", "bo", "back")
    world.tick(minutes=1)
    assert route(world).share == 1.0


def test_a_lost_control_database_takes_over_the_champion_of_the_registry_and_numbers_on(
    world: World, tmp_path: Path, engines: Engines
) -> None:
    first = promoted(world)
    (tmp_path / "second").mkdir()
    with World(tmp_path / "second", engines, world.registry, auto_canary=True) as lost:
        lost.gateway = world.gateway
        lost.new_controller()
        lost.now = world.now + timedelta(minutes=1)
        held = world.gateway.routes.generation
        lost.tick()
        lost.tick()
        assert route(lost).stable.version == first
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
    assert isinstance(state(world), Canary)
    world.controller.roll_back("support", "bo", "complaints")
    world.tick()
    world.tick()
    assert isinstance(state(world), Steady)
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


def test_two_controllers_do_not_undo_each_other(world: World) -> None:
    in_canary(world)
    mine, other = world.controller, world.new_controller()
    world.talk()
    world.tick(minutes=6)
    before = world.outcome()
    mine.tick(world.now)
    other.tick(world.now)
    assert world.outcome() == before


def test_a_control_database_that_refuses_is_a_problem_that_says_what_to_do_and_ends_with_it(world: World) -> None:
    promoted(world)
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


def test_a_wish_that_is_made_again_while_the_last_one_is_dealt_with_is_not_taken_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoted(world)
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
    assert isinstance(state(world), Canary)
