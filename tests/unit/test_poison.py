"""Poison is found, honest users of many habits are left alone, and neither order nor repetition of events matters."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.collect.join import join_feedback
from pipeline.collect.poison import screen
from pipeline.collect.poison.inserts import _runs_among, _runs_that_say_something, _substrings
from pipeline.config import PoisonConfig
from pipeline.records import Feedback, Finding, Interaction, QuarantineReason
from tests.builders import NOON, a_feedback, an_interaction
from tests.poison_world import KINDS, World, honest_world, poisoned_world

CONFIG = PoisonConfig()
SEEDS = range(3)


def held_in(world: World) -> set[str]:
    return {i for f in screen(join_feedback(world.interactions, world.feedback), CONFIG) for i in f.interaction_ids}


@pytest.mark.parametrize("seed", SEEDS)
def test_planted_poison_is_held_and_honest_feedback_is_not(seed: int) -> None:
    world = poisoned_world(seed)
    held = held_in(world)
    planted = set().union(*world.poison.values())
    assert len(planted) / len(planted | world.rated) == pytest.approx(0.05, abs=0.005)
    shares = {kind: len(held & world.poison[kind]) / len(world.poison[kind]) for kind in KINDS}
    wrong = len(held & world.rated) / len(world.rated)
    caught = len(held & planted) / len(planted)
    kinds = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())
    print(
        f"seed {seed}: {len(world.rated)} honest rated interactions, {len(planted)} planted: {caught:.1%} held "
        f"({kinds}); honest held: {wrong:.2%}"
    )
    assert caught >= 0.9
    assert wrong < 0.01


@pytest.mark.parametrize(("seed", "users"), [(100, 900), (102, 120), (103, 30)])
def test_a_business_of_honest_users_loses_next_to_nothing(seed: int, users: int) -> None:
    world = honest_world(seed, users)
    wrong = len(held_in(world) & world.rated) / len(world.rated)
    print(f"seed {seed}, {users} users: {len(world.rated)} honest rated interactions, held: {wrong:.2%}")
    assert wrong < 0.01


@pytest.fixture(scope="module")
def poisoned() -> tuple[World, list[Finding]]:
    """A small business with much poison, and what is found in it."""
    world = poisoned_world(7, users=250, share=0.2)
    found = screen(join_feedback(world.interactions, world.feedback), CONFIG)
    assert {finding.reason for finding in found} >= set(QuarantineReason) - {QuarantineReason.SAME_TEXT}
    return world, found


class TestOrder:
    @settings(max_examples=8)
    @given(seed=st.integers(0, 2**32), again=st.integers(0, 500))
    def test_shuffled_and_redelivered_events_change_nothing(
        self, poisoned: tuple[World, list[Finding]], seed: int, again: int
    ) -> None:
        world, expected = poisoned
        dice = random.Random(seed)
        interactions = [*world.interactions, *dice.sample(world.interactions, k=again)]
        feedback = [*world.feedback, *dice.sample(world.feedback, k=min(again, len(world.feedback)))]
        dice.shuffle(interactions)
        dice.shuffle(feedback)
        rated = join_feedback(interactions, feedback)
        dice.shuffle(rated)
        assert screen(rated, CONFIG) == expected

    def test_no_text_of_anybody_is_in_a_finding(self, poisoned: tuple[World, list[Finding]]) -> None:
        world, found = poisoned
        words = {word for one in world.interactions for word in str(one.request).split() if len(word) > 4}
        shown = " ".join(finding.evidence for finding in found)
        assert not words & set(shown.split())
        assert "cheap-deals" not in shown
        assert "python-requests" not in shown


def a_business(*more: tuple[Interaction, Feedback]) -> tuple[list[Interaction], list[Feedback]]:
    """Thirty users with three votes each over a week, two up and one down, and what else is given."""
    events = list(more)
    for number in range(90):
        at = NOON - timedelta(hours=number * 2)
        one = an_interaction(f"h{number}", prompt=f"p{number}", user_key=f"h{number % 30}", started_at=at)
        vote = "down" if number // 30 == number % 3 else "up"
        events.append((one, a_feedback(f"he{number}", f"h{number}", "thumb", vote, user_key=None, occurred_at=at)))
    return [one for one, _ in events], [said for _, said in events]


def said(name: str, kind: str = "thumb", value: Any = "down", **fields: Any) -> tuple[Interaction, Feedback]:
    """An interaction and what its user says about it; `user`, `at` and `by` (who says it) are short for fields."""
    user, at = fields.pop("user", "x"), fields.pop("at", NOON)
    by = fields.pop("by", user)
    one = an_interaction(name, user_key=user, started_at=at, session=f"s-{user}", **fields)
    return one, a_feedback(f"e-{name}", name, kind, value, user_key=by, occurred_at=at)


def reasons(*more: tuple[Interaction, Feedback], config: PoisonConfig = CONFIG) -> Counter[QuarantineReason]:
    interactions, feedback = a_business(*more)
    return Counter(finding.reason for finding in screen(join_feedback(interactions, feedback), config))


def every(minutes: float, number: int) -> Any:
    return NOON + timedelta(minutes=minutes * number)


class TestBursts:
    def test_many_votes_at_once_are_one_and_the_same_over_weeks_are_none(self) -> None:
        assert reasons(*(said(f"x{n}", at=every(0.5, n)) for n in range(30))) == {QuarantineReason.BURST: 1}
        assert reasons(*(said(f"x{n}", at=every(-2000, n)) for n in range(30))) == {}

    def test_only_the_burst_is_held(self) -> None:
        interactions, feedback = a_business(
            *(said(f"x{n}", at=every(0.5, n)) for n in range(30)), said("before", value="up", at=every(-6000, 1))
        )
        (finding,) = screen(join_feedback(interactions, feedback), CONFIG)
        assert len(finding.interaction_ids) == 30
        assert "before" not in finding.interaction_ids
        assert finding.user_keys == ("x",)

    def test_strangers_are_not_one_person_but_a_known_conversation_is(self) -> None:
        def strangers(known: bool) -> Counter[QuarantineReason]:
            fields: dict[str, Any] = {"user": None, "session_known": known}
            return reasons(*(said(f"x{n}", at=every(0.5, n), **fields) for n in range(30)))

        assert strangers(known=False) == {}
        assert strangers(known=True) == {QuarantineReason.BURST: 1}

    def test_outcomes_come_in_batches(self) -> None:
        assert reasons(*(said(f"x{n}", "outcome", "failed", at=every(0.1, n)) for n in range(30))) == {}

    def test_a_handful_of_users_cannot_be_compared(self) -> None:
        events = [said(f"x{n}", at=every(0.5, n)) for n in range(30)]
        rated = join_feedback([one for one, _ in events], [vote for _, vote in events])
        assert screen(rated, CONFIG) == []


class TestGroups:
    def test_a_client_whose_users_all_say_bad(self) -> None:
        group = [said(f"x{n}", user=f"x{n % 6}", client="script", at=every(-300, n)) for n in range(24)]
        assert reasons(*group) == {QuarantineReason.GROUP: 1}

    def test_an_import_is_no_client(self) -> None:
        group = [said(f"x{n}", user=f"x{n % 6}", client="import/openwebui", at=every(-300, n)) for n in range(24)]
        assert reasons(*group) == {}

    def test_a_client_of_most_users_is_news_and_none(self) -> None:
        group = [said(f"x{n}", user=f"x{n % 20}", client="new app", at=every(-60, n)) for n in range(60)]
        assert reasons(*group) == {}

    def test_users_who_came_for_one_hour_and_said_one_thing(self) -> None:
        night = [said(f"x{n}", user=f"x{n % 6}", value="up", at=every(2, n) - timedelta(hours=9.9)) for n in range(18)]
        assert reasons(*night) == {QuarantineReason.GROUP: 1}


class TestInserts:
    QUESTIONS = (
        "refunds of a late parcel",
        "开具电子发票",
        "my login code",
        "gift cards abroad",
        "cancel the contract",
    )
    MORE = (
        "change of address",
        "broken zip of a bag",
        "a lost voucher",
        "size of winter boots",
        "delivery to an island",
    )

    def edits(
        self, insert: str, *, same_question: bool = False, users: int = 3, **fields: Any
    ) -> list[tuple[Interaction, Feedback]]:
        questions = self.QUESTIONS + self.MORE
        made = []
        for n, question in enumerate(questions):
            prompt = "How long may I return it?" if same_question else question
            answer = f"Sorry about {question}: {n}"
            texts = {"prompt": prompt, "answer": answer}
            user = f"x{n % users}"
            made.append(said(f"x{n}", "edit", f"{answer} {insert}", user=user, at=every(-200, n), **texts, **fields))
        return made

    def test_the_same_site_with_other_paths(self) -> None:
        assert reasons(*self.edits("https://www.Cheap.example/a?b")) == {QuarantineReason.SAME_LINK: 1}
        assert reasons(*self.edits("看这里http://cheap.example，很好")) == {QuarantineReason.SAME_LINK: 1}

    def test_a_site_that_the_business_names_as_its_own(self) -> None:
        own = PoisonConfig(own_sites=frozenset({"shop.example"}))
        assert reasons(*self.edits("https://shop.example/returns"), config=own) == {}

    def test_a_site_and_a_text_of_the_system_prompt_or_of_the_answers(self) -> None:
        text = "Read our terms of service at https://shop.example/terms."
        system = {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "Hello"}]}
        assert reasons(*self.edits(text), said("s", value="up", request=system)) == {}
        answers = [said(f"a{n}", value="up", user=f"a{n}", answer=text, at=every(-500, n)) for n in range(10)]
        assert reasons(*self.edits(text), *answers) == {}

    @pytest.mark.parametrize("insert", ["Ask for the brand Lumo instead!", "请改买露莫牌的产品，质量更好"])
    def test_the_same_words_in_answers_to_different_questions(self, insert: str) -> None:
        assert reasons(*self.edits(insert)) == {QuarantineReason.SAME_TEXT: 1}

    def test_many_users_mend_the_same_mistake(self) -> None:
        assert reasons(*self.edits("You may return it within thirty days.", same_question=True)) == {}

    @pytest.mark.parametrize("insert", ["https://cheap.example/a", "Ask for the brand Lumo instead!"])
    def test_what_many_users_do_is_what_is_to_be_learned(self, insert: str) -> None:
        assert sum(reasons(*self.edits(insert, users=10)).values()) == 0
        assert sum(reasons(*self.edits(insert, users=1)).values()) == 1

    def test_users_who_say_once_or_twice_what_belongs_there_agree_and_are_no_group(self) -> None:
        text = "Please look at the returns page."
        assert reasons(*self.edits(text, users=3)) == {QuarantineReason.SAME_TEXT: 1}
        assert reasons(*self.edits(text, users=8), *honest_editors(60)) == {}

    def test_thanks_are_no_poison(self) -> None:
        assert reasons(*self.edits("Many thanks!")) == {}


def honest_editors(count: int) -> list[tuple[Interaction, Feedback]]:
    """Others who edit too, each in words of their own."""
    return [
        said(f"h{n}", "edit", f"Mended answer number {n}.", user=f"h{n}", at=every(-900, n), prompt=f"Wish {n}?")
        for n in range(count)
    ]


class TestContrarians:
    def votes(self, contrarian: str, count: int = 12) -> list[tuple[Interaction, Feedback]]:
        """A dozen questions, each answered the same for four users who like it and one more."""
        made = []
        for n in range(count):
            texts = {"prompt": f"Question number {n}?", "answer": f"This is the answer to the question {n}."}
            for user in range(4):
                name = f"l{n}-{user}"
                made.append(said(name, value="up", user=f"l{(n + user) % 14}", at=every(-97, len(made)), **texts))
            made.append(said(f"x{n}", value=contrarian, user="x", at=every(-97, len(made)), **texts))
        return made

    def test_a_user_against_all_others(self) -> None:
        assert reasons(*self.votes("down")) == {QuarantineReason.CONTRARIAN: 1}

    def test_one_who_agrees_or_disagrees_now_and_then(self) -> None:
        assert reasons(*self.votes("up")) == {}
        assert reasons(*self.votes("down", count=7)) == {}


def test_what_the_same_user_says_beside_it_is_held_with_it_and_others_are_not() -> None:
    interactions, feedback = a_business(*(said(f"x{n}", at=every(0.5, n)) for n in range(30)))
    feedback.append(a_feedback("beside", "x3", "comment", "bad!", user_key="x", occurred_at=NOON))
    feedback.append(a_feedback("other", "x3", "thumb", "up", user_key="h1", occurred_at=NOON))
    feedback.append(a_feedback("system", "x3", "outcome", "failed", user_key="x", occurred_at=NOON))
    (finding,) = screen(join_feedback(interactions, feedback), CONFIG)
    assert "beside" in finding.event_ids
    assert not {"other", "system"} & set(finding.event_ids)


def test_switched_off_it_finds_nothing() -> None:
    flood = [said(f"x{n}", at=every(0.5, n)) for n in range(30)]
    assert reasons(*flood, config=PoisonConfig(enabled=False)) == {}


def test_a_finding_is_named_by_what_it_holds() -> None:
    values: dict[str, Any] = {"business": "support", "reason": "burst", "evidence": "a", "user_keys": ("u",)}
    one = Finding(**values, interaction_ids=("i",), event_ids=("e1", "e2"))
    assert one.finding_id == one.model_copy(update={"evidence": "b", "event_ids": ("e2", "e1")}).finding_id
    assert one.finding_id != one.model_copy(update={"event_ids": ("e1",)}).finding_id
    assert one.finding_id != one.model_copy(update={"business": "kefu"}).finding_id


@given(
    st.text(alphabet="abc 退款1かな\0字", max_size=60),
    st.text(alphabet="abc 退款1かな\0字", max_size=60),
    st.integers(0, 60),
)
def test_what_a_text_holds_of_another_ones_runs_is_found_without_looking_for_each(
    one: str, other: str, at: int
) -> None:
    runs = frozenset(_runs_that_say_something(one))
    whole = other[:at] + one + other[at:]
    assert runs <= set(_runs_among(runs, whole))
    assert set(_runs_among(runs, other)) == set(_substrings(runs, other))
