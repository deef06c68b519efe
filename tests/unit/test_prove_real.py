"""What the proofs on the real stack do without a stack: their worlds, their configuration, their rows."""

from pathlib import Path

import pytest

from evals.worlds.content import obeys
from examples.demo.checks import Fact
from pipeline.config import load_config
from pipeline.dataset.suite import load_suite
from pipeline.records import Night, NightEnd, Verdict
from tests.builders import NOON
from tests.proof.real.asking import Asked
from tests.proof.real.businesses import foreign_phrases, make_world, write_businesses
from tests.proof.real.learned import apart_row, service_row, truth_row, truth_scores
from tests.proof.real.place import configure
from tests.proof.real.stage import once
from tests.proof.rows import Row

NAME = ("night 1, seed 1", "第 1 夜，种子 1")
ROW = Row("a", "甲", "b", "乙", "c", True)


def asked(*whole: str, ends: tuple[str, ...] = ()) -> Asked:
    return Asked(topics=("orders",) * len(whole), whole=whole, ends=ends)


def test_each_seed_is_a_business_whose_configuration_and_suite_want_its_own_phrase(tmp_path: Path) -> None:
    worlds = {content.business: content for content in map(make_world, (1, 2, 3))}
    config = load_config(configure(tmp_path / "stack", lambda folder: write_businesses(folder, worlds)))

    assert set(config.businesses) == set(worlds) == {"support-1", "support-2", "support-3"}
    assert len({content.style.closing for content in worlds.values()}) == 3
    for key, content in worlds.items():
        suite = load_suite(config.directory / (config.business(key).suite or ""))
        assert any(getattr(rule, "text", None) == content.style.closing for rule in suite.rules)
        assert obeys(content.ideal("orders"), content, "orders")
        assert not any(phrase in content.ideal("orders") for phrase in foreign_phrases(content))
        # Even when all three are in canary, the engine holds what each may be rolled back to.
        assert config.system.engines[1].max_adapters >= 9


def test_a_stack_keeps_the_ports_it_was_given(tmp_path: Path) -> None:
    worlds = {content.business: content for content in map(make_world, (1,))}
    first = load_config(configure(tmp_path, lambda folder: write_businesses(folder, worlds)))

    assert load_config(configure(tmp_path, lambda folder: write_businesses(folder, worlds))) == first


def test_a_stage_is_played_once(tmp_path: Path) -> None:
    def never() -> list[Row]:
        raise AssertionError("played twice")

    first = once(tmp_path, "one", lambda: [ROW])
    again = once(tmp_path, "one", never)

    assert first.rows == again.rows == (ROW,)
    assert first.earlier_minutes == 0.0


def test_a_stage_that_failed_is_played_again(tmp_path: Path) -> None:
    def fails() -> list[Row]:
        raise RuntimeError("no engine")

    with pytest.raises(RuntimeError):
        once(tmp_path, "one", fails)
    assert once(tmp_path, "one", lambda: [ROW]).rows == (ROW,)


@pytest.mark.parametrize(
    ("before", "after", "right"),
    [
        ([0.25] * 8, [1.0] * 7 + [0.75], True),
        ([1.0] * 8, [1.0] * 7 + [0.75], True),  # a second night that changes next to nothing
        ([1.0] * 8, [0.75] * 8, False),  # better than the base model, and worse than last night
        ([0.25] * 8, [0.25] * 7 + [1.0], False),  # one answer of eight may be chance
    ],
)
def test_a_preference_is_learned_where_no_chance_explains_it_and_nothing_was_lost(
    before: list[float], after: list[float], right: bool
) -> None:
    assert truth_row(NAME, [0.25] * 8, before, after).right is right


def test_truth_is_scored_by_the_businesss_own_phrase() -> None:
    one, two = make_world(1), make_world(2)

    assert truth_scores(one, asked(one.ideal("orders"), two.ideal("orders"))) == [1.0, 0.75]


def test_one_foreign_phrase_is_too_much() -> None:
    worlds = {content.business: content for content in map(make_world, (1, 2))}
    one, two = (content.ideal("orders") for content in worlds.values())
    good = {"support-1": asked(one, ends=("Ticket opened.",)), "support-2": asked(two)}
    leaked = {**good, "support-2": asked(two, ends=("Ticket opened.",))}

    assert apart_row(worlds, good).right is True
    assert apart_row(worlds, leaked).right is False
    # Adapters that say nothing at all prove nothing.
    assert apart_row(worlds, dict.fromkeys(worlds, asked(""))).right is False


def test_what_is_wrong_with_a_rollout_is_named() -> None:
    night = Night(
        business="support-1",
        night=NOON,
        end=NightEnd.GATED,
        snapshot_id="0" * 64,
        train_rows=80,
        reason="better",
        verdict=Verdict.PROMOTE,
        version=1,
    )
    good, bad = Fact("ended as stable", "version 1", "version 1", True), Fact("canary", "→", "no end", False)

    assert service_row(NAME, night, [good]).right is True
    row = service_row(NAME, night, [good, bad])
    assert (row.right, row.found) == (False, "canary: no end")
