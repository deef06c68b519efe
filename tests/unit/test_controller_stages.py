"""A version in shadow before its canary, from the alias to the routes, the tags and the page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import ShadowConfig
from pipeline.records import Route, canonical_json
from pipeline.rollout.state import Steady
from tests.builders import a_shadow
from tests.controller_world import Engines, World

SHADOW = ShadowConfig(share=0.2, min_minutes=5, min_users=10, timeout_minutes=60)


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with Engines() as running:
        yield running


def append(world: World, kind: str, records: list[Any]) -> None:
    path = world.config.state_dir / "events" / "segments" / f"gw-{world.now:%Y%m%dT%H}.jsonl"
    with path.open("a", encoding="utf-8") as segment:
        segment.writelines(canonical_json({kind: one.model_dump(mode="json")}) + "\n" for one in records)


def repeat_in_shadow(world: World, **fields: Any) -> None:
    """The candidate answers copies of what the users last asked."""
    route = world.gateway.route("support")
    assert route.candidate is not None
    told = {"rollout_salt": route.salt, "model_version": route.candidate.model, "started_at": world.now} | fields
    names = [(f"{world.now:%H%M%S}-{user}", f"u{user}", f"s{user}") for user in range(60)]
    append(world, "shadow", [a_shadow(name, user_key=user, session=session, **told) for name, user, session in names])


def state(world: World) -> Any:
    return world.store.read("support").state


def begin(world: World) -> Route:
    world.ask("promote", world.publish_version())
    world.tick()
    world.tick()
    return world.gateway.route("support")


def test_a_version_is_in_shadow_first_and_then_takes_its_steps(tmp_path: Path, engines: Engines) -> None:
    with World(tmp_path, engines, shadow=SHADOW) as world:
        route = begin(world)
        assert route.candidate is not None
        assert (route.share, route.shadow) == (0.0, 0.2)
        assert world.tags(1)["rollout"] == "shadow"
        assert world.aliases()["challenger"] == 1
        world.talk()
        repeat_in_shadow(world)
        world.tick(minutes=5)
        now = world.gateway.route("support")
        assert (now.share, now.shadow, now.salt) == (0.5, 0.0, route.salt)
        assert world.tags(1)["rollout"] == "canary, step 1"


def test_a_version_that_fails_in_shadow_is_rolled_back_and_nobody_got_it(tmp_path: Path, engines: Engines) -> None:
    with World(tmp_path, engines, shadow=SHADOW) as world:
        begin(world)
        world.talk()
        repeat_in_shadow(world, choices=(), status=500, stream_end="upstream_error")
        world.tick(minutes=1)
        assert isinstance(state(world), Steady)
        assert "hard_failure_limit" in state(world).last.reason
        assert world.gateway.route("support").candidate is None
        assert (world.config.state_dir / "reports" / "support" / "rollout-v1.html").is_file()


def test_a_shadow_without_copies_waits_and_then_gives_up(tmp_path: Path, engines: Engines) -> None:
    with World(tmp_path, engines, shadow=SHADOW) as world:
        begin(world)
        world.talk()
        world.tick(minutes=59)
        assert state(world).in_shadow
        world.tick(minutes=1)
        assert "the shadow timed out" in state(world).last.reason
