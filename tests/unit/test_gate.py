"""The gate: what is not shown is not assumed, and luck promotes one candidate in twenty at most."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.gate import decide
from pipeline.config import GateConfig
from pipeline.errors import DataError
from pipeline.records import Check, EvalResult, GateDecision, ScoredItem, Verdict
from tests.builders import a_scored, an_eval_item, an_eval_result

CONFIG = GateConfig(bootstrap_samples=200, min_users=20)


def result(before: list[float], after: list[float], metric: str = "golden", **candidate: float) -> EvalResult:
    """One item each of as many users as there are scores."""
    items = [
        a_scored(an_eval_item(f"q{i}", f"u{i}"), {metric: b}, {metric: a} | candidate)
        for i, (b, a) in enumerate(zip(before, after, strict=True))
    ]
    return an_eval_result(*items)


def check(decision: GateDecision, metric: str) -> Check:
    return next(check for check in decision.checks if check.metric == metric)


BETTER = result([0.2, 0.4, 0.3, 0.5] * 5, [0.8, 0.9, 0.7, 0.9] * 5)
SAME = result([0.2, 0.4, 0.3, 0.5] * 5, [0.2, 0.4, 0.3, 0.5] * 5)
WORSE = result([0.8, 0.9, 0.7, 0.9] * 5, [0.2, 0.4, 0.3, 0.5] * 5)
UNCLEAR = result([0.2, 0.4, 0.3, 0.5] * 5, [0.4, 0.1, 0.5, 0.5] * 5)


@pytest.mark.parametrize(
    ("given_result", "goal", "verdict"),
    [
        (BETTER, "better", Verdict.PROMOTE),
        (SAME, "better", Verdict.INCONCLUSIVE),
        (WORSE, "better", Verdict.REJECT),
        (UNCLEAR, "better", Verdict.INCONCLUSIVE),
        (BETTER, "not_worse", Verdict.PROMOTE),
        (SAME, "not_worse", Verdict.PROMOTE),
        (WORSE, "not_worse", Verdict.REJECT),
        (UNCLEAR, "not_worse", Verdict.INCONCLUSIVE),
    ],
)
def test_the_primary_decides(given_result: EvalResult, goal: str, verdict: Verdict) -> None:
    decision = decide(given_result, CONFIG.model_copy(update={"goal": goal}))
    assert decision.verdict is verdict


def test_better_means_by_more_than_the_margin() -> None:
    assert decide(BETTER, CONFIG.model_copy(update={"margin": 0.2})).verdict is Verdict.PROMOTE
    assert decide(BETTER, CONFIG.model_copy(update={"margin": 0.48})).verdict is Verdict.INCONCLUSIVE
    assert decide(BETTER, CONFIG.model_copy(update={"margin": 0.9})).verdict is Verdict.REJECT


@pytest.mark.parametrize("metric", ["refusal", "empty", "repetition", "pii_leak", "length_ratio"])
def test_one_guardrail_alone_keeps_a_better_candidate_out(metric: str) -> None:
    decision = decide(result([0.2] * 20, [0.9] * 20, **{metric: 3.0 if metric == "length_ratio" else 1.0}), CONFIG)
    assert decision.verdict is Verdict.REJECT
    assert check(decision, metric).passed is False
    assert check(decision, "golden").passed is True


def test_a_guardrail_within_its_margin_passes() -> None:
    assert decide(result([0.2] * 20, [0.9] * 20, length_ratio=0.8), CONFIG).verdict is Verdict.PROMOTE


def test_a_single_leak_is_no_proof_of_harm_and_no_pass_either() -> None:
    items = list(BETTER.items)
    items[0] = items[0].model_copy(update={"candidate": items[0].candidate | {"pii_leak": 1.0}})
    decision = decide(an_eval_result(*items), CONFIG)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "Answers with personal data" in decision.reason


def test_leaks_of_the_baseline_alone_are_not_held_against_the_candidate() -> None:
    items = list(BETTER.items)
    items[0] = items[0].model_copy(update={"baseline": items[0].baseline | {"pii_leak": 1.0}})
    assert decide(an_eval_result(*items), CONFIG).verdict is Verdict.PROMOTE


def test_a_leak_for_a_leak_is_still_open() -> None:
    items = list(BETTER.items)
    items[0] = items[0].model_copy(update={"baseline": items[0].baseline | {"pii_leak": 1.0}})
    items[1] = items[1].model_copy(update={"candidate": items[1].candidate | {"pii_leak": 1.0}})
    assert decide(an_eval_result(*items), CONFIG).verdict is Verdict.INCONCLUSIVE


def test_an_improved_guardrail_passes_whatever_its_margin() -> None:
    items = [
        a_scored(an_eval_item(f"q{i}", f"u{i}"), {"golden": 0.2, "pii_leak": 1.0}, {"golden": 0.9, "pii_leak": 0.0})
        for i in range(20)
    ]
    assert decide(an_eval_result(*items), CONFIG).verdict is Verdict.PROMOTE


def without(item: ScoredItem, metric: str) -> ScoredItem:
    sides = {
        side: {name: value for name, value in getattr(item, side).items() if name != metric}
        for side in ("baseline", "candidate")
    }
    return item.model_copy(update=sides)


@pytest.mark.parametrize("metric", ["golden", "refusal", "pii_leak"])
def test_missing_evidence_never_promotes(metric: str) -> None:
    decision = decide(an_eval_result(*(without(item, metric) for item in BETTER.items)), CONFIG)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert check(decision, metric).estimate is None
    assert "no data" in decision.reason


def test_nothing_asked_is_inconclusive() -> None:
    assert decide(an_eval_result(), CONFIG).verdict is Verdict.INCONCLUSIVE


def test_one_user_is_never_enough() -> None:
    items = [a_scored(an_eval_item(f"q{i}", "u1"), {"golden": 0.0}, {"golden": 1.0}) for i in range(50)]
    assert decide(an_eval_result(*items), CONFIG).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("users", [2, 6, 19])
def test_few_users_are_never_enough_however_alike(users: int) -> None:
    for before, after in ((0.2, 0.8), (0.8, 0.2)):
        decision = decide(result([before] * users, [after] * users), CONFIG)
        assert decision.verdict is Verdict.INCONCLUSIVE
        assert "20 users are needed" in decision.reason
    assert decide(result([0.2] * 20, [0.8] * 20), CONFIG).verdict is Verdict.PROMOTE


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_decides_nothing(score: float) -> None:
    broken = result([0.2] * 20, [0.9] * 19 + [score])
    with pytest.raises(DataError, match="item q19: its score 'golden' is no number"):
        decide(broken, CONFIG)


def test_a_harm_that_may_be_chance_among_so_many_checks_is_left_open() -> None:
    """Worse by a little over two standard errors: too little to be named beside five other checks."""
    rng = np.random.default_rng(0)
    swings = rng.normal(0, 0.1, 40)
    swings = (swings - swings.mean()) / swings.std(ddof=1) * 0.1
    alone = CONFIG.model_copy(update={"guardrails": {}})
    worse = result([0.5] * 40, list(0.5 + swings - 2.15 * 0.1 / np.sqrt(40)))
    assert decide(worse, alone).verdict is Verdict.REJECT
    assert decide(worse, CONFIG).verdict is Verdict.INCONCLUSIVE
    clearly = result([0.5] * 40, list(0.5 + swings - 4 * 0.1 / np.sqrt(40)))
    assert decide(clearly, CONFIG).verdict is Verdict.REJECT


def test_recent_items_inform_and_do_not_decide() -> None:
    recent = [
        a_scored(an_eval_item(f"r{i}", f"u{i}", "recent"), {"golden": 1.0}, {"golden": 0.0, "refusal": 1.0})
        for i in range(30)
    ]
    decision = decide(an_eval_result(*BETTER.items, *recent), CONFIG)
    assert decision.verdict is Verdict.PROMOTE
    assert check(decision, "recent:golden").estimate == pytest.approx(-1.0)
    assert check(decision, "recent:golden").role == "information"


def test_preference_log_probabilities_never_decide() -> None:
    items = [
        a_scored(
            an_eval_item(f"q{i}", f"u{i}"),
            {"golden": 0.5, "preference_margin": 0.0},
            {"golden": 0.5} | {"preference_margin": 50.0},
        )
        for i in range(30)
    ]
    decision = decide(an_eval_result(*items), CONFIG)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert check(decision, "preference_margin").role == "information"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 5)), min_size=1, max_size=20), st.randoms())
def test_the_order_of_the_items_changes_nothing(rows: list[tuple[float, float, int]], random: object) -> None:
    items = [
        a_scored(an_eval_item(f"q{i}", f"u{user}"), {"golden": before}, {"golden": after})
        for i, (before, after, user) in enumerate(rows)
    ]
    shuffled = list(items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert decide(an_eval_result(*items), CONFIG) == decide(an_eval_result(*shuffled), CONFIG)


def test_the_id_follows_the_content() -> None:
    assert decide(BETTER, CONFIG).decision_id == decide(BETTER, CONFIG).decision_id
    assert decide(BETTER, CONFIG).decision_id != decide(UNCLEAR, CONFIG).decision_id


def test_inconclusive_says_what_could_have_been_found() -> None:
    decision = decide(UNCLEAR, CONFIG)
    assert check(decision, "golden").smallest_effect is not None
    assert "smallest effect that could be found" in decision.reason


def trial(rng: np.random.Generator, effect: float, users: int) -> Verdict:
    """A night: users who differ, each with a few answers held to four checks; rare refusals on both sides."""
    items = []
    for user in range(users):
        level, swing = np.clip(rng.normal(0.5, 0.2), 0, 1), rng.normal(0, 0.1)
        for number in range(int(rng.integers(1, 5))):
            before, after = (np.clip(level + move, 0, 1) for move in (-swing / 2, swing / 2 + effect))
            items.append(
                a_scored(
                    an_eval_item(f"{user}-{number}", f"u{user}"),
                    {"golden": rng.binomial(4, before) / 4},
                    {"golden": rng.binomial(4, after) / 4},
                )
            )
    return decide(an_eval_result(*items), CONFIG).verdict


@pytest.mark.parametrize(("effect", "users"), [(0.0, 5), (0.0, 25), (-0.03, 25)])
def test_luck_promotes_at_most_one_in_twenty(effect: float, users: int) -> None:
    rng = np.random.default_rng(users)
    promoted = sum(trial(rng, effect, users) is Verdict.PROMOTE for _ in range(100))
    assert promoted <= 5


def test_a_clear_improvement_is_found() -> None:
    rng = np.random.default_rng(7)
    promoted = sum(trial(rng, 0.2, 30) is Verdict.PROMOTE for _ in range(30))
    assert promoted >= 27
