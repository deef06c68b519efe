"""Which questions are asked."""

from hypothesis import given, settings
from hypothesis import strategies as st

from evals.items import make_items
from pipeline.dataset.snapshot import Rows, Snapshot
from pipeline.dataset.suite import Suite
from pipeline.records import Split
from tests.builders import a_manifest, a_preference, a_source, an_sft, an_unpaired

SUITE = Suite.model_validate(
    {
        "rules": [{"kind": "max_words", "limit": 9}],
        "items": [
            {"id": f"g{number}", "prompt": f"Golden {number}?", "checks": [{"kind": "contains", "text": "a"}]}
            for number in range(4)
        ],
    }
)
RULE = {"kind": "max_words", "limit": 9}


NONE = Rows()


def snapshot(held_out: Rows = NONE, recent: Rows = NONE, train: Rows = NONE) -> Snapshot:
    return Snapshot(a_manifest(), {Split.TRAIN: train, Split.HELD_OUT: held_out, Split.RECENT: recent})


def test_one_item_for_each_prompt_of_a_user_the_pair_before_the_target() -> None:
    rows = Rows(
        sft=(an_sft(a_source("i1"), "How?", "Edited."), an_sft(a_source("i2"), "Why?", "Because.")),
        preference=(a_preference(a_source("i1"), "How?", "Edited.", "Original."),),
        unpaired=(an_unpaired(a_source("i1"), True, "How?", "Liked."),),
    )
    how, why = sorted(make_items(snapshot(rows), None, 10, 0), key=lambda item: item.messages[0]["content"] != "How?")
    assert (how.reference, how.rejected) == ("Edited.", "Original.")
    assert (why.reference, why.rejected) == ("Because.", None)


def test_the_same_prompt_of_two_users_is_two_items() -> None:
    rows = Rows(sft=(an_sft(a_source("i1", user="u1")), an_sft(a_source("i2", user="u2"))))
    assert [item.user_key for item in make_items(snapshot(rows), None, 10, 0)] in (["u1", "u2"], ["u2", "u1"])


def test_a_disliked_answer_is_a_question_and_no_reference() -> None:
    rows = Rows(unpaired=(an_unpaired(a_source(), False),))
    item = next(item for item in make_items(snapshot(rows), SUITE, 10, 0) if item.set_name == "held_out")
    assert (item.reference, item.rejected) == (None, None)
    assert item.checks == (RULE,)


def test_a_user_without_a_name_is_a_session() -> None:
    (item,) = make_items(snapshot(Rows(sft=(an_sft(a_source(user=None, session="s9")),))), None, 10, 0)
    assert item.user_key == "session:s9"


def test_golden_items_carry_their_checks_and_the_rules_and_stand_for_themselves() -> None:
    items = make_items(snapshot(), SUITE, 10, 0)
    assert {item.user_key for item in items} == {"golden:g0", "golden:g1", "golden:g2", "golden:g3"}
    assert all(item.checks == ({"kind": "contains", "text": "a"}, RULE) for item in items)


def test_what_was_trained_on_is_never_asked() -> None:
    assert make_items(snapshot(train=Rows(sft=(an_sft(a_source()),))), None, 10, 0) == ()


def many(users: int, each: int, start: int = 0) -> Rows:
    return Rows(
        sft=tuple(
            an_sft(a_source(f"i{user}-{number}", user=f"u{user}"), f"Question {user}-{number}?")
            for user in range(start, start + users)
            for number in range(each)
        )
    )


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 4), st.integers(0, 12), st.integers(1, 40), st.integers(0, 3))
def test_never_more_than_asked_for_never_twice_and_always_the_same(
    users: int, each: int, recent: int, limit: int, seed: int
) -> None:
    source = snapshot(many(users, each), many(recent, 1, start=100))
    items = make_items(source, SUITE, limit, seed)
    assert len(items) <= limit
    assert len({item.item_id for item in items}) == len(items)
    assert items == make_items(source, SUITE, limit, seed)
    available = 4 + users * each + min(recent, limit // 5)
    assert len(items) == min(limit, available)


def test_users_take_turns() -> None:
    items = make_items(snapshot(many(users=5, each=20)), None, 5, 0)
    assert len({item.user_key for item in items}) == 5


def test_the_main_set_comes_before_the_recent_one() -> None:
    names = [item.set_name for item in make_items(snapshot(many(3, 2), many(3, 2, start=100)), SUITE, 40, 0)]
    assert names == sorted(names, key=["golden", "held_out", "recent"].index)
