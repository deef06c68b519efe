"""Rollouts in the control database: nobody overwrites what they have not read."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.config import RolloutConfig
from pipeline.control import open_control_in
from pipeline.records import ModelVersion, Route, Target
from pipeline.rollout.ledger import Ledger, Request, record_decision
from pipeline.rollout.requests import read_request
from pipeline.rollout.state import Canary, Steady, pause, roll_back, start
from pipeline.rollout.store import RolloutStore, WriteConflict
from tests.builders import a_version

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
STEADY = Steady(business="support", stable=1)


@pytest.fixture
def store(tmp_path: Path) -> RolloutStore:
    return RolloutStore(open_control_in(tmp_path))


def a_canary(candidate: int = 2) -> Canary:
    return start(STEADY, candidate, NOW, RolloutConfig(), "anna")


def test_a_business_nobody_wrote_about_is_served_by_the_base_model(store: RolloutStore) -> None:
    assert store.read("support") == (0, Ledger(state=Steady(business="support")))


def test_every_state_comes_back_as_it_was_written(store: RolloutStore) -> None:
    canary = a_canary()
    for generation, state in enumerate((STEADY, canary, pause(canary, "bo", NOW), roll_back(canary, "bo", "bad", NOW))):
        written = store.write(Ledger(state=state, champion_seen=1), generation, NOW)
        assert store.read("support") == written
        assert written.generation == generation + 1


@pytest.mark.parametrize("generation", [0, 1, 3])
def test_a_writer_who_read_another_generation_is_refused(store: RolloutStore, generation: int) -> None:
    store.write(Ledger(state=STEADY), 0, NOW)
    kept = store.write(Ledger(state=a_canary()), 1, NOW)
    with pytest.raises(WriteConflict, match=f"generation {generation}"):
        store.decide(kept._replace(generation=generation), STEADY, NOW, actor="bo", action="roll_back", reason="late")
    assert store.read("support") == kept
    assert store.history("support") == ()


def test_the_audit_trail_says_who_when_and_why_oldest_first(store: RolloutStore) -> None:
    begun = store.decide(store.read("support"), a_canary(), NOW, actor="anna", action="start", reason="asked for")
    store.decide(begun, roll_back(a_canary(), "bo", "bad", NOW), NOW, actor="bo", action="roll_back", reason="bad")
    store.audit("kefu", "carla", "note", {"about": "another business"}, NOW)
    told = [(e.actor, e.action, e.detail["version"], e.detail["reason"], e.at) for e in store.history("support")]
    assert told == [("anna", "start", 2, "asked for", NOW), ("bo", "roll_back", 2, "bad", NOW)]
    assert [entry.actor for entry in store.history("support", limit=1)] == ["bo"]


def test_routes_are_kept_by_compare_and_set_too(store: RolloutStore) -> None:
    assert store.routes().generation == 0
    routes = (Route(business="support", stable=Target(model="base", version=None, replicas=("http://e",))),)
    assert store.publish(routes, 0, NOW) == store.routes()
    first = store.routes().generation
    for stale in (0, first - 1, first + 1):
        with pytest.raises(WriteConflict):
            store.publish((), stale, NOW)
    assert store.publish((), first, NOW).generation == first + 1


def test_what_a_decision_owes_is_kept_until_it_is_done_and_what_was_owed_before_is_not_lost() -> None:
    wish = Request("promote", 2, "promote")
    begun, _ = record_decision(
        Ledger(state=STEADY), a_canary(), actor=wish.actor, action="start", reason="wish", now=NOW, request=wish
    )
    assert begun.newest_tried == 2
    assert [(o.version, o.tags.get("rollout"), o.drop_alias) for o in begun.owed] == [
        (2, "canary, step 1", None),
        (2, None, "promote"),
    ]
    steady = roll_back(a_canary(), "bo", "bad", NOW)
    ended, entry = record_decision(begun, steady, actor="bo", action="roll_back", reason="bad", now=NOW)
    assert ended.owed[:2] == begun.owed
    assert ended.owed[2].report == steady.last
    assert ended.owed[2].tags == {
        "rollout": "rolled_back",
        "rollout_by": "bo",
        "rollout_at": "2026-03-10T12:00:00+00:00",
        "rollout_why": "bad",
    }
    assert entry.detail == {"version": 2, "reason": "bad", "state": "steady"}


def versions(*gates: str) -> list[ModelVersion]:
    return [a_version(number, gate=gate) for number, gate in enumerate(gates, start=1)]


@pytest.mark.parametrize(
    ("aliases", "wish"),
    [
        ({}, None),
        ({"champion": 2}, None),
        ({"promote": 3}, Request("promote", 3, "promote")),
        ({"promote": 3, "rollback": 1}, Request("return", 1, "rollback")),
        ({"champion": 3}, Request("promote", 3, "champion")),
        ({"champion": 1}, Request("return", 1, "champion")),
        ({"champion": 4}, None),  # dealt with before, and not yet put back
    ],
)
def test_wishes_are_read_off_the_aliases(aliases: dict[str, int], wish: Request | None) -> None:
    ledger = Ledger(state=Steady(business="support", stable=2, previous=1), champion_seen=4)
    assert read_request(ledger, aliases, versions("promote", "promote", "promote"), auto_canary=False) == wish


def test_a_wish_for_another_version_waits_until_the_canary_has_ended() -> None:
    ledger = Ledger(state=a_canary(2), champion_seen=1)
    assert read_request(ledger, {"champion": 1, "promote": 3}, versions(), auto_canary=True) is None
    assert read_request(ledger, {"champion": 1, "promote": 2}, versions(), False) == Request("promote", 2, "promote")


@pytest.mark.parametrize(
    ("gates", "tried", "wished"),
    [
        (("promote", "promote"), 0, 2),
        (("promote", "promote", "promote", "reject", "pending"), 0, 3),
        (("promote", "promote"), 2, None),  # rolled back before
        (("promote", "inconclusive"), 0, None),
        (("promote",), 0, None),
    ],
)
def test_auto_canary_starts_the_newest_version_that_passed_and_none_twice(
    gates: tuple[str, ...], tried: int, wished: int | None
) -> None:
    ledger = Ledger(state=STEADY, newest_tried=tried)
    expected = None if wished is None else Request("promote", wished, "auto_canary")
    assert read_request(ledger, {}, versions(*gates), auto_canary=True) == expected
    assert read_request(ledger, {}, versions(*gates), auto_canary=False) is None
