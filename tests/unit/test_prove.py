"""The proofs' own arithmetic and page, and two worlds played to their end."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape

from evals.worlds.candidates import Online, candidates
from evals.worlds.content import load_content
from pipeline.records import Verdict
from tests.proof import page
from tests.proof.factory import configured
from tests.proof.parts import PARTS
from tests.proof.rollout import follow
from tests.proof.rows import Counted, Row, at_least, at_most, write_part
from tests.proof.seen import Case, see


def part(**changes: Any) -> dict[str, Any]:
    machine = {"cpu": "a <CPU>", "cores": 2, "memory_gb": 8, "kernel": "6", "python": "3.11"}
    row = {
        "planted": "a <b> & c",
        "planted_zh": "甲",
        "expected": "never",
        "expected_zh": "从不",
        "found": "0 of 9",
        "right": True,
    }
    about = {"command": "make prove-fast", "date": "2026-03-12T02:00:00+00:00", "minutes": 1.5, "seeds": "0 to 7"}
    curves = {world: [[0.3, 0.5, 0.6], [0.2, 0.6, 0.8]] for world in ("learned", "noisy", "poisoned")}
    kept = {"part": "fast", **about, "machine": machine, "rows": [row], "curves": curves, "complete": True}
    return kept | changes


@given(st.integers(1, 400), st.data())
def test_a_share_lies_in_its_interval(of: int, data: st.DataObject) -> None:
    counted = Counted(data.draw(st.integers(0, of)), of)
    low, high = counted.bounds

    assert 0 <= low <= counted.happened / of <= high <= 1
    assert high - low < 1


def test_what_was_never_tried_is_not_right() -> None:
    assert at_most(("a", "甲"), Counted(0, 0), 0.05, ("promoted", "晋级")).right is False
    assert at_least(("a", "甲"), Counted(0, 0), 0.8, ("promoted", "晋级")).right is False


@pytest.mark.parametrize(("happened", "right"), [(5, True), (6, False)])
def test_a_promise_is_kept_up_to_its_share(happened: int, right: bool) -> None:
    assert at_most(("a", "甲"), Counted(happened, 100), 0.05, ("promoted", "晋级")).right is right
    assert at_least(("a", "甲"), Counted(100 - happened, 100), 0.95, ("held", "扣留")).right is right


def test_the_page_shows_each_part_and_names_what_was_not_run() -> None:
    shown = page.render({"fast": part()})

    assert "a &lt;b&gt; &amp; c" in shown
    assert "a &lt;CPU&gt;" in shown
    assert shown.count("polyline") == 3
    for name, about in PARTS.items():
        assert str(escape(about.command)) in shown, name
    assert shown.count("Not run yet") == len(PARTS) - 1
    assert "http" not in shown


def test_the_table_goes_between_its_marks_however_often() -> None:
    table = page.table({"fast": part(rows=[{**part()["rows"][0], "right": False}])})
    first, last = page._FIRST, page._LAST
    once = page.put_table(f"before\n\n{first}\nold\n{last}\n\nafter\n", table)

    assert "**✗**" in table
    assert "0 planted truths found, 1 missed" in table
    assert once.startswith("before\n\n")
    assert once.endswith("\n\nafter\n")
    assert "old" not in once
    assert page.put_table(once, table) == once


def test_a_part_that_was_stopped_says_that_there_is_more() -> None:
    parts = {"fast": part(complete=False)}

    assert "A thousand worlds: the rest | | not run yet" in page.table(parts)
    assert "The rest was not run yet" in page.render(parts)
    assert "The rest was not run yet" not in page.render({"fast": part()})


def test_lines_of_fewer_nights_end_where_their_nights_do() -> None:
    few, many = page.plot({"real": [[0.0, 0.5, 1.0]], "noisy": [[0.2] * 5]})

    assert few["dots"][2][0] == many["dots"][2][0] < many["dots"][4][0]


def test_readme_has_the_marks() -> None:
    text = page.README.read_text(encoding="utf-8")

    assert text.count(page._FIRST) == text.count(page._LAST) == 1


def test_a_part_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.proof.rows.FOLDER", tmp_path / "proof")
    path = write_part("fast", [Row("a", "甲", "b", "乙", "c", None)], {"seeds": "1"})

    kept = json.loads(path.read_text(encoding="utf-8"))
    assert (kept["part"], kept["seeds"], kept["rows"][0]["right"]) == ("fast", "1", None)


def test_a_world_with_a_preference_is_learned_and_a_flooded_one_is_the_same_snapshot() -> None:
    learned, flooded = see(Case("learned", "legal-en", 0)), see(Case("flooded", "kefu", 1))

    assert learned.verdict is Verdict.PROMOTE
    assert learned.after > learned.before + 0.2
    assert flooded.same_snapshot is True
    assert flooded.counts["poison flood"] == Counted(150, 150)


def test_a_world_of_coins_is_not_promoted() -> None:
    assert not see(Case("noisy", "travel-zh", 0)).promoted


@pytest.mark.parametrize(("name", "end"), [("", "promoted"), ("cuts streams", "rolled_back")])
def test_a_canary_ends_by_how_its_candidate_serves(name: str, end: str) -> None:
    content = load_content("support")
    last = follow(content, configured(content), candidates().online.get(name, Online()), "test").last

    assert last is not None
    assert last.result == end
