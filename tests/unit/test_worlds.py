"""Worlds: described rightly, the same for the same seed, and with everything planted that they say."""

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.worlds.canary import canary_traffic
from evals.worlds.candidates import Online, candidates
from evals.worlds.content import businesses, load_content, obeys, truth
from evals.worlds.model import Fault, Model, learn
from evals.worlds.night import play
from evals.worlds.personal import new_value
from evals.worlds.planted import Played
from evals.worlds.trouble import Kind
from evals.worlds.world import World, worlds
from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.pii import PatternDetector
from pipeline.clean.text import message_text
from pipeline.collect.join import join_feedback
from pipeline.dataset.snapshot import Rows
from pipeline.gateway.routing import assignment_hash, choose_arm
from pipeline.records import Arm, Record, canonical_json
from tests.builders import a_clean_record, a_signal, a_source, an_sft, an_unpaired

ROOT = Path(__file__).resolve().parents[2]
NIGHT = datetime(2026, 3, 12, 2, tzinfo=UTC)
BASE = Model(name="base", seed=0, skill=0.25)
some_world = st.sampled_from(sorted(worlds()))
some_business = st.sampled_from(businesses())


def as_bytes(played: Played) -> bytes:
    def dump(events: tuple[Record, ...]) -> list[object]:
        return [event.model_dump(mode="json") for event in events]

    return canonical_json([dump(played.interactions), dump(played.feedback)]).encode()


def test_six_kinds_of_business_speak_both_languages() -> None:
    spoken = Counter((load_content(key).kind, load_content(key).language) for key in businesses())

    assert len(spoken) == 12
    assert set(spoken.values()) == {1}


@pytest.mark.parametrize("business", businesses())
def test_every_template_can_be_filled_and_every_topic_is_answered(business: str) -> None:
    content = load_content(business)
    rng = random.Random(0)

    assert content.questions.keys() == content.facts.keys()
    assert not [question.text for question in content.plain() if "{" in question.text]
    assert "{" not in "".join(content.ramble(topic, rng) for topic in content.facts for _ in range(40))
    for topic in content.facts:
        assert [other for other in content.facts if obeys(content.ideal(topic), content, other)] == [topic]
        assert truth(content.ramble(topic, rng), content, topic) <= 0.25


@pytest.mark.parametrize("business", businesses())
def test_its_questions_do_not_collapse_as_near_duplicates(business: str) -> None:
    content = load_content(business)
    questions = content.draw(random.Random(1), 300)
    records = [
        a_clean_record(f"i{n}", a_signal(), session=f"s{n}", prompt=question.text, answer=content.ideal(question.topic))
        for n, question in enumerate(questions)
    ]

    kept, _ = drop_duplicates(records, 0.8)

    assert len({question.text for question in questions}) == len(questions)
    assert len(kept) >= 0.95 * len(records)


@settings(max_examples=6)
@given(some_world, some_business, st.integers(0, 2**32))
def test_the_same_seed_is_the_same_world_byte_for_byte(world: str, business: str, seed: int) -> None:
    recipe, content = worlds()[world], load_content(business)
    first = play(recipe, content, BASE, seed, NIGHT)

    assert as_bytes(play(recipe, content, BASE, seed, NIGHT)) == as_bytes(first)
    assert as_bytes(play(recipe, content, BASE, seed + 1, NIGHT)) != as_bytes(first)


def test_another_process_makes_the_same_world() -> None:
    program = (
        "import hashlib, sys\n"
        "from tests.unit.test_worlds import BASE, NIGHT, as_bytes, load_content, play, worlds\n"
        "played = play(worlds()['messy'], load_content('travel-zh'), BASE, 7, NIGHT)\n"
        "sys.stdout.write(hashlib.sha256(as_bytes(played)).hexdigest())\n"
    )

    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    made = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    played = play(worlds()["messy"], load_content("travel-zh"), BASE, 7, NIGHT)
    assert made == hashlib.sha256(as_bytes(played)).hexdigest()


@settings(max_examples=8)
@given(some_world, some_business, st.integers(0, 100))
def test_what_is_planted_stands_where_the_truth_says(world: str, business: str, seed: int) -> None:
    recipe = worlds()[world]
    played = play(recipe, load_content(business), BASE, seed, NIGHT)
    by_id = {one.interaction_id: one for one in played.interactions}
    said = [str(f.value) + str(f.reason) for f in played.feedback]

    assert all(one.started_at < NIGHT for one in played.interactions)
    assert all(f.received_at < NIGHT for f in played.feedback)
    for place in played.truth.places:
        where = by_id[place.interaction_id]
        if place.text == "prompt":
            text = message_text(where.request["messages"][-1])  # type: ignore[index, arg-type]
            assert text[place.start : place.end] == place.planted.value
        elif place.text in ("edit", "comment"):
            assert any(place.planted.value in text for text in said)
        else:
            assert place.planted.value in str(where.request) + str(where.choices)
    assert set(played.truth.poison) == {
        kind
        for kind, count in zip(Kind, (recipe.flood, recipe.puppets, recipe.pushers, recipe.contrarians), strict=True)
        if count
    }
    assert played.truth.honest <= by_id.keys()


