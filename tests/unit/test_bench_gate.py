"""What `make bench-gate` simulates: the truth that it plants is the truth, and it judges as the product does."""

import numpy as np
import pytest

from evals.gate import decide
from pipeline.config import RolloutConfig
from pipeline.rollout.guardrails import check_step
from tests.benchmarks.gate import canaries, nights, plan
from tests.benchmarks.gate.activity import requests_of
from tests.benchmarks.gate.curve import power_svg

STEP = RolloutConfig().steps[0]


@pytest.mark.parametrize("scenario", [*plan.NO_BETTER, plan.at_stated_effect(60, 0.06)], ids=lambda s: s.name)
def test_the_planted_difference_is_the_true_one(scenario: nights.Scenario) -> None:
    rng = np.random.default_rng(0)
    metric = scenario.config.primary
    differences = []
    for _ in range(40):
        by_user: dict[str, list[float]] = {}
        for item in nights.a_night(scenario, rng).items:
            by_user.setdefault(item.item.user_key, []).append(item.candidate[metric] - item.baseline[metric])
        differences += [np.mean(values) for values in by_user.values()]
    error = np.std(differences) / np.sqrt(len(differences))
    assert np.mean(differences) == pytest.approx(scenario.effect, abs=4 * error)


def test_a_simulated_night_has_all_that_the_gate_asks_for() -> None:
    decision = decide(nights.a_night(plan.EQUAL, np.random.default_rng(0)), plan.EQUAL.config)
    assert all(check.estimate is not None for check in decision.checks)
    assert decision.checks[0].users == plan.EQUAL.users


def test_unequal_activity_has_a_user_who_asks_more_than_a_tenth() -> None:
    counts = requests_of(np.random.default_rng(0), 100, "unequal", 200)
    assert counts.max() > 0.1 * counts.sum()
    assert counts.min() == 1


@pytest.mark.parametrize("worse", [0.0, 0.3])
def test_the_last_look_is_what_the_guardrails_say(worse: float) -> None:
    scenario = canaries.Scenario("x", activity="unequal", worse={"thumb_down": worse, "outcome_failed": worse})
    requests = canaries.draw(scenario, STEP, np.random.default_rng(1))
    evidence = canaries.evidence_of(requests)
    checks = {c.metric: c for c in check_step(evidence, STEP, RolloutConfig(), control_is_base=False)}
    for metric, (z, width) in zip(requests.values, canaries.looks(requests, STEP), strict=True):
        check = checks[metric]
        assert check.estimate is not None
        assert check.low is not None
        assert z[-1] / width[-1] == pytest.approx(check.estimate / (check.estimate - check.low))
        assert (z[-1] > width[-1]) is np.bool_(check.passed is False)


def test_running_means_follow_each_user() -> None:
    user, values = np.array([0, 1, 0, 1, 0]), np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    added = canaries.running_means(user, values)
    users, sums, squares = (np.cumsum(part) for part in added)
    assert users.tolist() == [1, 2, 2, 2, 2]
    assert sums == pytest.approx([1, 1, 0.5, 1.0, 1 / 3 + 0.5])
    assert squares == pytest.approx([1, 1, 0.25, 0.5, 1 / 9 + 0.25])


def test_a_candidate_that_is_much_worse_or_slower_is_stopped() -> None:
    for scenario in (canaries.Scenario("a", worse={"refusal": 0.4}), canaries.Scenario("b", slower=4.0)):
        assert canaries.try_canaries(scenario, 3, seed=0).rolled_back == 3


def test_the_plot_has_a_line_for_each_size() -> None:
    svg = power_svg({"30 users": [(0.0, 0.02), (0.1, 0.9)], "60 users": [(0.0, 0.03), (0.1, 1.0)]}, 0.8)
    assert svg.count("<polyline") == 2
    assert "60 users" in svg
