"""Duplicates go, different questions with one canned answer stay, facts tell apart, and order doesn't matter."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.dedup import drop_duplicates
from pipeline.dataset.examples import build_examples
from pipeline.records import CleanRecord, DropReason, Signal
from tests.builders import NOON, a_clean_record, a_signal


def a_record(name: str, prompt: str, answer: str, minute: int = 0, *signals: Signal, **fields: Any) -> CleanRecord:
    at = NOON + timedelta(minutes=minute)
    return a_clean_record(name, *(signals or (a_signal(),)), prompt=prompt, answer=answer, at=at, **fields)


def kept(*records: CleanRecord) -> list[str]:
    return [record.interaction_id for record in drop_duplicates(records, 0.8)[0]]


def test_templates_widths_and_languages(shared: Path) -> None:
    rows = [json.loads(line) for line in (shared / "data/cases/dedup/D-26_templates.jsonl").read_text().splitlines()]
    records = [a_record(f"i{row['id']}", row["prompt"], row["answer"], row["id"]) for row in rows]
    unique, dropped = drop_duplicates(records, 0.8)
    assert [record.interaction_id for record in unique] == ["i0", "i1", "i3", "i4", "i5"]
    assert [(drop.interaction_id, drop.reason, drop.kept) for drop in dropped] == [
        ("i2", DropReason.EXACT_DUPLICATE, "i1")
    ]


def test_one_style_is_no_duplicate(shared: Path) -> None:
    rows = json.loads((shared / "data/medical/huatuo_first600.json").read_text())
    records = [a_record(f"i{at:03}", row["instruction"], row["output"], at) for at, row in enumerate(rows)]
    assert len(kept(*records)) >= 598


LONG = "Thank you for your message. To change that, open the order page, choose the order, and follow the steps there."
NEAR = LONG.replace("steps there", "steps here")


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


def test_the_same_last_words_after_different_talks_are_different() -> None:
    def talk(name: str, first: str) -> CleanRecord:
        messages = [("user", first), ("assistant", "Shall I?"), ("user", "Yes")]
        return a_record(name, "", LONG, messages=tuple({"role": r, "content": c} for r, c in messages))

    assert kept(talk("i1", "Cancel my order"), talk("i2", "Send it again")) == ["i1", "i2"]
    assert kept(talk("i1", "Cancel my order"), talk("i2", "cancel my order!")) == ["i1"]


def test_a_near_duplicate_goes_and_the_first_stays() -> None:
    late = a_record("i1", "Where is my parcel?", LONG, 5)
    early = a_record("i2", "where is my parcel", NEAR, 1)
    unique, dropped = drop_duplicates([late, early], 0.8)
    assert [record.interaction_id for record in unique] == ["i2"]
    assert [(drop.reason, drop.kept) for drop in dropped] == [(DropReason.NEAR_DUPLICATE, "i2")]
    assert dropped[0].detail == "thumb, 1 user, 2026-03-10 12:05; the one that stays: thumb, 1 user, 2026-03-10 12:01"


def test_other_facts_are_no_duplicate_however_alike_the_texts() -> None:
    texts = {"prompt": "Where is <PERSON_1>?", "answer": LONG}
    assert kept(a_record("i1", **texts, facts="a"), a_record("i2", **texts, facts="b")) == ["i1", "i2"]
    assert kept(a_record("i1", **texts, facts="a"), a_record("i2", **texts, facts="a")) == ["i1"]


ORDERED = [
    a_signal("outcome", "passed"),
    a_signal("edit", "x"),
    a_signal("choice", {"over": "gone"}),
    a_signal("thumb", "up"),
]


@pytest.mark.parametrize(("strong", "weak"), [(s, w) for at, s in enumerate(ORDERED) for w in ORDERED[at + 1 :]])
def test_the_strongest_evidence_stays(strong: Signal, weak: Signal) -> None:
    assert kept(a_record("i1", "Q", LONG, 0, weak), a_record("i2", "Q", LONG, 9, strong)) == ["i2"]


def test_a_rated_record_stays_before_an_unrated_or_withdrawn_one() -> None:
    unrated = a_clean_record("i1", prompt="Q", answer=LONG)
    assert kept(unrated, a_record("i2", "Q", LONG, 9)) == ["i2"]
    assert kept(a_record("i1", "Q", LONG, 0, a_signal("thumb", None)), a_record("i2", "Q", LONG, 9)) == ["i2"]


def votes(*said: str) -> list[CleanRecord]:
    """One record a vote, in this order, each of a user of its own."""
    return [
        a_record(f"i{n}", "Q", LONG, n, a_signal("thumb", vote, user_key=f"u{n}"), user_key=f"u{n}")
        for n, vote in enumerate(said)
    ]


def test_one_user_against_all_others_does_not_prevail_by_having_come_first() -> None:
    unique, _ = drop_duplicates(votes("down", "up", "up"), 0.8)
    assert [(record.interaction_id, record.backed_by) for record in unique] == [("i1", ("u2",))]


def test_who_says_the_same_of_a_duplicate_counts_for_the_claim() -> None:
    unique, _ = drop_duplicates(votes("up", "up", "up"), 0.8)
    assert len(build_examples(unique, 3)[0]) == 2
    assert [drop.reason for drop in build_examples(unique, 4)[1]] == [DropReason.TOO_FEW_USERS]
    against, _ = drop_duplicates(votes("up", "down"), 0.8)
    assert not build_examples(against, 2)[0]


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


def test_many_near_texts_that_differ_in_their_facts_take_no_time_to_tell_apart() -> None:
    records = [a_record(f"i{n:05}", f"Where is order {n}?", LONG, facts=str(n)) for n in range(3000)]
    assert len(kept(*records)) == 3000


sentences = st.lists(st.sampled_from([*LONG.split(), "退款", "发票", "order", "x"]), min_size=1, max_size=30).map(
    " ".join
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(sentences, sentences, st.integers(0, 3), st.sampled_from([None, 0, 1, 2, 3]), st.sampled_from("ab")),
        max_size=8,
    ),
    st.randoms(),
)
def test_order_does_not_matter_sums_match_and_what_goes_has_one_that_stays(
    drawn: list[tuple[str, str, int, int | None, str]], random: Any
) -> None:
    records = [
        a_record(f"i{at}", q, a, minute, replaced_by=None if by is None else f"i{by}", facts=facts)
        for at, (q, a, minute, by, facts) in enumerate(drawn)
    ]
    unique, dropped = drop_duplicates(records, 0.8)
    names = {record.interaction_id for record in unique}
    assert sorted([*names, *(d.interaction_id for d in dropped)]) == sorted(r.interaction_id for r in records)
    facts_of = {record.interaction_id: record.facts for record in records}
    assert all(d.kept in names and facts_of[d.kept] == facts_of[d.interaction_id] for d in dropped if d.kept)
    assert all(d.kept for d in dropped)
    random.shuffle(records)
    again, dropped_again = drop_duplicates(records, 0.8)
    assert again == unique
    assert set(map(repr, dropped_again)) == set(map(repr, dropped))


def test_nothing_of_nothing() -> None:
    assert drop_duplicates([], 0.8) == ([], [])
