"""An erased user is nowhere any more, everybody else is untouched, and what saw the user says so."""

from copy import deepcopy
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.erasure import Plan, make_plan
from pipeline.collect.quarantine import Quarantine
from pipeline.dataset.catalogue import list_snapshots
from pipeline.dataset.redaction import read_redactions
from pipeline.dataset.snapshot import read_dropped, read_manifest, read_snapshot
from pipeline.errors import TrainingError
from pipeline.events.lake import compact
from pipeline.events.shadows import read_shadow_pairs
from pipeline.records import Split
from pipeline.registry.memory import MemoryRegistry
from pipeline.rollout.store import RolloutStore
from pipeline.train.process import train_adapter
from pipeline.train.recipe import Recipe
from tests.erasure_world import (
    EVER,
    LATER,
    MARK,
    NEEDLES,
    NIGHT,
    OTHER,
    THIRD,
    USER,
    USER_ID,
    erase_user,
    events,
    found_in,
    ids,
    places,
    tables,
    write_quotes,
)


def registry_text(registry: MemoryRegistry) -> str:
    return repr(registry.entries)


def test_the_user_is_in_no_byte_that_is_left(state: Path, registry: MemoryRegistry) -> None:
    before = found_in(state)
    stores = ("events/segments", "events/lake", "snapshots", "reports", "duplicates", "work", "control.db")
    for store in stores:
        assert any(store in path for path in before), store
    assert MARK in registry_text(registry)
    erase_user(state, registry)
    assert found_in(state, (*NEEDLES, USER_ID.encode())) == set()
    for needle in NEEDLES:
        assert needle.decode() not in registry_text(registry)


def test_everybody_else_is_untouched(state: Path, registry: MemoryRegistry) -> None:
    before = {business: events(state, business) for business in ("support", "legal")}
    arms = tables(state)["session_arms"]
    erase_user(state, registry)
    assert ids(events(state)) == (["o1", "o2", "o3", "o4"], ["f1", "f2", "f3"])
    assert all(one in before["support"].interactions for one in events(state).interactions)
    assert all(one in before["support"].feedback for one in events(state).feedback)
    assert events(state, "legal") == before["legal"]
    assert [pair.shadow.interaction_id for pair in read_shadow_pairs(state / "events", "support", *EVER)] == [
        "o2",
        "o4",
    ]
    assert len(tables(state)["session_arms"]) == len(arms) - 2
    index = pq.ParquetFile(state / "duplicates" / "support.parquet").read()
    assert index["interaction_id"].to_pylist() == ["o2"]
    assert (state / "work" / "gate" / "support-two-0123456789abcdef.jsonl").exists()
    assert (state / "work" / ("6" * 64) / "checkpoint.bin").exists()
    assert (state / "work" / f"{'6' * 64}.log").exists()
    assert not (state / "work" / ("7" * 64)).exists()


def test_the_log_can_still_be_compacted(state: Path, registry: MemoryRegistry) -> None:
    erase_user(state, registry)
    found = events(state)
    compact(state / "events", NIGHT)
    assert events(state).interactions == found.interactions
    left = {path.name for path in (state / "events" / "segments").glob("*.jsonl")}
    assert left == {f"gateway-dead-{LATER:%Y%m%dT%H}.jsonl"}  # with a line that nobody can place


def test_a_snapshot_keeps_its_id_and_says_what_went(state: Path, registry: MemoryRegistry) -> None:
    before = {entry.snapshot_id: entry for entry in list_snapshots(state / "snapshots", "support")}
    untouched = {path: path.read_bytes() for path in _unseen(state, registry).iterdir()}
    plan = erase_user(state, registry)
    assert plan is not None
    after = {entry.snapshot_id: entry for entry in list_snapshots(state / "snapshots", "support")}
    assert after.keys() == before.keys()
    trained = registry.get("support", 1).adapter.snapshot_id
    snapshot = read_snapshot(after[trained].folder)
    assert [row.source.user_keys for row in snapshot.rows[Split.TRAIN].all()] == [(OTHER, THIRD)]
    (redaction,) = read_redactions(after[trained].folder)
    assert redaction.erasure_id == plan.erasure_id
    assert redaction.rows == {Split.TRAIN: 2, Split.HELD_OUT: 0, Split.RECENT: 0}
    assert [(drop.interaction_id, drop.kept) for drop in read_dropped(after[trained].folder)] == [("o4", None)]
    made = snapshot.manifest
    assert made.interactions == made.sources + sum(made.dropped.values()) == 4
    assert made.rows[Split.TRAIN] == {"sft": 0, "preference": 1, "unpaired": 0}
    assert "## Redacted" in (after[trained].folder / "CARD.md").read_text()
    assert {path: path.read_bytes() for path in _unseen(state, registry).iterdir()} == untouched


def _unseen(state: Path, registry: MemoryRegistry) -> Path:
    return state / "snapshots" / "support" / registry.get("support", 3).adapter.snapshot_id


