"""The way of a version into service and back: wishes, evidence, alarms and rollbacks."""

from pathlib import Path

import pytest

from flows.controller.gateways import GatewayUnavailable
from pipeline.gateway.guard import Trip
from pipeline.registry.alias_log import AliasChange
from pipeline.rollout.state import Canary, Paused, Steady
from tests.controller_world import ScriptedEngines, World


def test_a_business_without_any_adapter_is_served_by_the_base_model(world: World) -> None:
    world.tick()
    assert world.route.stable.model == "base"
    assert world.route.stable.replicas == world.urls("base")
    assert world.route.candidate is None


def test_a_promoted_version_goes_through_its_canary_and_ends_as_champion(world: World) -> None:
    version = world.publish_version()
    world.ask("promote", version)
    world.tick()
    assert world.route.candidate is not None
    assert world.route.candidate.model == world.name(version)  # type: ignore[union-attr]
    assert world.route.candidate.replicas == world.urls("one", "two")  # type: ignore[union-attr]
    assert (world.route.share, world.route.stable.model) == (0.5, "base")
    assert world.aliases() == {"challenger": 1}
    world.talk()
    world.tick(minutes=6)
    assert world.route.share == 1.0
    world.talk()
    world.tick(minutes=6)
    assert world.aliases() == {"champion": 1}
    assert (world.route.stable.model, world.route.candidate) == (world.name(version), None)
    assert world.tags(1)["rollout"] == "stable"
    assert world.tags(1)["rollout_by"] == "controller"
    report = world.config.state_dir / "reports" / "support" / "rollout-v1.html"
    assert "<html" in report.read_text(encoding="utf-8")
    assert world.actions == ["start", "advance", "promote"]


def test_a_decision_s_page_on_disk_tells_how_its_rollout_goes_and_ends(world: World) -> None:
    version = world.publish_version()
    page = world.config.state_dir / "reports" / "support" / f"decision-v{version}.html"
    page.parent.mkdir(parents=True)
    page.write_text("<h1>Fit</h1><!--canary:en-->Not begun.<!--/canary--><p>Lineage</p>", encoding="utf-8")
    told = []
    world.ask("promote", version)
    for _ in range(3):
        world.tick(minutes=6)
        told.append(page.read_text(encoding="utf-8"))
        world.talk()
    assert ["is being tried with 50% of the users" in text for text in told] == [True, False, False]
    assert "Version 1 is in service for everyone" in told[-1]
    assert all(text.startswith("<h1>Fit</h1>") and text.endswith("<p>Lineage</p>") for text in told)


def test_the_predecessor_stays_loaded_for_rollback(world: World) -> None:
    first, second = world.promoted(), world.promoted()
    assert world.aliases() == {"champion": second, "previous": first}
    assert world.servers["two"].list() == tuple(sorted([world.name(first), world.name(second)]))


def test_doing_nothing_changes_nothing(world: World) -> None:
    world.in_canary()
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


def test_a_worse_candidate_is_rolled_back_and_not_started_again(
    tmp_path: Path, scripted_engines: ScriptedEngines
) -> None:
    with World(tmp_path, scripted_engines, auto_canary=True) as world:
        _see_it_rolled_back_for_good(world)


def _see_it_rolled_back_for_good(world: World) -> None:
    world.tick()
    world.publish_version()
    world.tick()
    assert isinstance(world.state, Canary)
    world.talk(status=500, choices=(), stream_end="upstream_error")
    world.tick(minutes=1)
    rolled_back = world.state
    assert isinstance(rolled_back, Steady)
    assert rolled_back.last is not None
    assert "hard_failure" in rolled_back.last.reason
    assert world.route.candidate is None
    assert world.tags(1)["rollout"] == "rolled_back"
    assert world.aliases() == {}
    for _ in range(3):
        world.tick(minutes=10)
    assert isinstance(world.state, Steady)
    world.publish_version("reject")
    world.tick()
    assert isinstance(world.state, Steady)
    world.publish_version()
    world.tick()
    assert isinstance(world.state, Canary)


def test_without_traffic_a_canary_holds_and_is_rolled_back_at_its_time_out(world: World) -> None:
    world.in_canary()
    world.tick(minutes=58)
    assert isinstance(world.state, Canary)
    world.tick(minutes=3)
    assert isinstance(world.state, Steady)
    assert "timed out" in world.tags(2)["rollout_why"]


def test_an_event_log_that_cannot_be_read_is_no_evidence_and_no_excuse(world: World) -> None:
    world.in_canary()
    lake = world.config.state_dir / "events" / "lake" / "support" / "2026-03-10"
    lake.mkdir(parents=True)
    (lake / "gone.parquet").symlink_to(lake / "nowhere")
    world.tick()
    assert "support: evidence" in world.controller.problems
    world.tick(minutes=61)
    assert isinstance(world.state, Steady)


