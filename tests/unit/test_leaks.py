"""What the gate asks is in no training row; each kind of leak, planted, is refused by name."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.leaks import Leak, find_leaks, refuse_leaks
from pipeline.config import DatasetConfig
from pipeline.dataset.build import build_rows
from pipeline.dataset.snapshot import Rows, Snapshot
from pipeline.dataset.split import SplitRows, split_examples
from pipeline.dataset.suite import Suite, golden_questions
from pipeline.errors import DataError
from pipeline.records import DropReason, Example, SftExample, Split
from tests.builders import NOON, a_clean_record, a_manifest, a_signal, a_source, an_sft

GOLDEN = "How long may I keep a parcel at home before I have to send it back to the shop?"
SUITE = Suite.model_validate({"items": [{"id": "g", "prompt": GOLDEN, "checks": [{"kind": "contains", "text": "a"}]}]})
LONG = "where do I find the form that I need to change the address on an order of last week"
HELD = an_sft(a_source("i-held", "u-held", "s-held"), LONG, "Open the orders page and choose the order.")
NEW = an_sft(a_source("i-new", "u-new", "s-new"), "who repairs a chair with three legs", "Our workshop does.")
TRAINED = an_sft(a_source("i1", "u1", "s1"), "is the tea green or black", "It is green tea.")


def snapshot(*train: Example, split_by: str = "user") -> Snapshot:
    return Snapshot(
        a_manifest(split_by=split_by),
        {
            Split.TRAIN: rows((TRAINED, *train)),
            Split.HELD_OUT: rows([HELD]),
            Split.RECENT: rows([NEW]),
        },
    )


def rows(examples: Sequence[Example]) -> Rows:
    return Rows(sft=tuple(e for e in examples if isinstance(e, SftExample)))


def row(prompt: str = "what is this", answer: str = "That.", **source: str) -> SftExample:
    values = {"interaction_id": "i-leak", "user": "u2", "session": "s2"} | source
    return an_sft(a_source(**values), prompt, answer)


PLANTED = [
    (row(interaction_id="i-held"), Leak.INTERACTION),
    (row(interaction_id="i-new"), Leak.INTERACTION),
    (row(user="u-held"), Leak.USER),
    (row(session="s-held"), Leak.CONVERSATION),
    (row(session="s-new"), Leak.CONVERSATION),
    (row(LONG, "Open the orders page and choose the order."), Leak.NEAR_DUPLICATE),
    (row(f"{LONG}!", "open the orders page and choose the order!"), Leak.NEAR_DUPLICATE),
    (row(f"Please, {LONG}", "Open the orders page and choose the order."), Leak.NEAR_DUPLICATE),
    (row(GOLDEN), Leak.GOLDEN),
    (row(GOLDEN.upper()), Leak.GOLDEN),
    (row(f"Please: {GOLDEN}"), Leak.GOLDEN),
    (row("What is the capital of France?"), Leak.PROBE),
    (row("澳大利亚的首都是哪里：悉尼还是堪培拉？请用一句话回答。"), Leak.PROBE),
]


def test_a_snapshot_whose_sides_are_apart_passes() -> None:
    assert find_leaks(snapshot(), SUITE, 0.8) == {}
    refuse_leaks(snapshot(row(user="u-new")), SUITE, 0.8)  # the newest rows are of users who are trained on


@pytest.mark.parametrize(("planted", "kind"), PLANTED)
def test_each_planted_leak_is_refused_by_name(planted: SftExample, kind: Leak) -> None:
    (name,) = planted.source.interaction_ids
    with pytest.raises(DataError, match=rf"snapshot 'a{{12}}' of business 'support'.*1 of them hold {kind} \(such as"):
        refuse_leaks(snapshot(planted), SUITE, 0.8)
    assert find_leaks(snapshot(planted), SUITE, 0.8) == {name: kind}


def test_all_kinds_are_told_at_once_and_no_user_is_named() -> None:
    planted = [one.model_copy(update={"source": a_source(f"i{n}", "u-held")}) for n, (one, _) in enumerate(PLANTED)]
    with pytest.raises(DataError) as caught:
        refuse_leaks(snapshot(*planted, row(GOLDEN)), SUITE, 0.8)
    assert f"{len(PLANTED)} of them hold {Leak.USER} (such as 'i0'); 1 of them hold {Leak.GOLDEN}" in str(caught.value)
    assert "u-held" not in str(caught.value)


def test_where_conversations_are_held_out_users_stand_on_both_sides() -> None:
    assert find_leaks(snapshot(row(user="u-held"), split_by="session"), SUITE, 0.8) == {}


def test_of_a_row_of_several_users_one_is_held_out() -> None:
    both = HELD.model_copy(
        update={"source": a_source("i-held", "a", "s-held").model_copy(update={"user_keys": ("a", "b")})}
    )
    held = snapshot(row(user="b"))
    held.rows[Split.HELD_OUT] = rows([both])
    assert find_leaks(held, SUITE, 0.8) == {}
    held.rows[Split.TRAIN] = rows([row(user="b"), row(interaction_id="i-a", user="a")])
    assert set(find_leaks(held, SUITE, 0.8).values()) == {Leak.USER}


WORDS = ["alphabet", "brochure", "customer", "delivery", "envelope", "foxglove", "gardener", "hedgehog"]


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 2), st.permutations(WORDS), st.integers(0, 40)), max_size=40)
)
def test_what_the_split_makes_has_no_leak(drawn: list[tuple[int, int, list[str], int]]) -> None:
    examples = [
        an_sft(
            a_source(f"i{number}", f"u{user}", f"s{user}-{session}", at=NOON + timedelta(hours=hours)),
            " ".join(words[:5]),
        )
        for number, (user, session, words, hours) in enumerate(drawn)
    ]
    split: SplitRows = split_examples(examples, "support", 0.3, NOON + timedelta(days=1))
    sides = {Split.TRAIN: split.train, Split.HELD_OUT: split.held_out, Split.RECENT: split.recent}
    made = Snapshot(a_manifest(split_by=split.split_by), {side: rows(found) for side, found in sides.items()})
    assert find_leaks(made, Suite(), 0.8) == {}


def test_the_build_leaves_out_what_asks_nearly_the_same_as_the_golden_suite() -> None:
    records = [
        a_clean_record(f"i{n}", a_signal("thumb"), prompt=prompt, user_key=f"u{n}", session=f"s{n}")
        for n, prompt in enumerate((f"Please: {GOLDEN}", "is the tea green or black", "who repairs a chair"))
    ]
    end = NOON + timedelta(days=3)
    split, dropped = build_rows(records, "support", DatasetConfig(min_rows=1), end, golden_questions(SUITE))
    assert [(one.interaction_id, one.reason) for one in dropped] == [("i0", DropReason.GOLDEN)]
    asked = {str(e.prompt[-1]["content"]) for e in (*split.train, *split.held_out, *split.recent)}
    assert asked == {"is the tea green or black", "who repairs a chair"}