def test_nothing_is_trained_on_a_redacted_snapshot(state: Path, registry: MemoryRegistry) -> None:
    erase_user(state, registry)
    first = registry.get("support", 1).adapter
    folder = state / "snapshots" / "support" / first.snapshot_id
    with pytest.raises(TrainingError, match=r"was redacted.*tuneloop nightly"):
        train_adapter(folder, Recipe(), first.base, state, None, state / "adapters", state / "work")


def test_every_version_that_saw_the_user_is_named_and_marked(state: Path, registry: MemoryRegistry) -> None:
    plan = erase_user(state, registry)
    assert plan is not None
    assert [(seen.version.version, seen.learned) for seen in plan.versions] == [(1, True), (2, False), (4, True)]
    assert [version.version for version in plan.unknown] == [5]
    tags = [registry.tags("support", number) for number in range(1, 6)]
    assert [tag.get("erased_trained") for tag in tags] == ["2 rows", None, None, "through version 1", None]
    assert [tag.get("erased_measured") for tag in tags] == [None, "1 rows", None, None, None]
    assert [registry.get("support", number).learned_erased for number in range(1, 6)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert "trained on 2 rows" in registry.entries["support", 1].description
    assert (
        registry.entries["support", 3].description
        == f"sft, snapshot {plan.found.business and _unseen(state, registry).name[:8]}"
    )


def test_probe_texts_and_pages_lose_the_user_and_keep_the_rest(state: Path, registry: MemoryRegistry) -> None:
    figures = registry.entries["support", 2].report.split("<section>")
    unseen = registry.entries["support", 1].report
    erase_user(state, registry)
    probe = registry.get("support", 1).fingerprint
    assert probe is not None
    assert (probe.texts, probe.base_logprobs) == (("How do I pay?\nBy card.",), (-2.0,))
    cleaned = registry.entries["support", 2].report
    assert (state / "reports" / "support" / "decision-v2.html").read_text() == cleaned
    assert "data erased" in cleaned
    changed = [before for before, after in zip(figures, cleaned.split("<section>"), strict=True) if before != after]
    assert ["Before and after" in part or "前后并排对比" in part for part in changed] == [True, True]
    assert registry.entries["support", 1].report == unseen


def test_what_a_user_said_like_others_is_quoted_only_while_enough_others_said_it(
    state: Path, registry: MemoryRegistry
) -> None:
    name = write_quotes(state, registry)
    folder, page = state / "snapshots" / "support" / name, state / "reports" / "support" / "decision-v6.html"
    before = page.read_text(encoding="utf-8")
    assert "QZX is closed" in before
    erase_user(state, registry)
    assert {text: len(users) for text, users in read_manifest(folder).reasons.items()} == {"too long": 3}
    assert read_redactions(folder) == ()  # every row is there: it may still be trained on
    for told in (page.read_text(encoding="utf-8"), registry.entries["support", 6].report):
        assert "QZX is closed" not in told
        assert "somebody who gave one had their data erased" in told
        assert "What is for lunch?" in told
    assert found_in(state) == set()
    cleaned = page.read_text(encoding="utf-8")
    erase_user(state, registry, "carol-who-said-nothing")
    assert page.read_text(encoding="utf-8") == cleaned


def test_findings_lose_the_user_and_keep_the_others(state: Path, registry: MemoryRegistry) -> None:
    erase_user(state, registry)
    left = Quarantine(places(state, registry).control).entries("support")
    assert sorted((e.finding.user_keys, e.finding.event_ids) for e in left) == sorted(
        [((OTHER,), ("f1",)), ((THIRD,), ("f2",))]
    )
    assert all(e.finding.finding_id for e in left)


def test_the_audit_trail_says_who_when_and_how_much_and_names_nobody(state: Path, registry: MemoryRegistry) -> None:
    erase_user(state, registry)
    begun, ended = RolloutStore(places(state, registry).control).history("support")
    assert (begun.action, ended.action, begun.actor, begun.at) == ("erase begin", "erase end", "ann", NIGHT)
    assert begun.detail["interactions"] == 2
    assert begun.detail["interactions of others or of nobody"] == 3
    assert begun.detail["feedback"] == 5
    assert USER[:8] not in str(begun.detail) + str(ended.detail)


def _bytes(state: Path) -> dict[Path, bytes]:
    """All files but the database, which is compared by its rows, and locks, which are empty."""
    files = [path for path in state.rglob("*") if path.is_file()]
    return {path: path.read_bytes() for path in files if "control.db" not in path.name and path.suffix != ".lock"}


def test_a_dry_run_changes_no_byte_and_tells_the_same(state: Path, registry: MemoryRegistry) -> None:
    before = _bytes(state)
    rows, entries = tables(state), deepcopy(registry.entries)
    told: list[Plan] = []
    assert erase_user(state, registry, confirm=lambda plan: bool(told.append(plan))) is None
    assert _bytes(state) == before
    assert (tables(state), registry.entries) == (rows, entries)
    done = erase_user(state, registry)
    assert done is not None
    assert (done.events(), done.seen()) == (told[0].events(), told[0].seen())


def test_an_unknown_user_is_nobody(state: Path, registry: MemoryRegistry) -> None:
    plan = make_plan(places(state, registry), "support", ["f" * 32], lambda what, size: lambda done: None)
    assert plan.empty
    assert plan.versions == ()
