"""Duplicates go, different questions with one canned answer stay, and order doesn't matter."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.dedup import drop_duplicates, near_duplicates
from pipeline.clean.text import comparison_key
from pipeline.records import CleanRecord, DropReason
from tests.builders import NOON, a_clean_record, a_signal


def a_record(name: str, prompt: str, answer: str, minute: int = 0, **fields: Any) -> CleanRecord:
    at = NOON + timedelta(minutes=minute)
    return a_clean_record(name, a_signal(), prompt=prompt, answer=answer, at=at, **fields)


def kept(*records: CleanRecord) -> list[str]:
    return [record.interaction_id for record in drop_duplicates(records, 0.8)[0]]


def test_templates_widths_and_languages(shared: Path) -> None:
    rows = [json.loads(line) for line in (shared / "data/cases/dedup/D-26_templates.jsonl").read_text().splitlines()]
    records = [a_record(f"i{row['id']}", row["prompt"], row["answer"], row["id"]) for row in rows]
    unique, dropped = drop_duplicates(records, 0.8)
    assert [record.interaction_id for record in unique] == ["i0", "i1", "i3", "i4", "i5"]
    assert [(drop.interaction_id, drop.reason) for drop in dropped] == [("i2", DropReason.EXACT_DUPLICATE)]


def test_one_style_is_no_duplicate(shared: Path) -> None:
    rows = json.loads((shared / "data/medical/huatuo_first600.json").read_text())
    records = [a_record(f"i{at:03}", row["instruction"], row["output"], at) for at, row in enumerate(rows[:300])]
    assert len(kept(*records)) >= 298


LONG = "Thank you for your message. To change that, open the order page, choose the order, and follow the steps there."


def test_a_long_canned_answer_joins_no_questions() -> None:
    assert kept(a_record("i1", "Where is my parcel?", LONG), a_record("i2", "Refund, please", LONG)) == ["i1", "i2"]


def test_a_long_system_prompt_joins_no_questions() -> None:
    system = {"role": "system", "content": LONG * 5}
    records = [a_record(f"i{n}", "x", "y", messages=(system, {"role": "user", "content": f"Why {n}"})) for n in (1, 2)]
    assert kept(*records) == ["i1", "i2"]
    other = {"role": "system", "content": "Other"}
    pair = [
        a_record(f"i{n}", "x", LONG, messages=(s, {"role": "user", "content": "Q"}))
        for n, s in enumerate((system, other))
    ]
    assert kept(*pair) == ["i0", "i1"]


def test_a_near_duplicate_goes_and_the_first_stays() -> None:
    late = a_record("i1", "Where is my parcel?", LONG, 5)
    early = a_record("i2", "where is my parcel", LONG.replace("steps there", "steps here"), 1)
    unique, dropped = drop_duplicates([late, early], 0.8)
    assert [record.interaction_id for record in unique] == ["i2"]
    assert [drop.reason for drop in dropped] == [DropReason.NEAR_DUPLICATE]


def test_a_rated_record_stays_before_an_unrated_one() -> None:
    unrated = a_clean_record("i1", prompt="Q", answer=LONG)
    assert kept(unrated, a_record("i2", "Q", LONG, 9)) == ["i2"]


def test_different_edits_and_tool_calls_are_different() -> None:
    assert kept(a_record("i1", "Q", LONG, edited="One"), a_record("i2", "Q", LONG, edited="Two")) == ["i1", "i2"]
    calls = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": n}}]} for n in ("find", "buy")]
    records = [a_record(f"i{n}", "Q", "").model_copy(update={"answer": call}) for n, call in enumerate(calls)]
    assert kept(*records) == ["i0", "i1"]


def test_the_sides_of_a_regeneration_go_only_together() -> None:
    a1 = a_record("a1", "Q", LONG, replaced_by="b1")
    b1 = a_record("b1", "Q", LONG, 1)
    assert kept(a1, b1) == ["a1", "b1"]
    a2 = a_record("a2", "Q", LONG, 2, replaced_by="b2")
    b2 = a_record("b2", "Q", LONG, 3)
    assert kept(a1, b1, a2, b2) == ["a1", "b1"]
    new = a_record("b2", "Q", "Something else entirely.", 3)
    assert kept(a1, b1, a2, new) == ["a1", "b1", "a2", "b2"]


def shingles(text: str) -> set[str]:
    key = comparison_key(text)
    return {key[at : at + 5] for at in range(max(1, len(key) - 4))}


def jaccard(one: str, other: str) -> float:
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b)


sentences = st.lists(st.sampled_from([*LONG.split(), "退款", "发票", "order", "x"]), min_size=1, max_size=30).map(
    " ".join
)


@settings(max_examples=25, deadline=None)
@given(st.lists(sentences, max_size=12))
def test_every_reported_pair_is_true(texts: list[str]) -> None:
    pairs = near_duplicates(texts, 0.8)
    assert pairs == sorted(set(pairs))
    assert all(one < other and jaccard(texts[one], texts[other]) >= 0.8 for one, other in pairs)


def test_few_pairs_are_missed(shared: Path) -> None:
    rows = json.loads((shared / "data/medical/huatuo_first600.json").read_text())[:120]
    texts = [row["output"] for row in rows]
    texts += [text[: len(text) * 9 // 10] for text in texts]
    of_text = [shingles(text) for text in texts]
    pairs = ((a, b) for a in range(len(texts)) for b in range(a + 1, len(texts)))
    true = {(a, b) for a, b in pairs if len(of_text[a] & of_text[b]) >= 0.8 * len(of_text[a] | of_text[b])}
    found = set(near_duplicates(texts, 0.8))
    assert found <= true
    assert len(true) > 100
    assert len(found) >= 0.99 * len(true)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(sentences, sentences, st.integers(0, 3), st.sampled_from([None, 0, 1, 2, 3])), max_size=8),
    st.randoms(),
)
def test_order_does_not_matter_and_sums_match(drawn: list[tuple[str, str, int, int | None]], random: Any) -> None:
    records = [
        a_record(f"i{at}", q, a, minute, replaced_by=None if by is None else f"i{by}")
        for at, (q, a, minute, by) in enumerate(drawn)
    ]
    unique, dropped = drop_duplicates(records, 0.8)
    assert sorted([r.interaction_id for r in unique] + [d.interaction_id for d in dropped]) == sorted(
        r.interaction_id for r in records
    )
    random.shuffle(records)
    again, dropped_again = drop_duplicates(records, 0.8)
    assert again == unique
    assert set(map(repr, dropped_again)) == set(map(repr, dropped))


@pytest.mark.parametrize("texts", [[], ["a"], ["", ""], ["a", "a", "b"]])
def test_small_inputs(texts: list[str]) -> None:
    assert near_duplicates(texts, 0.8) == ([(0, 1)] if len(texts) > 1 else [])
