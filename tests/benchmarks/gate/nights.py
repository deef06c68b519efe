"""Nights whose truth is known: users, questions, two answers each, and the gate's decision on their scores."""

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from evals.gate import decide
from pipeline.config import GateConfig
from pipeline.records import EvalItem, EvalResult, GateDecision, ScoredItem, Verdict
from tests.benchmarks.gate.activity import Activity, Floats, Ints, requests_of

_CHECKS = 5
_SAME = 0.6  # so many answers of two adapters are word for word the same at temperature 0
_RATES = {"refusal": 0.01, "empty": 0.002, "repetition": 0.005, "pii_leak": 0.001}
_GOOD = {"sycophancy": 0.0, "general": 1.0}
_PROBES_CHANGE = 0.05  # so many probes an equal candidate loses, and gains as many
_MOST = 40  # questions of one user: users take turns, and a night asks 400 at most


@dataclass(frozen=True)
class Scenario:
    """What is true about a candidate."""

    name: str
    users: int = 60
    activity: Activity = "even"
    effect: float = 0.0
    """True difference of the primary."""
    kind: Literal["checks", "similarity", "minority"] = "checks"
    """`checks`: shares of five rules kept. `similarity`: chrF-like, with heavy tails. `minority`: nine users in
    ten gain a little, the tenth loses so much that nothing is gained on average."""
    more_refusals: float = 0.0
    goal: Literal["better", "not_worse"] = "better"
    margin: float = 0.0

    @property
    def config(self) -> GateConfig:
        primary = "chrf" if self.kind == "similarity" else "golden"
        return GateConfig.model_validate({"primary": primary, "goal": self.goal, "margin": self.margin})


class Tried(NamedTuple):
    """What many nights of one scenario came to."""

    nights: int
    promoted: int
    rejected: int
    found: int
    """The primary passed, whatever the guardrails said."""
    covered: int
    """The interval held the true difference."""
    smallest_effect: float
    """Median of what the nights said they could find."""


def try_nights(scenario: Scenario, nights: int, seed: int) -> Tried:
    """Decide on so many nights."""
    rng = np.random.default_rng(seed)
    decisions = [decide(a_night(scenario, rng), scenario.config) for _ in range(nights)]
    primaries = [decision.checks[0] for decision in decisions]
    verdicts = [decision.verdict for decision in decisions]
    return Tried(
        nights,
        verdicts.count(Verdict.PROMOTE),
        verdicts.count(Verdict.REJECT),
        sum(check.passed is True for check in primaries),
        sum(_holds(decision, scenario.effect) for decision in decisions),
        float(np.median([check.smallest_effect for check in primaries if check.smallest_effect is not None])),
    )


def a_night(scenario: Scenario, rng: np.random.Generator) -> EvalResult:
    """Both sides' scores of one night."""
    counts = requests_of(rng, scenario.users, scenario.activity, _MOST)
    users = np.repeat(np.arange(scenario.users), counts)
    same = rng.random(len(users)) < _SAME
    before, after = _primary(scenario, rng, users, same)
    sides: tuple[dict[str, Floats], dict[str, Floats]] = ({}, {})
    name = scenario.config.primary
    sides[0][name], sides[1][name] = before, after
    for metric, rate in _RATES.items():
        drawn = rng.random(len(users))
        sides[0][metric] = (drawn < rate).astype(float)
        again = np.where(same, drawn, rng.random(len(users)))
        sides[1][metric] = (again < rate + (scenario.more_refusals if metric == "refusal" else 0)).astype(float)
    sides[0]["unanswered"] = sides[1]["unanswered"] = np.zeros(len(users))
    lengths = np.abs(rng.normal(0, 0.3, (2, len(users))))
    sides[0]["length_ratio"], sides[1]["length_ratio"] = lengths[0], np.where(same, lengths[0], lengths[1])
    probes = tuple(_probe(*one) for one in _probes(scenario.config, rng))
    return _result(users, *sides, probes)


def _primary(scenario: Scenario, rng: np.random.Generator, users: Ints, same: Ints) -> tuple[Floats, Floats]:
    if scenario.kind == "minority":
        loses = rng.random(scenario.users) < 0.1
        before = np.full(len(users), 0.5) + rng.normal(0, 0.02, len(users))
        return before, before + np.where(loses[users], -0.45, 0.05)
    if scenario.kind == "similarity":
        before = rng.beta(4, 4, len(users))
        swing = 0.03 * rng.standard_t(2.5, scenario.users)[users] + 0.06 * rng.standard_t(2.5, len(users))
        return before, before + np.where(same, 0.0, swing) + scenario.effect
    level = 0.3 + 0.4 * rng.beta(2, 2, scenario.users)[users]
    swing = rng.uniform(-0.1, 0.1, scenario.users)[users]
    drawn = rng.random((len(users), _CHECKS))
    again = np.where(same[:, None], drawn, rng.random((len(users), _CHECKS)))
    after = level + swing + scenario.effect
    return (drawn < level[:, None]).mean(axis=1), (again < after[:, None]).mean(axis=1)


def _probes(config: GateConfig, rng: np.random.Generator) -> list[tuple[str, int, int]]:
    """(set, number, what the candidate does: 0 loses it, 1 gains it, 2 as before) of each probe."""
    chances = (_PROBES_CHANGE, _PROBES_CHANGE, 1 - 2 * _PROBES_CHANGE)
    return [
        (metric, number, int(outcome))
        for metric in _GOOD
        for number, outcome in enumerate(rng.choice(3, size=getattr(config.probes, metric), p=chances))
    ]


@cache
def _probe(metric: str, number: int, outcome: int) -> ScoredItem:
    good, bad = _GOOD[metric], 1 - _GOOD[metric]
    before, after = ((good, bad), (bad, good), (good, good))[outcome]
    item = EvalItem.model_construct(
        item_id=f"{metric}-{number}", set_name=metric, user_key=f"{metric}:{number}", messages=()
    )
    return _scored(item, {metric: before}, {metric: after})


def _result(
    users: Ints, baseline: dict[str, Floats], candidate: dict[str, Floats], probes: tuple[ScoredItem, ...]
) -> EvalResult:
    """Made without validation: it would take longer than the decision."""
    sides = [{metric: values.tolist() for metric, values in side.items()} for side in (baseline, candidate)]
    items = []
    for place, user in enumerate(users.tolist()):
        before, after = ({metric: values[place] for metric, values in side.items()} for side in sides)
        items.append(_scored(_item(place, user), before, after))
    return EvalResult.model_construct(
        business="support", baseline="support-v1", candidate="support-v2", items=tuple(items), probes=probes, seed=0
    )


@cache
def _item(place: int, user: int) -> EvalItem:
    return EvalItem.model_construct(item_id=f"{place}", set_name="held_out", user_key=f"u{user}", messages=())


def _scored(item: EvalItem, baseline: dict[str, float], candidate: dict[str, float]) -> ScoredItem:
    return ScoredItem.model_construct(
        item=item, baseline_answer="", candidate_answer="", baseline=baseline, candidate=candidate
    )


def _holds(decision: GateDecision, truth: float) -> bool:
    check = decision.checks[0]
    return check.low is not None and check.high is not None and check.low <= truth <= check.high