def test_a_gateway_s_alarm_rolls_back_and_an_old_one_does_not(world: World) -> None:
    _, candidate = world.in_canary()
    old = Trip(business="support", model=world.name(candidate), salt="an earlier rollout's", at=world.now, failures=5)
    world.gateway.tripped = (old,)
    world.tick()
    assert isinstance(world.state, Canary)
    world.gateway.tripped = (old.model_copy(update={"salt": world.route.salt}),)
    world.tick()
    assert isinstance(world.state, Steady)
    assert world.tags(candidate)["rollout_by"] == "gateway"


def test_a_rollback_reaches_the_gateways_before_it_returns_and_needs_neither_registry_nor_engines(
    world: World,
) -> None:
    stable, _ = world.in_canary()
    world.registry.available = False
    for engine in world.engines.values():
        engine.stop()
    world.new_controller()
    world.controller.roll_back("support", "bo", "complaints")
    assert world.route.candidate is None
    assert (world.route.stable.version, world.route.stable.replicas) == (stable, world.urls("one", "two"))
    world.tick()
    world.registry.available = True
    world.tick()
    assert world.aliases() == {"champion": stable}
    assert world.tags(2)["rollout_by"] == "bo"


def test_a_rollback_says_when_a_gateway_did_not_hear_it_and_the_next_tick_tells_it(world: World) -> None:
    world.in_canary()
    world.gateway.down = True
    with pytest.raises(GatewayUnavailable):
        world.controller.roll_back("support", "bo", "complaints")
    assert world.route.candidate is not None
    world.gateway.down = False
    world.tick()
    assert world.route.candidate is None


def test_the_last_promotion_is_rolled_back_to_the_previous_version_once(world: World) -> None:
    first, second = world.promoted(), world.promoted()
    world.controller.roll_back("support", "bo", "complaints")
    world.controller.roll_back("support", "bo", "clicked twice")
    world.tick()
    assert world.aliases() == {"champion": first}
    assert world.tags(second)["rollout"] == "rolled_back"


def test_a_promotion_is_rolled_back_by_a_controller_that_has_just_started_without_registry_and_engines(
    world: World,
) -> None:
    first, _ = world.promoted(), world.promoted()
    name = world.name(first)
    world.registry.available = False
    for engine in world.engines.values():
        engine.stop()
    world.new_controller()
    world.controller.roll_back("support", "bo", "complaints")
    stable = world.route.stable
    assert (stable.version, stable.model, stable.replicas) == (first, name, world.urls("one", "two"))


def test_an_alias_rollback_returns_to_its_version_even_if_that_has_to_be_loaded_first(world: World) -> None:
    first = world.promoted()
    world.promoted()
    third = world.promoted()
    world.tick(minutes=2)
    world.tick(minutes=2)
    name = world.name(first)
    assert name not in world.servers["one"].list()
    world.engines["one"].stop()
    world.engines["two"].stop()
    world.ask("rollback", first)
    world.tick()
    assert world.route.stable.version == third  # serving goes on until the other one can take over
    world.engines["one"].start()
    world.engines["two"].start()
    world.tick()
    assert (world.route.stable.model, world.route.stable.replicas) == (name, world.urls("one", "two"))
    assert world.aliases() == {"champion": first}


def test_a_champion_moved_by_hand_is_put_back_and_means_promote_or_rollback(world: World) -> None:
    first, second = world.promoted(), world.promoted()
    third = world.publish_version()
    world.ask("champion", third)
    world.tick()
    assert isinstance(world.state, Canary)
    assert world.aliases() == {"champion": second, "challenger": third, "previous": first}
    world.ask("champion", first)
    world.tick()
    assert world.aliases() == {"champion": first}
    assert world.route.stable.version == first
    world.publish_version("reject")
    for _ in range(2):  # the same wish again is heard again
        world.ask("champion", 4)
        world.tick()
        assert world.aliases() == {"champion": first}
    assert world.actions[-2:] == ["refuse", "refuse"]
    world.registry.drop_alias("support", "champion", first)
    world.tick()
    assert world.aliases() == {"champion": first}


def test_a_paused_canary_waits_and_goes_on(world: World) -> None:
    world.in_canary()
    world.talk()
    world.controller.pause("support", "bo", "holiday")
    world.tick(minutes=90)
    assert isinstance(world.state, Paused)
    assert world.route.share == 0.5
    world.controller.resume("support", "bo", "back")
    world.tick(minutes=1)
    assert world.route.share == 1.0


def test_two_controllers_do_not_undo_each_other(world: World) -> None:
    world.in_canary()
    mine, other = world.controller, world.new_controller()
    world.talk()
    world.tick(minutes=6)
    before = world.outcome()
    mine.tick(world.now)
    other.tick(world.now)
    assert world.outcome() == before