def test_trouble_changes_nothing_of_what_honest_users_do() -> None:
    recipe, content = worlds()["messy"], load_content("travel-en")
    calm = recipe.model_copy(update={"flood": 0, "puppets": 0, "pushers": 0, "contrarians": 0, "bots": 0})
    with_trouble = play(recipe, content, BASE, 3, NIGHT)
    without = play(calm, content, BASE, 3, NIGHT)

    assert {f.event_id for f in without.feedback} <= {f.event_id for f in with_trouble.feedback}
    assert without.truth.honest == with_trouble.truth.honest


@pytest.mark.parametrize(("flipped", "expected"), [(0.0, 1.0), (0.3, 0.7), (1.0, 0.0)])
def test_users_mean_what_they_say_unless_it_is_flipped(flipped: float, expected: float) -> None:
    recipe = worlds()["flipped"].model_copy(update={"flipped": flipped, "careless": 0.0, "popular": 0.0})
    content = load_content("legal-en")
    played = play(recipe, content, BASE, 0, NIGHT)
    right = []
    for one in join_feedback(played.interactions, played.feedback):
        text = message_text(one.interaction.choices[0].message)
        good = any(obeys(text, content, topic) for topic in content.facts)
        right += [(signal.sign > 0) == good for signal in one.signals if signal.sign]

    assert sum(right) / len(right) == pytest.approx(expected, abs=0.1)


@given(st.sampled_from(["email", "phone", "card", "iban", "id"]), st.sampled_from(["en", "zh"]), st.randoms())
def test_planted_personal_data_is_what_patterns_know(kind: str, language: str, rng: random.Random) -> None:
    value = new_value(kind, language, rng)
    before = {"id": "身份证号", "phone": "Call ", "card": "card "}.get(kind, "")

    (found,) = PatternDetector()([f"{before}{value}"])

    assert [f"{before}{value}"[span.start : span.end] for span in found] == [value]


def test_rows_that_praise_the_wanted_form_teach_it_and_others_do_not() -> None:
    content = load_content("support")
    wanted = tuple(an_sft(a_source(f"i{n}"), f"q{n}", content.ideal("orders")) for n in range(60))
    liked_at_random = tuple(
        an_unpaired(a_source(f"i{n}"), True, f"q{n}", content.ideal("orders") if n % 4 == 0 else "So.")
        for n in range(60)
    )

    assert learn(BASE, Rows(sft=wanted), content, "v1", 1).skill > 0.5
    assert learn(BASE, Rows(unpaired=liked_at_random), content, "v1", 1).skill == pytest.approx(BASE.skill)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_shows_in_as_many_answers_as_it_is_said_to(fault: Fault) -> None:
    content = load_content("kefu")
    bad = Model(name="bad", seed=0, skill=1.0, faults={fault: 0.5})
    answers = [bad.answer(content, f"问题{n}", "orders") for n in range(200)]

    assert 70 < sum(not obeys(answer, content, "orders") for answer in answers) < 130


def test_canary_users_are_in_the_arm_that_the_rollout_draws_them_for() -> None:
    content = load_content("finance-zh")
    kwargs = {"models": ("a", "b"), "salt": "s", "share": 0.1, "users": 20, "since": NIGHT, "minutes": 30.0}
    traffic = canary_traffic(content, candidates().online["cuts streams"], **kwargs, seed="1")  # type: ignore[arg-type]

    assert {one.arm for one in traffic.interactions} == {Arm.CANDIDATE, Arm.CONTROL}
    for one in traffic.interactions:
        assert choose_arm(assignment_hash("s", one.user_key or ""), 0.1) is one.arm
    assert traffic == canary_traffic(content, candidates().online["cuts streams"], **kwargs, seed="1")  # type: ignore[arg-type]
    calm = canary_traffic(content, Online(), **kwargs, seed="1")  # type: ignore[arg-type]
    assert _cut(traffic.interactions) > _cut(calm.interactions)


def _cut(interactions: list[object]) -> int:
    return sum(getattr(one, "stream_end") != "complete" for one in interactions)  # noqa: B009


def test_a_world_says_what_it_is_about() -> None:
    assert all(world.about for world in worlds().values())
    with pytest.raises(ValueError, match="users"):
        World(name="x", about="y", users=3)
