"""Aliases set at any time, and a controller that hears of them early, late, twice, out of order or never."""

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipeline.registry.alias_log import AliasChange
from pipeline.rollout.state import canary_of, stable_of
from tests.controller_world import ScriptedEngines, World

REJECTED = 4
"""This version did not pass the gate; 1 and 2 were in service, 3 and 5 could be."""


@dataclass(frozen=True)
class Ask:
    """A person sets an alias."""

    alias: str
    version: int
    by: str


@dataclass(frozen=True)
class Hear:
    """A webhook arrives, or the poll comes round. Which wish it is about, if any, makes no difference."""


asks = st.builds(
    Ask, st.sampled_from(["promote", "rollback", "champion"]), st.integers(1, 5), st.sampled_from(["anna", "bo"])
)
happenings = st.lists(st.one_of(asks, asks, st.just(Hear())), max_size=8)


def play(world: World, happenings: list[Ask | Hear]) -> None:
    for version in range(1, 6):
        world.publish_version("reject" if version == REJECTED else "promote")
    world.put_in_service(1)
    world.put_in_service(2)
    for happening in [*happenings, Hear(), Hear(), Hear()]:
        match happening:
            case Ask(alias, version, by):
                world.alias_log.add(AliasChange(world.now, "support", alias, version, by))
                world.ask(alias, version)
            case Hear():
                world.tick(minutes=0.1)
                route = world.route
                serving = {route.stable.version, route.candidate.version if route.candidate else None}
                assert REJECTED not in serving


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(happenings)
@example([Ask("promote", 3, "anna"), Hear(), Ask("promote", 5, "bo"), Ask("promote", 3, "anna")])
@example([Ask("promote", 3, "anna"), Ask("rollback", 1, "bo"), Hear()])
@example([Ask("promote", REJECTED, "anna"), Ask("champion", REJECTED, "bo")])
def test_there_is_one_outcome_and_the_trail_and_the_version_tell_it(
    scripted_engines: ScriptedEngines, tmp_path_factory: pytest.TempPathFactory, happenings: list[Ask | Hear]
) -> None:
    with World(tmp_path_factory.mktemp("wishes"), scripted_engines) as world:
        play(world, happenings)
        outcome, stored = world.outcome(), world.store.read("support")
        world.tick(minutes=0.1)
        assert world.outcome() == outcome  # it has settled
        canary, waiting = canary_of(stored.state), world.aliases().get("promote")
        wanted = {"champion": stable_of(stored.state), "challenger": canary.candidate if canary else None}
        assert {alias: world.aliases().get(alias) for alias in wanted} == wanted
        assert "rollback" not in world.aliases()
        assert waiting is None or (canary is not None and canary.candidate != waiting)
        asked = {(happening.by, happening.version) for happening in happenings if isinstance(happening, Ask)}
        for entry in world.store.history("support"):
            assert (entry.actor, entry.detail["version"]) in asked
            if entry.action == "refuse":
                assert "rollout_refused" in world.tags(entry.detail["version"])


@pytest.mark.parametrize(
    ("heard", "aliases"),
    [
        ((), {"challenger": 3}),
        ((0,), {"challenger": 3}),
        ((0, 1), {"challenger": 3}),
        ((0, 0, 1, 1), {"challenger": 3}),
        ((1,), {"challenger": 5, "promote": 3}),  # 3 waits for the end of the canary of 5, or for its rollback
    ],
)
def test_an_alias_set_twice_quickly_counts_where_it_ended(
    scripted_engines: ScriptedEngines,
    tmp_path_factory: pytest.TempPathFactory,
    heard: tuple[int, ...],
    aliases: dict[str, int],
) -> None:
    """3, 5, 3 again, and the controller hears of it after none, one or both of the first two."""
    quick: list[Ask | Hear] = []
    for place, ask in enumerate((Ask("promote", 3, "anna"), Ask("promote", 5, "bo"), Ask("promote", 3, "cleo"))):
        quick += [ask, *[Hear()] * heard.count(place)]
    with World(tmp_path_factory.mktemp("quick"), scripted_engines) as world:
        play(world, quick)
        assert world.aliases() == {"champion": 2, "previous": 1, **aliases}
