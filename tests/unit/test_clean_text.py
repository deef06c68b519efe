"""Texts as they are repaired and compared."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.text import (
    comparison_key,
    edit_is_trivial,
    last_user_text,
    message_text,
    normalise,
    repair_json,
    repair_text,
)

any_text = st.text(st.characters(codec=None, categories=None))  # surrogates too


def test_lone_surrogates_go_and_pairs_are_joined(shared: Path) -> None:
    lines = (shared / "data/cases/encoding/D-08_lone_surrogate.jsonl").read_text().splitlines()
    first, second, third = (repair_json(json.loads(line)) for line in lines)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert isinstance(third, dict)
    assert first["answer"] == "好的 \ufffd"
    assert second["answer"] == "🍸 干杯"
    assert third["prompt"] == "x\ufffdy"


@settings(max_examples=50, deadline=None)
@given(any_text)
def test_repaired_text_can_be_written_and_stays(text: str) -> None:
    repaired = repair_text(text)
    repaired.encode("utf-8")
    assert repair_text(repaired) == repaired


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_well_formed_text_is_not_changed(text: str) -> None:
    assert repair_text(text) == text


@settings(max_examples=50, deadline=None)
@given(any_text)
def test_normal_forms_are_stable(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [("ＡＢＣ　１２３", "ABC 123"), ("a\n\n b", "a b"), ("价\u200b格", "价格"), ("  x ", "x")],
)
def test_width_and_space_are_normalised(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("价格是 100 元。", "价格是100元。"),
        ("价格是100元.", "价格是100元。"),
        ("A\n\nB", "A\nB"),
        ("在订单页点退款。", "  在订单页点退款。\n"),
        ("Well, yes", "Well yes!"),
        ("1. a\n    b  c", "1. a\n    b c"),
        ("see ```x = 1``` now", "see ```x = 1```, now."),
    ],
)
def test_trivial_edits(before: str, after: str) -> None:
    assert edit_is_trivial(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("价格是100元。", "价格是101元。"),
        ("It costs 1.5 euro", "It costs 15 euro"),
        ("It is -5 degrees", "It is 5 degrees"),
        ("5%", "5"),
        ("3-5 days", "35 days"),
        ("```\nif x:\n  y\n```", "```\nif x:\n    y\n```"),
        ("use `a b`", "use `ab`"),
        ("~~~\na b\n~~~", "~~~\na  b\n~~~"),
        ("So:\n\n    if x:\n        y", "So:\n\n    if x:\n            y"),
        ("Yes", "yes"),
    ],
)
def test_edits_that_mean_something(before: str, after: str) -> None:
    assert not edit_is_trivial(before, after)


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_no_edit_is_trivial(text: str) -> None:
    assert edit_is_trivial(text, text)


def test_comparison_key_keeps_a_text_of_marks() -> None:
    assert comparison_key("?!") == "?!"
    assert comparison_key("您好，请问？") == comparison_key("您好!请问 ?")


def test_text_of_messages() -> None:
    assert message_text({"role": "assistant", "content": None}) == ""
    assert message_text({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}) == "a\nb"
    assert last_user_text([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]) == "a"
    assert last_user_text([]) == ""
