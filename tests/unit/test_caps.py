"""No user supplies more than the share, and who floods gains nothing by it."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.dataset.caps import cap_users
from pipeline.records import DropReason, Example, PreferenceExample, SftExample
from tests.builders import a_preference, a_source, an_sft, an_unpaired

USERS = st.sampled_from(["u1", "u2", "u3", None])


@st.composite
def example_lists(draw: st.DrawFn) -> list[Example]:
    examples: list[Example] = []
    for number in range(draw(st.integers(0, 25))):
        make = draw(st.sampled_from([an_sft, a_preference, an_unpaired]))
        source = a_source(f"i{draw(st.integers(0, number))}", user=draw(USERS))
        others = draw(st.sampled_from([(), ("u9",)]))
        examples.append(make(source.model_copy(update={"user_keys": source.user_keys + others})))
    return examples


@settings(max_examples=40, deadline=None)
@given(example_lists(), st.floats(0, 1), st.integers(1, 4))
def test_no_user_is_over_the_limit_and_no_row_is_lost_in_vain(
    examples: list[Example], share: float, floor: int
) -> None:
    kept, dropped = cap_users(examples, share, floor)
    limit = max(floor, int(share * len(examples) + 1e-9))
    supplied = Counter(user for example in kept for user in example.source.user_keys)
    assert all(count <= limit for count in supplied.values())
    for example in examples:
        if example not in kept:
            assert any(supplied[user] == limit for user in example.source.user_keys)
    before = {i for e in examples for i in e.source.interaction_ids}
    after = {i for e in kept for i in e.source.interaction_ids}
    assert {d.interaction_id for d in dropped} == before - after
    assert {d.reason for d in dropped} <= {DropReason.USER_CAP}
    assert len({d.interaction_id for d in dropped}) == len(dropped)


@settings(max_examples=20, deadline=None)
@given(st.data(), example_lists())
def test_the_order_of_rows_changes_nothing(data: st.DataObject, examples: list[Example]) -> None:
    kept, dropped = cap_users(examples, 0.1, 2)
    again, dropped_again = cap_users(data.draw(st.permutations(examples)), 0.1, 2)
    assert sorted(map(repr, again)) == sorted(map(repr, kept))
    assert dropped_again == dropped


def test_a_flood_is_cut_to_two_percent_and_others_are_left_alone() -> None:
    flood: list[Example] = [an_unpaired(a_source(f"f{n}", user="u666"), label=False) for n in range(500)]
    others: list[Example] = [an_unpaired(a_source(f"i{n}", user=f"u{n}")) for n in range(100)]
    strangers: list[Example] = [an_unpaired(a_source(f"s{n}", user=None)) for n in range(50)]
    kept, dropped = cap_users([*flood, *others, *strangers], 0.02, 3)
    assert sum("u666" in e.source.user_keys for e in kept) == 13
    assert [e for e in kept if "u666" not in e.source.user_keys] == [*others, *strangers]
    assert len(dropped) == 487


def test_pairs_stay_before_targets_and_targets_before_votes() -> None:
    rows: list[Example] = [make(a_source(f"i{n}")) for n in range(3) for make in (an_unpaired, an_sft, a_preference)]
    kept, _ = cap_users(rows, 0.0, 4)
    assert sum(isinstance(e, PreferenceExample) for e in kept) == 3
    assert sum(isinstance(e, SftExample) for e in kept) == 1
