"""An erased user is nowhere any more, whatever the erasure is killed over, and everybody else is untouched."""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flows.erasure import Plan, erase, make_plan
from flows.lock import alone
from pipeline.collect.quarantine import Quarantine
from pipeline.dataset.catalogue import list_snapshots
from pipeline.dataset.redaction import read_redactions
from pipeline.dataset.snapshot import read_dropped, read_snapshot
from pipeline.erase.erased import Erased, Kind, digest
from pipeline.erase.ledger import ErasureLedger
from pipeline.erase.lines import of_segment
from pipeline.erase.log import _blank, _find, forget_in_segments, leave_out
from pipeline.errors import DataError, RegistryUnavailable, TrainingError
from pipeline.events.lake import compact
from pipeline.events.read import Events, read_events
from pipeline.events.segment import SegmentLog
from pipeline.events.shadows import read_shadow_pairs
from pipeline.records import Split
from pipeline.registry.memory import MemoryRegistry
from pipeline.rollout.store import RolloutStore
from pipeline.train.process import train_adapter
from pipeline.train.recipe import Recipe
from tests.builders import NOON, a_feedback, a_shadow
from tests.erasure_world import (
    LATER,
    MARK,
    NEEDLES,
    OTHER,
    OWN,
    THIRD,
    USER,
    USER_ID,
    about_support,
    build,
    chat,
    found_in,
    line,
    places,
    tables,
)

EVER = (NOON - timedelta(days=30), NOON + timedelta(days=30))
NIGHT = LATER + timedelta(hours=12)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def state(tmp_path: Path, registry: MemoryRegistry) -> Path:
    folder = tmp_path / "var"
    build(folder, registry).close()
    return folder


def run(state: Path, registry: MemoryRegistry, *users: str, **fields: Any) -> Plan | None:
    values: dict[str, Any] = {
        "actor": "ann",
        "now": NIGHT,
        "begin": lambda what, size: lambda done: None,
        "confirm": lambda plan: True,
        "on_wait": lambda: None,
    }
    return erase(places(state, registry), about_support(), users or (USER,), **(values | fields))


def events(state: Path, business: str = "support") -> Events:
    return read_events(state / "events", business, *EVER)


def ids(found: Events) -> tuple[list[str], list[str]]:
    return [i.interaction_id for i in found.interactions], [f.event_id for f in found.feedback]


def registry_text(registry: MemoryRegistry) -> str:
    return repr(registry.entries)


def test_the_user_is_in_no_byte_that_is_left(state: Path, registry: MemoryRegistry) -> None:
    before = found_in(state)
    stores = ("events/segments", "events/lake", "snapshots", "reports", "duplicates", "work", "control.db")
    for store in stores:
        assert any(store in path for path in before), store
    assert MARK in registry_text(registry)
    run(state, registry)
    assert found_in(state, (*NEEDLES, USER_ID.encode())) == set()
    for needle in NEEDLES:
        assert needle.decode() not in registry_text(registry)


def test_everybody_else_is_untouched(state: Path, registry: MemoryRegistry) -> None:
    before = {business: events(state, business) for business in ("support", "legal")}
    arms = tables(state)["session_arms"]
    run(state, registry)
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
    run(state, registry)
    found = events(state)
    compact(state / "events", NIGHT)
    assert events(state).interactions == found.interactions
    left = {path.name for path in (state / "events" / "segments").glob("*.jsonl")}
    assert left == {f"gateway-dead-{LATER:%Y%m%dT%H}.jsonl"}  # with a line that nobody can place


def test_a_snapshot_keeps_its_id_and_says_what_went(state: Path, registry: MemoryRegistry) -> None:
    before = {entry.snapshot_id: entry for entry in list_snapshots(state / "snapshots", "support")}
    untouched = {path: path.read_bytes() for path in _unseen(state, registry).iterdir()}
    plan = run(state, registry)
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
    run(state, registry)
    first = registry.get("support", 1).adapter
    folder = state / "snapshots" / "support" / first.snapshot_id
    with pytest.raises(TrainingError, match=r"was redacted.*tuneloop nightly"):
        train_adapter(folder, Recipe(), first.base, state, None, state / "adapters", state / "work")


def test_every_version_that_saw_the_user_is_named_and_marked(state: Path, registry: MemoryRegistry) -> None:
    plan = run(state, registry)
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
    run(state, registry)
    probe = registry.get("support", 1).fingerprint
    assert probe is not None
    assert (probe.texts, probe.base_logprobs) == (("How do I pay?\nBy card.",), (-2.0,))
    cleaned = registry.entries["support", 2].report
    assert (state / "reports" / "support" / "decision-v2.html").read_text() == cleaned
    assert "data erased" in cleaned
    changed = [before for before, after in zip(figures, cleaned.split("<section>"), strict=True) if before != after]
    assert ["Before and after" in part or "前后并排对比" in part for part in changed] == [True, True]
    assert registry.entries["support", 1].report == unseen


