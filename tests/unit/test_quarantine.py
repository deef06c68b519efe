"""What the screen finds is held until a person decides, and a decision holds for later nights."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from flows.cli import main
from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.pii import PatternDetector
from pipeline.clean.steps import clean_records
from pipeline.collect.join import join_feedback
from pipeline.collect.quarantine import Quarantine, news, screen_and_withhold, withhold
from pipeline.config import DatasetConfig, PoisonConfig
from pipeline.control import open_control_in
from pipeline.dataset.build import build_rows
from pipeline.dataset.snapshot import write_snapshot
from pipeline.errors import DataError
from pipeline.records import Dropped, DropReason, Finding, Quarantined, QuarantineState, RatedInteraction
from pipeline.rollout.store import RolloutStore
from tests.builders import NOON, a_rated, a_signal, an_interaction
from tests.poison_world import poisoned_world

HELD, RELEASED, DROPPED = QuarantineState.HELD, QuarantineState.RELEASED, QuarantineState.DROPPED


def a_finding(*events: str, reason: str = "burst", business: str = "support") -> Finding:
    values: dict[str, Any] = {"business": business, "reason": reason, "evidence": "30 signals of one user"}
    return Finding(**values, user_keys=("u1",), interaction_ids=("i1",), event_ids=events)


def an_entry(state: QuarantineState, *events: str, reason: str = "burst") -> Quarantined:
    return Quarantined(finding=a_finding(*events, reason=reason), state=state, found_at=NOON)


def a_vote(name: str, *events: str, user: str = "u1", value: Any = "up") -> RatedInteraction:
    return a_rated(an_interaction(name), a_signal(value=value, event_ids=events or (name,), user_key=user))


def reasons(dropped: Sequence[Dropped]) -> dict[str, str]:
    return {d.interaction_id: d.reason.value for d in dropped}


@pytest.fixture
def store(tmp_path: Path) -> Quarantine:
    return Quarantine(open_control_in(tmp_path))


class TestWithhold:
    def test_held_and_dropped_are_told_apart_and_released_stays(self) -> None:
        rated = [a_vote(name) for name in "abcd"]
        kept, dropped = withhold(rated, [an_entry(HELD, "a"), an_entry(DROPPED, "b"), an_entry(RELEASED, "c")])
        assert [r.interaction.interaction_id for r in kept] == ["c", "d"]
        assert reasons(dropped) == {"a": "quarantined", "b": "poison"}
        assert all(re.fullmatch(r"burst, finding [0-9a-f]{12}", d.detail) for d in dropped)

    def test_what_others_say_about_the_same_answer_stays(self) -> None:
        honest, poison = a_signal(user_key="u2", event_ids=("e2",)), a_signal(event_ids=("e1",))
        kept, dropped = withhold([a_rated(an_interaction("i1"), honest, poison)], [an_entry(HELD, "e1")])
        assert kept == [a_rated(an_interaction("i1"), honest)]
        assert dropped == []

    def test_what_is_left_is_withdrawn(self) -> None:
        taken_back = a_signal(value=None, user_key="u2", event_ids=("e2",))
        rated = a_rated(an_interaction("i1"), taken_back, a_signal(event_ids=("e1",)))
        assert reasons(withhold([rated], [an_entry(HELD, "e1")])[1]) == {"i1": "quarantined"}

    def test_one_finding_released_does_not_free_what_another_holds(self) -> None:
        entries = [an_entry(RELEASED, "a"), an_entry(HELD, "a", reason="group")]
        assert reasons(withhold([a_vote("a")], entries)[1]) == {"a": "quarantined"}

    def test_a_vote_that_changes_stays_out_until_somebody_has_looked_at_the_change(self) -> None:
        changed = a_vote("i1", "e1", "e2")
        assert reasons(withhold([changed], [an_entry(DROPPED, "e1")])[1]) == {"i1": "poison"}
        assert withhold([changed], [an_entry(DROPPED, "e1"), an_entry(RELEASED, "e2", reason="group")])[1] == []

    @given(
        st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(list(QuarantineState))), st.sets(st.integers(0, 7))
    )
    def test_each_interaction_is_kept_or_dropped_once(
        self, states: dict[str, QuarantineState], twice: set[int]
    ) -> None:
        rated = [
            a_rated(an_interaction(name), *(a_signal(event_ids=(e,), user_key=e) for e in (name, "abcdefgh"[n - 1])))
            if n in twice
            else a_vote(name)
            for n, name in enumerate("abcdefgh")
        ]
        kept, dropped = withhold(rated, [an_entry(state, event) for event, state in states.items()])
        ids = [r.interaction.interaction_id for r in kept] + [d.interaction_id for d in dropped]
        assert sorted(ids) == list("abcdefgh")


class TestNews:
    def test_what_was_found_before_is_no_news_whatever_became_of_it(self) -> None:
        for state in QuarantineState:
            assert news([a_finding("a", "b")], [an_entry(state, "a", "b", "c")]) == []

    def test_what_is_new_is_a_finding_of_its_own(self) -> None:
        (fresh,) = news([a_finding("a", "b", "c")], [an_entry(RELEASED, "a", "b")])
        assert fresh.event_ids == ("c",)
        assert fresh.evidence.endswith("2 of its 3 signals are in earlier findings")

    def test_another_reason_is_another_finding(self) -> None:
        assert news([a_finding("a", reason="group")], [an_entry(RELEASED, "a")]) == [a_finding("a", reason="group")]


def a_flooded_window(count: int = 30) -> list[RatedInteraction]:
    """Twelve users with one vote each, and one user with many."""
    honest = [a_vote(f"h{n}", user=f"h{n}") for n in range(12)]
    return [*honest, *(a_vote(f"x{n:02d}", user="x", value="down") for n in range(count))]


class TestNights:
    def night(self, store: Quarantine, rated: list[RatedInteraction], day: int = 0) -> dict[str, str]:
        now = NOON + timedelta(days=day)
        kept, dropped = screen_and_withhold(store, rated, "support", PoisonConfig(), now)
        assert len(kept) + len(dropped) == len(rated)
        return reasons(dropped)

    def test_a_night_that_is_run_again_finds_the_same_once(self, store: Quarantine) -> None:
        first = self.night(store, a_flooded_window())
        assert set(first.values()) == {"quarantined"}
        assert len(first) == 30
        before = store.entries("support")
        assert self.night(store, a_flooded_window()) == first
        assert store.entries("support") == before
        assert len(before) == 1

    def test_released_stays_released_and_only_what_is_new_is_held(self, store: Quarantine) -> None:
        self.night(store, a_flooded_window())
        store.decide(store.entries("support")[0], RELEASED, actor="ann", why="testers", now=NOON)
        assert self.night(store, a_flooded_window(), day=1) == {}
        assert self.night(store, a_flooded_window(32), day=2) == {"x30": "quarantined", "x31": "quarantined"}

    def test_dropped_stays_out_even_when_it_is_no_burst_any_more(self, store: Quarantine) -> None:
        self.night(store, a_flooded_window())
        store.decide(store.entries("support")[0], DROPPED, actor="ann", why="spam", now=NOON)
        assert self.night(store, a_flooded_window(2), day=13) == {"x00": "poison", "x01": "poison"}

    def test_businesses_do_not_mix(self, store: Quarantine) -> None:
        store.hold([a_finding("a"), a_finding("a", business="kefu")], NOON)
        assert [len(store.entries(business)) for business in ("support", "kefu", "other")] == [1, 1, 0]


def test_the_sums_of_a_snapshot_match_with_poison_held_and_none_of_it_in_a_row(
    store: Quarantine, tmp_path: Path
) -> None:
    world = poisoned_world(3, users=250, share=0.2)
    rated = join_feedback(world.interactions, world.feedback)
    kept, held = screen_and_withhold(store, rated, "support", PoisonConfig(), NOON)
    clean, unclean = clean_records(kept, PatternDetector(), frozenset())
    unique, duplicates = drop_duplicates(clean, 0.8)
    rows, unused = build_rows(unique, "support", DatasetConfig(), NOON)
    dropped = [*held, *unclean, *duplicates, *unused]
    manifest = write_snapshot(
        tmp_path, business="support", window=(NOON, NOON), rated=rated, clean=clean, dropped=dropped, rows=rows
    )
    assert manifest.dropped[DropReason.QUARANTINED] == len(held) > 100
    assert manifest.interactions == manifest.sources + sum(manifest.dropped.values())
    found = {i for entry in store.entries("support") for i in entry.finding.interaction_ids}
    examples = [*rows.train, *rows.held_out, *rows.recent]
    assert examples
    assert not found & {i for example in examples for i in example.source.interaction_ids}


class TestStore:
    def test_holding_twice_changes_nothing_not_even_a_decision(self, store: Quarantine) -> None:
        store.hold([a_finding("a")], NOON)
        store.decide(store.entries("support")[0], RELEASED, actor="ann", why="fine", now=NOON)
        store.hold([a_finding("a"), a_finding("b")], NOON + timedelta(days=1))
        states = {entry.finding.event_ids: entry.state for entry in store.entries("support")}
        assert states == {("a",): RELEASED, ("b",): HELD}

    def test_two_people_at_once(self, store: Quarantine) -> None:
        store.hold([a_finding("a")], NOON)
        (entry,) = store.entries("support")
        assert store.decide(entry, DROPPED, actor="ann", why="spam", now=NOON)
        with pytest.raises(DataError, match="somebody else decided just now"):
            store.decide(entry, RELEASED, actor="bob", why="fine", now=NOON)
        assert not store.decide(store.entries("support")[0], DROPPED, actor="bob", why="spam", now=NOON)
        assert store.entries("support")[0].decided_by == "ann"


@pytest.fixture
def held(configs: Path) -> tuple[Path, Quarantine]:
    """Configuration and quarantine in which one finding of `support` is held."""
    store = Quarantine(open_control_in(configs.parent / "var"))
    store.hold([a_finding("a", "b")], NOON)
    return configs, store


class TestCommands:
    ID = a_finding("a", "b").finding_id

    def run(self, held: tuple[Path, Quarantine], *arguments: str, code: int = 0, business: str = "support") -> str:
        configs = ("--configs", str(held[0]), "--business", business)
        result = CliRunner().invoke(main, ["quarantine", *arguments, *configs])
        assert result.exit_code == code, result.output
        return result.output.strip()

    def test_list_show_release_drop(self, held: tuple[Path, Quarantine]) -> None:
        line = self.run(held, "list")
        assert line.split()[:3] == [self.ID[:12], "held", "burst"]
        assert line.endswith("signals 2, users 1: 30 signals of one user")
        shown = json.loads(self.run(held, "show", self.ID[:6]))
        assert (shown["finding_id"], shown["state"]) == (self.ID, "held")
        assert shown["finding"]["interaction_ids"] == ["i1"]
        assert self.run(held, "release", self.ID[:8], "--reason", "our testers") == f"{self.ID[:12]}  released"
        again = self.run(held, "release", self.ID, "--reason", "again")
        assert "released already, by " in again
        assert again.endswith(": our testers")
        assert self.run(held, "list") == "business 'support': nothing is held"
        assert " released " in self.run(held, "list", "--state", "all")
        assert self.run(held, "drop", self.ID, "--reason", "it was spam") == f"{self.ID[:12]}  dropped"
        (entry,) = held[1].entries("support")
        assert (entry.state, entry.why) == (DROPPED, "it was spam")

    def test_every_decision_is_in_the_audit_trail(self, held: tuple[Path, Quarantine]) -> None:
        self.run(held, "release", self.ID, "--reason", "our testers")
        self.run(held, "drop", self.ID, "--reason", "spam")
        trail = RolloutStore(open_control_in(held[0].parent / "var")).history("support")
        assert [(line.action, line.detail["reason"], line.detail["before"]) for line in trail] == [
            ("quarantine release", "our testers", "held"),
            ("quarantine drop", "spam", "released"),
        ]
        assert all(line.detail["finding"] == self.ID and line.actor for line in trail)

    @pytest.mark.parametrize(
        ("arguments", "business", "words"),
        [
            (["show", "abc"], "support", "'abc' is too short; name at least 6 digits of an id"),
            (["show", "f" * 12], "support", f"no finding begins with '{'f' * 12}'"),
            (["release", "f" * 12, "--reason", "x"], "support", "`tuneloop quarantine list --business support"),
            (["release", ID, "--reason", " "], "support", "--reason is empty"),
            (["drop", ID, "--reason", "x"], "kefu", "no finding begins with"),
            (["list"], "nobody", "no business 'nobody'"),
        ],
    )
    def test_a_mistake_is_one_line_that_mends(
        self, held: tuple[Path, Quarantine], arguments: list[str], business: str, words: str
    ) -> None:
        output = self.run(held, *arguments, code=2, business=business)
        assert words in output
        assert len(output.splitlines()) == 1
        assert [entry.state for entry in held[1].entries("support")] == [HELD]

    def test_one_wrong_id_stops_all(self, held: tuple[Path, Quarantine]) -> None:
        self.run(held, "drop", self.ID, "f" * 12, "--reason", "x", code=2)
        assert held[1].entries("support")[0].state is HELD

    def test_help_teaches(self) -> None:
        text = CliRunner().invoke(main, ["quarantine", "--help"]).output
        assert all(word in text for word in ("list", "show", "release", "drop", "--reason", "until you decide"))
