"""Each signal makes the rows that it is worth, and no others; what makes none has a reason."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dataset.edits import EditKind, classify_edit
from pipeline.dataset.examples import WEAK, build_examples
from pipeline.records import (
    CleanRecord,
    DropReason,
    Example,
    PreferenceExample,
    SftExample,
    UnpairedExample,
    canonical_json,
)
from tests.builders import NOON, a_clean_record, a_signal

LONG = "Go to the order page, choose the order and press refund."


def edit(answer: str, edited: str, *more: Any, **fields: Any) -> CleanRecord:
    return a_clean_record("i1", a_signal("edit", edited), *more, answer=answer, edited=edited, **fields)


def rows(*records: CleanRecord, min_users: int = 1) -> dict[str, list[Any]]:
    """Rows by kind, each as plain text."""
    examples, _ = build_examples(records, min_users)
    found: dict[str, list[Any]] = {"sft": [], "pairs": [], "votes": []}
    for example in examples:
        match example:
            case SftExample():
                found["sft"].append(example.completion[0]["content"])
            case PreferenceExample():
                found["pairs"].append((example.chosen[0]["content"], example.rejected[0]["content"]))
            case UnpairedExample():
                found["votes"].append((example.completion[0]["content"], example.label))
    return found


def reasons(*records: CleanRecord, min_users: int = 1) -> dict[str, str]:
    _, dropped = build_examples(records, min_users)
    assert len({d.interaction_id for d in dropped}) == len(dropped)
    return {d.interaction_id: d.reason.value for d in dropped}


NOTHING: dict[str, list[Any]] = {"sft": [], "pairs": [], "votes": []}


class TestEdits:
    def test_a_mended_answer_is_a_pair_and_a_target(self) -> None:
        assert rows(edit("It costs 12 euro.", "It costs 13 euro.")) == {
            "sft": ["It costs 13 euro."],
            "pairs": [("It costs 13 euro.", "It costs 12 euro.")],
            "votes": [],
        }

    def test_a_rewritten_or_shortened_answer_is_a_target_only(self) -> None:
        assert rows(edit("I cannot say.", LONG)) == NOTHING | {"sft": [LONG]}
        shorter = "Go to the order page and press refund."
        assert rows(edit(LONG, shorter.replace(" and", ",").replace(",", ""))) == NOTHING | {
            "sft": ["Go to the order page press refund."]
        }

    @pytest.mark.parametrize(
        ("answer", "edited"),
        [("价格是 100 元。", "价格是100元。"), ("价格是100元.", "价格是100元。"), ("A\n\nB", "A\nB"), ("Ａ１", "A1")],
    )
    def test_a_trivial_edit_is_no_pair_and_a_weak_target(self, answer: str, edited: str) -> None:
        assert rows(edit(answer, edited)) == NOTHING | {"sft": [edited]}
        examples, _ = build_examples([edit(answer, edited)], 1)
        assert examples[0].source.weight == WEAK

    @pytest.mark.parametrize(
        ("answer", "edited"),
        [
            ("```\nif a:\n  b\n```", "```\nif a:\n    b\n```"),
            ("Run `rm -r a`.", "Run `rm  -r a`."),
            ("It is 1.5 m.", "It is 15 m."),
            ("It is -5 degrees.", "It is 5 degrees."),
        ],
    )
    def test_white_space_in_code_and_signs_of_numbers_matter(self, answer: str, edited: str) -> None:
        assert rows(edit(answer, edited))["pairs"] == [(edited, answer)]

    @pytest.mark.parametrize(
        ("answer", "edited", "reason"),
        [
            ("在订单页点退款。", "在订单页点退款。", "identical"),
            ("在订单页点退款。", "  在订单页点退款。\n", "identical_after_normalise"),
            ("在订单页点退款。", "", "empty_side"),
            ("在订单页点退款。", " \n", "empty_side"),
            ("好的", "怎么退款", "equals_prompt"),
        ],
    )
    def test_an_edit_that_says_nothing_is_dropped_by_name(self, answer: str, edited: str, reason: str) -> None:
        record = edit(answer, edited, prompt="怎么退款？")
        assert rows(record) == NOTHING
        assert reasons(record) == {"i1": reason}

    def test_an_edit_that_says_nothing_takes_nothing_from_a_vote(self) -> None:
        assert rows(edit("So.", "So.", a_signal("thumb", "up"))) == {
            "sft": ["So."],
            "pairs": [],
            "votes": [("So.", True)],
        }

    @settings(max_examples=50, deadline=None)
    @given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=10))
    def test_only_texts_that_differ_by_more_than_signs_make_a_pair(self, answer: str, edited: str, prompt: str) -> None:
        kind = classify_edit(answer, edited, prompt)
        if kind is EditKind.PAIR:
            assert "".join(filter(str.isalnum, answer + edited)) or answer.split() != edited.split()
            assert edited.strip()
            assert answer.strip()
        if answer.split() == edited.split() and "`" not in answer + edited:
            assert kind in (DropReason.EMPTY_SIDE, DropReason.EQUALS_PROMPT) or kind is not EditKind.PAIR


class TestVotes:
    @pytest.mark.parametrize(
        ("kind", "value"), [("thumb", "up"), ("rating", 4), ("rating", 5.0), ("outcome", "passed")]
    )
    def test_a_liked_answer_is_a_target_and_a_positive(self, kind: str, value: Any) -> None:
        assert rows(a_clean_record("i1", a_signal(kind, value))) == {
            "sft": ["So."],
            "pairs": [],
            "votes": [("So.", True)],
        }

    @pytest.mark.parametrize(
        ("kind", "value"), [("thumb", "down"), ("rating", 1), ("rating", 2), ("outcome", "failed")]
    )
    def test_a_disliked_answer_is_a_negative(self, kind: str, value: Any) -> None:
        assert rows(a_clean_record("i1", a_signal(kind, value))) == NOTHING | {"votes": [("So.", False)]}

    @pytest.mark.parametrize(
        ("kind", "value"),
        [("rating", 3), ("rating", True), ("comment", "nice"), ("abort", True), ("regenerate", True), ("thumb", "?")],
    )
    def test_weak_signals_alone_make_nothing(self, kind: str, value: Any) -> None:
        record = a_clean_record("i1", a_signal(kind, value))
        assert rows(record) == NOTHING
        assert reasons(record) == {"i1": "weak_evidence"}

    def test_silence_and_withdrawal_are_told_apart(self) -> None:
        assert reasons(a_clean_record("i1"), a_clean_record("i2", a_signal("thumb", None))) == {
            "i1": "no_feedback",
            "i2": "withdrawn",
        }

    def test_users_who_disagree_are_a_conflict_and_a_stronger_signal_settles_it(self) -> None:
        up, down = a_signal("thumb", "up", user_key="u1"), a_signal("thumb", "down", user_key="u2")
        failed, passed = (a_signal("outcome", v, user_key=u) for v, u in (("failed", "u3"), ("passed", "u4")))
        assert reasons(a_clean_record("i1", up, down)) == {"i1": "conflict"}
        assert rows(a_clean_record("i1", up, down, failed))["votes"] == [("So.", False)]
        assert reasons(a_clean_record("i1", up, down, failed, passed)) == {"i1": "conflict"}
        assert rows(edit("It costs 12 euro.", "It costs 13 euro.", up, down))["pairs"] != []
        assert rows(edit("It costs 12 euro.", "It costs 13 euro.", passed)) == {
            "sft": ["It costs 12 euro."],
            "pairs": [],
            "votes": [("It costs 12 euro.", True)],
        }

    def test_of_one_users_votes_the_latest_counts(self) -> None:
        later = a_signal("rating", 1, occurred_at=NOON + timedelta(minutes=1))
        assert rows(a_clean_record("i1", later, a_signal("thumb", "up")))["votes"] == [("So.", False)]

    def test_an_abort_beside_a_vote_halves_its_weight(self) -> None:
        examples, _ = build_examples([a_clean_record("i1", a_signal("thumb", "up"), a_signal("abort", True))], 1)
        assert {example.source.weight for example in examples} == {WEAK}

    def test_an_empty_answer_that_was_liked_is_no_example(self) -> None:
        assert reasons(a_clean_record("i1", a_signal("thumb", "up"), answer=" ")) == {"i1": "empty_side"}

    def test_a_tool_call_without_text_is_an_answer(self) -> None:
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}], "refusal": None}
        examples, dropped = build_examples([a_clean_record("i1", a_signal()).model_copy(update={"answer": call})], 1)
        assert dropped == []
        assert isinstance(examples[0], SftExample)
        assert examples[0].completion == ({"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},)


class TestPairs:
    def test_a_disliked_answer_loses_to_a_liked_one_to_the_same_prefix(self) -> None:
        down = a_clean_record("i1", a_signal("thumb", "down"), answer="Bad.")
        far = a_clean_record("i2", a_signal(), answer="Far.", session="s2", user_key="u2", at=NOON + timedelta(hours=1))
        near = a_clean_record("i3", a_signal(), answer="Near.")
        assert rows(down, far)["pairs"] == [("Far.", "Bad.")]
        assert rows(down, far, near)["pairs"] == [("Near.", "Bad.")]

    @pytest.mark.parametrize(
        "other",
        [
            {"messages": ({"role": "user", "content": "How? "},)},
            {"messages": ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "How?"})},
            {"tools": ({"type": "function"},)},
        ],
    )
    def test_another_prompt_system_or_tool_is_another_prefix(self, other: dict[str, Any]) -> None:
        down = a_clean_record("i1", a_signal("thumb", "down"), answer="Bad.")
        assert rows(down, a_clean_record("i2", a_signal(), answer="Good.", **other))["pairs"] == []

    def test_a_replaced_answer_is_no_target_and_loses_only_to_a_proven_one(self) -> None:
        old = a_clean_record("i1", answer="Old.", replaced_by="i2")
        silent, liked = a_clean_record("i2", answer="New."), a_clean_record("i2", a_signal(), answer="New.")
        assert rows(old, silent) == NOTHING
        assert reasons(old, silent) == {"i1": "replaced", "i2": "no_feedback"}
        assert rows(old, liked)["pairs"] == [("New.", "Old.")]
        pair = next(e for e in build_examples([old, liked], 1)[0] if isinstance(e, PreferenceExample))
        assert pair.source.weight == WEAK
        assert pair.source.interaction_ids == ("i2", "i1")

    def test_a_liked_answer_that_was_regenerated_all_the_same_is_no_target(self) -> None:
        old = a_clean_record("i1", a_signal(), answer="Old.", replaced_by="i2")
        new = a_clean_record("i2", a_signal(), answer="New.")
        assert rows(old, new) == {"sft": ["New."], "pairs": [], "votes": [("Old.", True), ("New.", True)]}
        unnamed = a_clean_record("i1", a_signal(), a_signal("regenerate", True), answer="Old.")
        assert rows(unnamed)["sft"] == []

    def test_of_several_tries_the_last_is_the_kept_one(self) -> None:
        tries = [
            a_clean_record("i1", answer="One.", replaced_by="i2"),
            a_clean_record("i2", a_signal("thumb", "down"), answer="Two.", replaced_by="i3"),
            a_clean_record("i3", a_signal(), answer="Three."),
        ]
        assert sorted(rows(*tries)["pairs"]) == [("Three.", "One."), ("Three.", "Two.")]

    def test_a_regeneration_after_another_prompt_is_a_mismatch(self) -> None:
        old = a_clean_record("i1", answer="Old.", replaced_by="i2")
        assert reasons(old, a_clean_record("i2", a_signal(), prompt="Why?", answer="New.")) == {"i1": "prompt_mismatch"}

    def test_a_choice_is_a_pair_and_no_more(self) -> None:
        a = a_clean_record("i1", a_signal("choice", {"over": "i2"}), answer="A.", replaced_by="i2")
        b = a_clean_record("i2", answer="B.")
        assert rows(a, b) == NOTHING | {"pairs": [("A.", "B.")]}

    @pytest.mark.parametrize(
        ("chosen", "rejected", "reason"),
        [
            ({"answer": "A.", "prompt": "Why?"}, {"answer": "B."}, "prompt_mismatch"),
            ({"answer": ""}, {"answer": "B."}, "empty_side"),
            ({"answer": "A."}, {"answer": "A."}, "identical"),
            ({"answer": "How"}, {"answer": "B."}, "equals_prompt"),
            ({"answer": "A"}, {"answer": "A ."}, "trivial_edit"),
        ],
    )
    def test_a_choice_that_makes_no_pair_drops_both_by_name(
        self, chosen: dict[str, Any], rejected: dict[str, Any], reason: str
    ) -> None:
        a = a_clean_record("i1", a_signal("choice", {"over": "i2"}), **chosen)
        b = a_clean_record("i2", **rejected)
        assert rows(a, b) == NOTHING
        assert reasons(a, b) == {"i1": reason, "i2": reason}

    def test_opposite_choices_of_two_users_conflict_and_of_one_user_the_later_counts(self) -> None:
        later = NOON + timedelta(minutes=1)
        a = a_clean_record("i1", a_signal("choice", {"over": "i2"}), answer="A.")
        for user, expected in (("u2", []), ("u1", [("B.", "A.")])):
            signal = a_signal("choice", {"over": "i1"}, user_key=user, occurred_at=later)
            b = a_clean_record("i2", signal, answer="B.")
            assert rows(a, b)["pairs"] == expected

    def test_a_choice_over_an_answer_that_is_not_there_is_weak(self) -> None:
        assert reasons(a_clean_record("i1", a_signal("choice", {"over": "gone"}))) == {"i1": "weak_evidence"}


def test_a_claim_needs_as_many_users_as_the_business_says() -> None:
    one = [a_clean_record("i1", a_signal(user_key="u1"))]
    two = [*one, a_clean_record("i2", a_signal(user_key="u2"), session="s2", user_key="u2")]
    assert reasons(*one, min_users=2) == {"i1": "too_few_users"}
    assert reasons(*two, min_users=2) == {}
    assert len(rows(*two, min_users=2)["sft"]) == 2


def test_a_row_names_all_that_it_comes_from() -> None:
    down = a_clean_record("i1", a_signal("thumb", "down", event_ids=("e1", "e2")), answer="Bad.", model_version="m1")
    up = a_clean_record(
        "i2", a_signal(user_key="u3"), answer="Good.", user_key="u2", session="s2", at=NOON + timedelta(hours=1)
    )
    pair = next(e for e in build_examples([down, up], 1)[0] if isinstance(e, PreferenceExample))
    assert pair.source.model_dump() == {
        "interaction_ids": ("i2", "i1"),
        "event_ids": ("e-thumb", "e1", "e2"),
        "model_versions": ("base", "m1"),
        "user_keys": ("u1", "u2", "u3"),
        "session": "s2",
        "at": NOON + timedelta(hours=1),
        "weight": 1.0,
    }


ANSWERS = st.sampled_from(["So.", "So", "No, go to the order page.", "No, go to the other page.", "", "How"])
IDS = ["i1", "i2", "i3", "i4"]
SIGNALS = st.one_of(
    st.builds(
        lambda v, u: a_signal("thumb", v, user_key=u), st.sampled_from(["up", "down", None]), st.sampled_from("uvw")
    ),
    st.builds(
        lambda v, u: a_signal("outcome", v, user_key=u), st.sampled_from(["passed", "failed"]), st.sampled_from("uv")
    ),
    st.builds(lambda v: a_signal("choice", {"over": v}), st.sampled_from(IDS)),
    st.builds(lambda k: a_signal(k, True), st.sampled_from(["abort", "regenerate"])),
)


@st.composite
def record_sets(draw: st.DrawFn) -> list[CleanRecord]:
    records = []
    for interaction_id in IDS[: draw(st.integers(0, 4))]:
        signals = draw(st.lists(SIGNALS, max_size=3))
        edited = draw(st.none() | ANSWERS)
        records.append(
            a_clean_record(
                interaction_id,
                *signals,
                *([a_signal("edit", edited)] if edited is not None else []),
                prompt=draw(st.sampled_from(["How?", "Why?"])),
                answer=draw(ANSWERS),
                edited=edited,
                replaced_by=draw(st.none() | st.sampled_from(IDS)),
                at=NOON + timedelta(minutes=draw(st.integers(0, 2))),
                user_key=draw(st.sampled_from(["u", "v", None])),
            )
        )
    return records


def sides(example: Example) -> list[Any]:
    match example:
        case PreferenceExample():
            return [example.chosen[0]["content"], example.rejected[0]["content"]]
        case _:
            return [example.completion[0]["content"]]


@settings(max_examples=60, deadline=None)
@given(st.data(), record_sets(), st.integers(1, 2))
def test_sums_match_and_order_changes_nothing(data: st.DataObject, records: list[CleanRecord], min_users: int) -> None:
    examples, dropped = build_examples(records, min_users)
    used = {i for example in examples for i in example.source.interaction_ids}
    assert sorted([*used, *(d.interaction_id for d in dropped)]) == sorted(r.interaction_id for r in records)
    again, dropped_again = build_examples(data.draw(st.permutations(records)), min_users)
    assert sorted(map(repr, again)) == sorted(map(repr, examples))
    assert sorted(map(repr, dropped_again)) == sorted(map(repr, dropped))


@settings(max_examples=60, deadline=None)
@given(record_sets())
def test_no_row_breaks_a_rule(records: list[CleanRecord]) -> None:
    by_id = {r.interaction_id: r for r in records}
    examples, _ = build_examples(records, 1)
    for example in examples:
        assert all(str(side).strip() for side in sides(example))
        origins = [by_id[i] for i in example.source.interaction_ids]
        assert {canonical_json(list(o.messages)) for o in origins} == {canonical_json(list(example.prompt))}
        if isinstance(example, PreferenceExample):
            better, worse = sides(example)
            assert better.strip(" .") != worse.strip(" .")
        if isinstance(example, SftExample) and example.completion[0]["content"] == origins[0].answer["content"]:
            assert origins[0].replaced_by is None or origins[0].edited == origins[0].answer["content"]
    pairs = [e.source.interaction_ids[-1] for e in examples if isinstance(e, PreferenceExample)]
    choices = [r for r in records if any(s.kind.value == "choice" for s in r.signals)]
    assert len(pairs) == len(set(pairs)) or choices
