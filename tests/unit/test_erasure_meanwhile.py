"""While a user is erased, and afterwards, others write, read, ask and wait."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.erasure import Plan
from flows.lock import alone
from pipeline.erase.erased import Erased, Kind, digest
from pipeline.erase.ledger import ErasureLedger
from pipeline.erase.lines import of_segment
from pipeline.erase.log import _blank, _find, forget_in_segments, leave_out
from pipeline.errors import DataError, RegistryUnavailable
from pipeline.events.segment import SegmentLog
from pipeline.registry.memory import MemoryRegistry
from tests.builders import a_feedback, a_shadow
from tests.erasure_world import (
    LATER,
    NIGHT,
    OTHER,
    OWN,
    THIRD,
    USER,
    build,
    chat,
    erase_user,
    events,
    found_in,
    ids,
    line,
    places,
)


def test_what_comes_late_is_left_out_at_once_and_gone_after_a_night(state: Path, registry: MemoryRegistry) -> None:
    erase_user(state, registry)
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
    erase_user(state, registry, THIRD)
    plan = erase_user(state, registry, OTHER)
    assert plan is not None
    assert {seen.version.version for seen in plan.versions} >= {1}
    again = erase_user(state, registry, THIRD)
    assert again is not None
    assert {seen.version.version for seen in again.versions} >= {1, 2, 3}


def test_a_gateway_goes_on_writing_to_the_segment_that_is_cleaned(tmp_path: Path) -> None:
    state, registry = tmp_path / "var", MemoryRegistry()
    living = build(state, registry)
    steps = []

    def begin(what: str, size: int) -> Callable[[int], None]:
        steps.append(what)
        living.commit([line(chat(f"n{len(steps)}", OTHER, "s-n", "More?", answer="Yes."))], LATER)
        return lambda done: None

    erase_user(state, registry, begin=begin)
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
        erase_user(state, registry, on_wait=wait)
    assert erase_user(state, registry, on_wait=wait) is not None


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

    erase_user(state, registry, confirm=meanwhile)
    other.join()
    assert order == ["erasure", "night"]
    with alone(state, "support"), pytest.raises(DataError, match="a nightly run is going on"), alone(state, "support"):
        pass


def test_nothing_begins_while_the_registry_is_down(state: Path, registry: MemoryRegistry) -> None:
    before = found_in(state)
    registry.available = False
    with pytest.raises(RegistryUnavailable):
        erase_user(state, registry)
    assert found_in(state) == before
    assert not ErasureLedger(places(state, registry).control).erased()
