"""A version in shadow before its canary, and A/B tests, from the command to the routes, the tags and the page."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.controller.explain import explain
from pipeline.config import ShadowConfig
from pipeline.errors import RolloutRefused
from pipeline.gateway.guard import Trip
from pipeline.records import Route, canonical_json
from pipeline.rollout.ab import AbTest
from pipeline.rollout.state import Action, Canary, Steady
from tests.builders import a_feedback, a_shadow
from tests.controller_world import ScriptedEngines, World

SHADOW = ShadowConfig(share=0.2, min_minutes=5, min_users=10, timeout_minutes=60)


def append(world: World, kind: str, records: list[Any]) -> None:
    path = world.config.state_dir / "events" / "segments" / f"gw-{world.now:%Y%m%dT%H}.jsonl"
    with path.open("a", encoding="utf-8") as segment:
        segment.writelines(canonical_json({kind: one.model_dump(mode="json")}) + "\n" for one in records)


def repeat_in_shadow(world: World, **fields: Any) -> None:
    """The candidate answers copies of what the users last asked."""
    route = world.route
    assert route.candidate is not None
    told = {"rollout_salt": route.salt, "model_version": route.candidate.model, "started_at": world.now} | fields
    names = [(f"{world.now:%H%M%S}-{user}", f"u{user}", f"s{user}") for user in range(60)]
    append(world, "shadow", [a_shadow(name, user_key=user, session=session, **told) for name, user, session in names])


def begin(world: World) -> Route:
    world.ask("promote", world.publish_version())
    world.tick()
    world.tick()
    return world.route


def test_a_version_is_in_shadow_first_and_then_takes_its_steps(
    tmp_path: Path, scripted_engines: ScriptedEngines
) -> None:
    with World(tmp_path, scripted_engines, shadow=SHADOW) as world:
        route = begin(world)
        assert route.candidate is not None
        assert (route.share, route.shadow) == (0.0, 0.2)
        assert world.tags(1)["rollout"] == "shadow"
        assert world.aliases()["challenger"] == 1
        world.talk()
        repeat_in_shadow(world)
        told = explain(world.controller, "support", world.now + timedelta(seconds=1))
        assert told.step is not None
        assert (told.step.kind, told.step.candidate_users, told.step.control_users) == ("shadow", 60, None)
        world.tick(minutes=5)
        now = world.route
        assert (now.share, now.shadow, now.salt) == (0.5, 0.0, route.salt)
        assert world.tags(1)["rollout"] == "canary, step 1"


def test_a_version_that_fails_in_shadow_is_rolled_back_and_nobody_got_it(
    tmp_path: Path, scripted_engines: ScriptedEngines
) -> None:
    with World(tmp_path, scripted_engines, shadow=SHADOW) as world:
        begin(world)
        world.talk()
        repeat_in_shadow(world, choices=(), status=500, stream_end="upstream_error")
        world.tick(minutes=1)
        assert isinstance(world.state, Steady)
        assert "hard_failure_limit" in world.state.last.reason
        assert world.route.candidate is None
        assert (world.config.state_dir / "reports" / "support" / "rollout-v1.html").is_file()


def test_a_shadow_without_copies_waits_and_then_gives_up(tmp_path: Path, scripted_engines: ScriptedEngines) -> None:
    with World(tmp_path, scripted_engines, shadow=SHADOW) as world:
        begin(world)
        world.talk()
        world.tick(minutes=59)
        assert world.state.in_shadow
        world.tick(minutes=1)
        assert "the shadow timed out" in world.state.last.reason


def start_ab(world: World, days: float = 7, share: float = 0.5) -> Route:
    version = world.publish_version()
    world.tick()
    ab = AbTest(share=share, until=world.now + timedelta(days=days))
    world.controller.start("support", version, "anna", "which one sells more?", ab)
    world.tick()
    return world.route


def test_an_ab_test_keeps_its_split_until_its_end_and_tells_how_users_did(
    tmp_path: Path, scripted_engines: ScriptedEngines
) -> None:
    with World(tmp_path, scripted_engines, shadow=SHADOW) as world:
        route = start_ab(world)
        assert (route.share, route.shadow) == (0.5, 0.0)
        assert route.candidate is not None
        assert world.tags(1)["rollout"] == "A/B test"
        for _ in range(3):
            world.talk()
            votes = [
                a_feedback(
                    f"e{world.now:%d}-{user}", f"{world.now:%H%M%S}-{user}", "outcome", "passed", user_key=f"u{user}"
                )
                for user in range(60)
            ]
            append(world, "feedback", votes)
            world.tick(minutes=60 * 24 * 2)
            assert world.route == route
        told = explain(world.controller, "support", world.now + timedelta(seconds=1))
        assert told.step is not None
        assert (told.action, told.step.kind) == (Action.HOLD, "A/B test")
        world.tick(minutes=60 * 24)
        ended = world.state
        assert isinstance(ended, Steady)
        assert (ended.stable, ended.last.result) == (None, "ended")
        (step,) = ended.last.steps
        outcomes = {check.metric: check for check in step.checks if check.role == "information"}
        assert set(outcomes) == {"outcome_failed", "thumb_up", "thumb_down", "edit", "regeneration"}
        assert outcomes["outcome_failed"].users == 60
        assert world.route.candidate is None
        assert world.tags(1)["rollout"] == "ended"
        assert (world.config.state_dir / "reports" / "support" / "rollout-v1.html").is_file()


def test_an_ab_test_is_ended_by_step_and_then_the_version_may_be_promoted(world: World) -> None:
    start_ab(world, share=0.3)
    with pytest.raises(RolloutRefused, match="an A/B test with version 1 is under way"):
        world.controller.start("support", world.publish_version(), "bo", "mine is better")
    world.ask("promote", 1)
    world.tick()
    assert "an A/B test with version 1 is under way" in world.tags(1)["rollout_refused"]
    world.controller.step("support", "anna", "we know enough")
    assert world.state.last.result == "ended"
    world.ask("promote", 1)
    world.tick()
    world.tick()
    assert isinstance(world.state, Canary)
    assert world.state.ab is None


def test_a_gateway_that_sees_hard_failures_breaks_an_ab_test_off(world: World) -> None:
    salt = start_ab(world).salt
    world.gateway.tripped = (Trip(business="support", model=world.name(1), salt=salt, at=world.now, failures=5),)
    world.tick(minutes=1)
    assert world.state.last.result == "rolled_back"


def test_an_ab_test_whose_end_is_past_does_not_begin(world: World) -> None:
    start_ab(world, days=-1)
    assert isinstance(world.state, Steady)
    assert "which is past" in world.tags(1)["rollout_refused"]