def test_findings_lose_the_user_and_keep_the_others(state: Path, registry: MemoryRegistry) -> None:
    run(state, registry)
    left = Quarantine(places(state, registry).control).entries("support")
    assert sorted((e.finding.user_keys, e.finding.event_ids) for e in left) == sorted(
        [((OTHER,), ("f1",)), ((THIRD,), ("f2",))]
    )
    assert all(e.finding.finding_id for e in left)


def test_the_audit_trail_says_who_when_and_how_much_and_names_nobody(state: Path, registry: MemoryRegistry) -> None:
    run(state, registry)
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
    assert run(state, registry, confirm=lambda plan: bool(told.append(plan))) is None
    assert _bytes(state) == before
    assert (tables(state), registry.entries) == (rows, entries)
    done = run(state, registry)
    assert done is not None
    assert (done.events(), done.seen()) == (told[0].events(), told[0].seen())


def test_an_unknown_user_is_nobody(state: Path, registry: MemoryRegistry) -> None:
    plan = make_plan(places(state, registry), "support", ["f" * 32], lambda what, size: lambda done: None)
    assert plan.empty
    assert plan.versions == ()


# What comes afterwards


def test_what_comes_late_is_left_out_at_once_and_gone_after_a_night(state: Path, registry: MemoryRegistry) -> None:
    run(state, registry)
    log = SegmentLog(state / "events" / "segments", "gateway")
    late = [
        chat("QZX-late", USER, "s-new", "QZX again", answer="QZX"),
        chat("QZX-turn", None, OWN, "QZX goes on", answer="QZX"),
        a_feedback("QZX-e9", "QZX-i1", "edit", "QZX edit by somebody", user_key=OTHER),
        a_feedback("QZX-e10", "o2", "comment", "QZX", user_key=USER),
        a_shadow("QZX-i3", answer="QZX in shadow", user_key=USER, session="s-new"),
        chat("o9", OTHER, "s-o9", "Still there?", answer="Yes."),
    ]
    log.commit([line(event) for event in late], NIGHT)
    erased = ErasureLedger(places(state, registry).control).erased()
    assert ids(leave_out(events(state), erased)) == (["o1", "o2", "o3", "o4", "o9"], ["f1", "f2", "f3"])
    assert forget_in_segments(state / "events", erased) == 5
    assert found_in(state) == set()
    log.commit([line(chat("o10", OTHER, "s-o10", "And now?", answer="Yes."))], NIGHT)
    log.close()
    assert ids(events(state))[0] == ["o1", "o10", "o2", "o3", "o4", "o9"]


def test_erasing_one_after_the_other_tells_for_both_what_saw_them(state: Path, registry: MemoryRegistry) -> None:
    """The row of two users goes with the first; who asks for the second must still be told."""
    run(state, registry, THIRD)
    plan = run(state, registry, OTHER)
    assert plan is not None
    assert {seen.version.version for seen in plan.versions} >= {1}
    again = run(state, registry, THIRD)
    assert again is not None
    assert {seen.version.version for seen in again.versions} >= {1, 2, 3}


# While others work


def test_a_gateway_goes_on_writing_to_the_segment_that_is_cleaned(tmp_path: Path, registry: MemoryRegistry) -> None:
    state = tmp_path / "var"
    living = build(state, registry)
    steps = []

    def begin(what: str, size: int) -> Callable[[int], None]:
        steps.append(what)
        living.commit([line(chat(f"n{len(steps)}", OTHER, "s-n", "More?", answer="Yes."))], LATER)
        return lambda done: None

    run(state, registry, begin=begin)
    living.close()
    assert found_in(state) == set()
    assert {f"n{n + 1}" for n in range(len(steps))} <= set(ids(events(state))[0])


def test_lines_that_are_written_meanwhile_are_neither_lost_nor_kept(tmp_path: Path) -> None:
    """A gateway commits without a pause while its segment is cleaned again and again."""
    erased = Erased(frozenset({digest("support", Kind.USER, USER)}))
    log = SegmentLog(tmp_path / "events" / "segments", "gateway")
    others = [line(chat(f"o{n}", OTHER, "s", "How?", answer="So.")) for n in range(120)]
    own = [line(chat(f"QZX-{n}", USER, OWN, "QZX", answer="QZX")) for n in range(120)]

    def write() -> None:
        for pair in zip(others, own, strict=True):
            log.commit(list(pair), LATER)

    writer = threading.Thread(target=write)
    writer.start()
    gone = 0
    while writer.is_alive():
        gone += forget_in_segments(tmp_path / "events", erased)
    gone += forget_in_segments(tmp_path / "events", erased)
    log.close()
    (path,) = (tmp_path / "events" / "segments").glob("*.jsonl")
    assert [text for text in path.read_bytes().splitlines() if not text.isspace()] == others
    assert gone == len(own)


