"""Who is held out is fixed, and nothing stands on both sides of training."""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dataset.split import FEW_USERS, SplitRows, split_examples
from pipeline.records import Example
from tests.builders import NOON, a_preference, a_source, an_sft, an_unpaired

RECENT = NOON + timedelta(days=1)
# Only rows of the same words in the same order are near.
WORDS = ["alphabet", "brochure", "customer", "delivery", "envelope", "foxglove", "gardener", "hedgehog", "invoices"]


@st.composite
def datasets(draw: st.DrawFn, users: int = 30) -> list[Example]:
    examples: list[Example] = []
    for number in range(draw(st.integers(0, 30))):
        user = draw(st.none() | st.integers(0, users - 1).map("u{}".format))
        source = a_source(
            f"i{draw(st.integers(0, number))}",
            user,
            f"s-{user}-{draw(st.integers(0, 2))}",
            at=NOON + timedelta(hours=draw(st.integers(0, 40))),
        )
        if draw(st.integers(0, 5)) == 0:
            other = f"u{draw(st.integers(0, users - 1))}"
            source = source.model_copy(update={"user_keys": (*source.user_keys, other)})
        prompt = " ".join(draw(st.permutations(WORDS))[:4])
        examples.append(draw(st.sampled_from([an_sft, a_preference, an_unpaired]))(source, prompt=prompt))
    return examples


def split(examples: Sequence[Example], share: float = 0.3) -> SplitRows:
    return split_examples(examples, "support", share, RECENT)


def keys(examples: Sequence[Example]) -> tuple[set[str], set[str], set[str]]:
    return (
        {e.source.session for e in examples},
        {i for e in examples for i in e.source.interaction_ids},
        {str(e.prompt[0]["content"]) for e in examples},
    )


@settings(max_examples=12, deadline=None)
@given(datasets())
def test_nothing_stands_on_both_sides_of_training(examples: list[Example]) -> None:
    rows = split(examples)
    for measured in (rows.held_out, rows.recent):
        for trained, other in zip(keys(rows.train), keys(measured), strict=True):
            assert trained.isdisjoint(other)
    if rows.split_by == "user":
        held_users = {u for e in rows.held_out for u in e.source.user_keys if u in HELD}
        assert not any(u in HELD for e in (*rows.train, *rows.recent) for u in e.source.user_keys)
        assert all(set(e.source.user_keys) & held_users or not e.source.user_keys for e in rows.held_out)
    assert all(e.source.at < RECENT for e in rows.train)


def held_users(share: float) -> set[str]:
    """Who is held out, found by a dataset in which each user says something else."""
    examples = [an_sft(a_source(f"i{n}", f"u{n}", f"s{n}"), prompt=f"{n:020d}") for n in range(200)]
    return {u for e in split(examples, share).held_out for u in e.source.user_keys}


HELD = held_users(0.3)


def test_about_the_wished_share_is_held_out_and_a_larger_share_keeps_who_was() -> None:
    assert 40 <= len(HELD) <= 80
    assert held_users(0.1) < HELD
    assert 8 <= len(held_users(0.1)) <= 35


@settings(max_examples=12, deadline=None)
@given(datasets())
def test_sums_match(examples: list[Example]) -> None:
    rows = split(examples)
    kept = [*rows.train, *rows.held_out, *rows.recent]
    used = {i for e in kept for i in e.source.interaction_ids}
    dropped = [d.interaction_id for d in rows.dropped]
    assert sorted([*used, *dropped]) == sorted({i for e in examples for i in e.source.interaction_ids})


@settings(max_examples=12, deadline=None)
@given(st.data(), datasets())
def test_the_order_of_rows_changes_nothing(data: st.DataObject, examples: list[Example]) -> None:
    one, other = split(examples), split(data.draw(st.permutations(examples)))
    for side in ("train", "held_out", "recent"):
        assert sorted(map(repr, getattr(one, side))) == sorted(map(repr, getattr(other, side)))


@settings(max_examples=12, deadline=None)
@given(datasets(), datasets())
def test_a_user_held_out_one_night_is_held_out_on_every_other(one: list[Example], other: list[Example]) -> None:
    nights = [split(one), split([*one, *other])]
    if all(rows.split_by == "user" for rows in nights):
        trained = {u for e in (*nights[1].train, *nights[1].recent) for u in e.source.user_keys}
        assert not trained & {u for e in nights[0].held_out for u in e.source.user_keys} & HELD


def rows_of(users: int, sessions: int) -> list[Example]:
    return [an_sft(a_source(f"i{n}", f"u{n % users}", f"s{n % sessions}"), prompt=f"{n:020d}") for n in range(sessions)]


def test_few_users_are_split_by_conversation_and_it_is_said() -> None:
    few = split(rows_of(FEW_USERS - 1, 60))
    assert few.split_by == "session"
    assert 6 <= len(few.held_out) <= 30
    assert split(rows_of(FEW_USERS, 60)).split_by == "user"


def test_businesses_hold_out_different_users() -> None:
    examples = [an_sft(a_source(f"i{n}", f"u{n}", f"s{n}"), prompt=f"{n:020d}") for n in range(200)]
    other = split_examples(examples, "legal", 0.3, RECENT)
    assert {u for e in other.held_out for u in e.source.user_keys} != HELD


def test_a_training_row_too_near_to_a_held_out_one_is_dropped_by_name() -> None:
    held, free = sorted(HELD)[0], next(f"u{n}" for n in range(200) if f"u{n}" not in HELD)
    text = "How do I return a parcel that arrived broken, and who pays for the postage?"
    fill: list[Example] = [an_sft(a_source(f"x{n}", f"u{n}", f"x{n}"), prompt=f"{n:020d}") for n in range(20)]
    near = an_sft(a_source("near", free, "near"), prompt=text + "!")
    rows = split([*fill, near, an_sft(a_source("held", held, "held"), prompt=text)])
    assert [d.model_dump() for d in rows.dropped] == [
        {"interaction_id": "near", "reason": "held_out_neighbour", "detail": "", "kept": None}
    ]
    assert near in split([*fill, near]).train


def test_a_conversation_that_reaches_into_the_newest_window_is_recent_as_a_whole() -> None:
    old = an_sft(a_source("i1", None, "s1", at=NOON), prompt=WORDS[0] * 3)
    new = an_sft(a_source("i2", None, "s1", at=RECENT), prompt=WORDS[1] * 3)
    rows = split([old, new], share=0.0)
    assert (rows.train, set(map(repr, rows.recent))) == ((), {repr(old), repr(new)})