def test_a_line_that_an_erasure_was_killed_over_is_blanked_to_its_end(tmp_path: Path) -> None:
    """Nothing in what is left of it says whose it was."""
    path = tmp_path / "events" / "segments" / "gateway-20260310T12.jsonl"
    path.parent.mkdir(parents=True)
    other = line(chat("o1", OTHER, "s", "How?", answer="So.")) + b"\n"
    path.write_bytes(other + b" " * 400 + b"the QZX rest of a long text\n" + other)
    forget_in_segments(tmp_path / "events", Erased(frozenset({digest("support", Kind.USER, USER)})))
    assert [text for text in path.read_bytes().splitlines() if not text.isspace()] == [other.strip()] * 2


def test_the_rest_of_a_line_that_is_being_written_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "gateway.jsonl"
    path.write_bytes(b"one\ntwo")
    found = of_segment(path)
    assert [next(found), next(found)] == [(0, b"one\n"), (4, b"two")]
    with path.open("ab") as file:
        file.write(b" and three\nfour\n")
    assert list(found) == []
    assert list(of_segment(path)) == [(0, b"one\n"), (4, b"two and three\n"), (18, b"four\n")]


def test_a_line_that_moved_since_it_was_read_is_not_overwritten(tmp_path: Path) -> None:
    """After a failed commit a gateway cuts the file and writes other lines in the same place."""
    path = tmp_path / "gateway.jsonl"
    path.write_bytes(line(chat("QZX-i1", USER, OWN, "QZX", answer="QZX")) + b"\n")
    places_found = _find(path, Erased(frozenset({digest("support", Kind.USER, USER)})))
    other = line(chat("o1", OTHER, "s", "Something else entirely?", answer="Yes, indeed.")) + b"\n"
    path.write_bytes(other)
    assert _blank(path, places_found) == 0
    assert path.read_bytes() == other


def test_an_erasure_waits_for_a_night(state: Path, registry: MemoryRegistry) -> None:
    class Waits(Exception):
        pass

    def wait() -> None:
        raise Waits

    with alone(state, "support"), pytest.raises(Waits):
        run(state, registry, on_wait=wait)
    assert run(state, registry, on_wait=wait) is not None


def test_a_night_waits_for_an_erasure_and_not_for_another_night(state: Path, registry: MemoryRegistry) -> None:
    """A night that failed instead would not be started again."""
    order: list[str] = []

    def night() -> None:
        with alone(state, "support"):
            order.append("night")

    other = threading.Thread(target=night)

    def meanwhile(plan: Plan) -> bool:
        other.start()
        other.join(timeout=0.2)
        order.append("erasure")
        return True

    run(state, registry, confirm=meanwhile)
    other.join()
    assert order == ["erasure", "night"]
    with alone(state, "support"), pytest.raises(DataError, match="a nightly run is going on"), alone(state, "support"):
        pass


def test_nothing_begins_while_the_registry_is_down(state: Path, registry: MemoryRegistry) -> None:
    before = found_in(state)
    registry.available = False
    with pytest.raises(RegistryUnavailable):
        run(state, registry)
    assert found_in(state) == before
    assert not ErasureLedger(places(state, registry).control).erased()


# Killed anywhere

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def _die_at(number: int) -> None:
    """Kill this process before its nth change to a file."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wax"):
            count()

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            count()
            return real(*arguments)

        return call

    for name in ("pwrite", "fsync", "fdatasync"):
        setattr(os, name, counted(getattr(os, name)))
    sys.addaudithook(watch)


def _killed(state: Path, registry: MemoryRegistry, number: int) -> bool:
    """Run an erasure in a process of its own that is killed at its nth change; whether it was."""
    child = os.fork()
    if child == 0:
        try:
            _die_at(number)
            run(state, registry)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) != 0


def _content(state: Path) -> dict[str, Any]:
    """Every file: Parquet by its rows, the control database by its tables, the rest by its bytes."""
    found: dict[str, Any] = {f"table {name}": rows for name, rows in tables(state).items()}
    for path in sorted(state.rglob("*")):
        if path.is_file() and not path.name.startswith("control.db"):
            name = str(path.relative_to(state))
            found[name] = pq.read_table(path).to_pylist() if path.suffix == ".parquet" else path.read_bytes()
    return found


@pytest.mark.timeout(600)
def test_killed_anywhere_and_run_again_it_ends_in_the_same_state(
    state: Path, registry: MemoryRegistry, tmp_path: Path
) -> None:
    whole, marked = tmp_path / "whole" / "var", deepcopy(registry)
    shutil.copytree(state, whole)
    run(whole, marked)
    expected = _content(whole)
    number, killed = 0, True
    while killed:
        number += 1
        folder, again = tmp_path / f"killed-{number}" / "var", deepcopy(registry)
        shutil.copytree(state, folder)
        killed = _killed(folder, again, number)
        run(folder, again)
        assert _content(folder) == expected, number
        assert again.entries == marked.entries, number
        assert found_in(folder) == set(), number
        shutil.rmtree(folder)
    assert number > 40  # it was killed over every store
