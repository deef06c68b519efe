"""Canaries whose truth is known, looked at after every request, by tuneloop's guardrails and by two common rules.

Users arrive over the whole step and go on asking, so their means move while one looks. Latencies are compared at 24
looks of each step, because the control's percentiles are read anew each time; all else after every request.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.config import RolloutConfig, StepConfig
from pipeline.rollout.guardrails import CHECKS_PER_STEP, SLOWER, ArmEvidence, Evidence, check_step
from pipeline.rollout.sequential import boundary, mean_variance, sample_ratio_evidence
from tests.benchmarks.gate.activity import Activity, Floats, Ints, requests_of, tempers

RATES = {
    "hard_failure": 0.01,
    "output_length": 0.02,
    "refusal": 0.02,
    "regeneration": 0.08,
    "thumb_down": 0.05,
    "edit": 0.03,
    "outcome_failed": 0.2,
}
_TOLD_OUTCOME = 0.3
_MOST = 200
_LATENCY_LOOKS = 24
_P99_REQUESTS = 1000
_PEEK_EVERY = 100  # the z-test's
_CONFIG = RolloutConfig()
ALPHA = _CONFIG.alpha / (CHECKS_PER_STEP * len(_CONFIG.steps))


@dataclass(frozen=True)
class Scenario:
    """What is true about a candidate, and how its users behave."""

    name: str
    activity: Activity = "even"
    worse: Mapping[str, float] = field(default_factory=dict)
    """Metric to the share of requests by which the candidate is worse."""
    slower: float = 1.0
    """Factor on all of its latencies."""
    drift: float = 0.0
    """All rates and latencies of both arms swing by so much through a step."""
    watched: float = 1.0
    """How many times the step's users are looked at before it goes on."""


class Tried(NamedTuple):
    """What many canaries of one scenario came to."""

    canaries: int
    rolled_back: int
    at_first_step: int
    drop_rule: int
    """Stopped by "at least 30 samples and 5 points more thumbs down"."""
    z_test: int
    """Stopped by a z-test of the thumbs down at 5 %, looked at every 100 requests."""


class Requests(NamedTuple):
    """All requests of one step in their order; every array has one value a request."""

    arm: Ints
    """0 candidate, 1 control."""
    user: Ints
    first: NDArray[np.bool_]
    """The user's first request."""
    values: dict[str, Floats]
    """0 or 1; NaN where the metric says nothing."""
    latencies: dict[str, Floats]
    """Milliseconds."""


class Stopped(NamedTuple):
    """Whether a rule broke off a step."""

    ours: bool
    drop_rule: bool
    z_test: bool


def try_canaries(scenario: Scenario, canaries: int, seed: int) -> Tried:
    """Bring so many candidates through the compared steps; a canary that is stopped goes no further."""
    rng = np.random.default_rng(seed)
    ours = first = drop = z_test = 0
    for _ in range(canaries):
        stopped = [a_step(scenario, step, rng) for step in _CONFIG.steps if step.share < 1]
        ours += any(one.ours for one in stopped)
        first += stopped[0].ours
        drop += any(one.drop_rule for one in stopped)
        z_test += any(one.z_test for one in stopped)
    return Tried(canaries, ours, first, drop, z_test)


def a_step(scenario: Scenario, step: StepConfig, rng: np.random.Generator) -> Stopped:
    """One step, watched to its end."""
    requests = draw(scenario, step, rng)
    ours = any(np.any(z > width) for z, width in looks(requests, step)) or _uneven(requests) or _slow(requests, step)
    # The two rules watch a single metric, which is kind to them.
    counts = _by_arm(requests.arm, np.ones(len(requests.arm)))
    sums = _by_arm(requests.arm, requests.values["thumb_down"])
    return Stopped(ours, _drop_rule(counts, sums), _z_test(counts, sums))


def draw(scenario: Scenario, step: StepConfig, rng: np.random.Generator) -> Requests:
    """The requests of both arms in a step."""
    users = 2 * math.ceil(step.min_users * scenario.watched)
    counts = requests_of(rng, users, scenario.activity, _MOST)
    arms = rng.permutation(np.arange(users) % 2)
    user = np.repeat(np.arange(users), counts)
    arrival = rng.random(users)[user]
    at = arrival + (1 - arrival) * rng.random(len(user)) * (np.append(-1, user[:-1]) == user)
    order = np.argsort(at, kind="stable")
    user, at = user[order], at[order]
    arm, candidate = arms[user], arms[user] == 0
    season = 1 + scenario.drift * np.sin(2 * np.pi * at)
    temper = tempers(rng, users)[user] * season
    values = {}
    for metric, rate in RATES.items():
        chance = rate * temper + candidate * scenario.worse.get(metric, 0.0)
        values[metric] = (rng.random(len(user)) < chance).astype(float)
    values["outcome_failed"][rng.random(len(user)) > _TOLD_OUTCOME] = np.nan
    # Log-normal bodies with a Pareto tail, and users whose prompts are long.
    own = np.exp(rng.normal(0, 0.4, users))[user] * season * np.where(candidate, scenario.slower, 1.0)
    latencies = {name: scale * own * _noise(rng, len(user)) for name, scale in (("ttft", 300.0), ("tpot", 30.0))}
    first = np.zeros(len(user), dtype=bool)
    first[np.unique(user, return_index=True)[1]] = True
    return Requests(arm, user, first, values, latencies)


def _noise(rng: np.random.Generator, requests: int) -> Floats:
    stalled = rng.random(requests) < 0.02
    return np.exp(rng.normal(0, 0.5, requests)) * (1 + stalled * rng.pareto(1.5, requests))


def looks(requests: Requests, step: StepConfig) -> list[tuple[Floats, Floats]]:
    """(how many standard errors worse, how many are allowed) of each metric, after every request."""
    found = []
    for values in requests.values.values():
        told = ~np.isnan(values)
        arm = requests.arm[told]
        users, sums, squares = (_by_arm(arm, part) for part in running_means(requests.user[told], values[told]))
        found.append(_standardised(users, sums, squares, step))
    return found


def running_means(user: Ints, values: Floats) -> tuple[Floats, Floats, Floats]:
    """What each value adds to the number of users, the sum of their means, and the sum of the squares of these."""
    order = np.argsort(user, kind="stable")
    ordered, of = values[order], user[order]
    starts = np.flatnonzero(np.append(True, of[1:] != of[:-1])) if len(of) else np.zeros(0, dtype=int)
    start = np.repeat(starts, np.diff(np.append(starts, len(of))))
    place = np.arange(len(of)) - start + 1
    total = np.append(0.0, np.cumsum(ordered))
    now = (total[1:] - total[start]) / place
    before = np.where(place > 1, (total[:-1] - total[start]) / np.maximum(place - 1, 1), 0.0)
    added = np.empty((3, len(of)))
    added[:, order] = (place == 1, now - before, now**2 - before**2)
    return added[0], added[1], added[2]


def evidence_of(requests: Requests) -> Evidence:
    """What a whole step has shown of all but latencies, in the shape that the guardrails judge."""
    arms = []
    for side in (0, 1):
        values = {}
        for metric, told in requests.values.items():
            chosen = (requests.arm == side) & ~np.isnan(told)
            users, place = np.unique(requests.user[chosen], return_inverse=True)
            values[metric] = tuple((np.bincount(place, weights=told[chosen]) / np.bincount(place)).tolist())
        users = np.unique(requests.user[requests.arm == side])
        arms.append(ArmEvidence(users=len(users), requests=len(requests.arm), new_users=len(users), values=values))
    return Evidence(salt="", since=datetime(2026, 1, 1, tzinfo=UTC), candidate=arms[0], control=arms[1])


def stated_effect(metric: str, step: StepConfig, seed: int) -> float:
    """The smallest difference that steps of an equal candidate say they find with 80 % power; their median."""
    rng = np.random.default_rng(seed)
    stated = []
    for _ in range(30):
        evidence = evidence_of(draw(Scenario("equal"), step, rng))
        checks = check_step(evidence, step, _CONFIG, control_is_base=False)
        stated += [check.smallest_effect for check in checks if check.metric == metric]
    return float(np.median([effect for effect in stated if effect is not None]))


def _standardised(users: Floats, sums: Floats, squares: Floats, step: StepConfig) -> tuple[Floats, Floats]:
    """Arrays of shape (2, looks): candidate and control."""
    enough = (users >= 2).all(axis=0)
    users, sums, squares = users[:, enough], sums[:, enough], squares[:, enough]
    variance = mean_variance(users, sums, squares).sum(axis=0)
    difference = sums[0] / users[0] - sums[1] / users[1]
    pairs = 2 / (1 / users).sum(axis=0)
    return difference / np.sqrt(variance), boundary(pairs, ALPHA, step.min_users)


def _by_arm(arm: Ints, added: Floats) -> Floats:
    return np.cumsum(np.stack([np.where(arm == side, added, 0.0) for side in (0, 1)]), axis=1)


def _uneven(requests: Requests) -> bool:
    new = _by_arm(requests.arm, requests.first.astype(float))
    return bool(np.any(sample_ratio_evidence(new[0], new[1]) >= math.log(1 / ALPHA)))


def _slow(requests: Requests, step: StepConfig) -> bool:
    """The comparison of percentiles as `evals.online` makes it, at some looks."""
    ends = np.unique(np.geomspace(20, len(requests.arm), _LATENCY_LOOKS).astype(int))
    return any(_slow_at(requests, int(end), step) for end in ends)


def _slow_at(requests: Requests, end: int, step: StepConfig) -> bool:
    arm, user = requests.arm[:end], requests.user[:end]
    asked = np.bincount(user)
    arms = np.zeros(len(asked), dtype=int)
    arms[user] = arm
    present = asked > 0
    for latency in requests.latencies.values():
        control = np.sort(latency[:end][arm == 1])
        for percent in (50, 90, 99):
            if len(control) == 0 or (percent == 99 and min(len(control), end - len(control)) < _P99_REQUESTS):
                continue
            limit = np.quantile(control, percent / 100)
            slow = latency[:end] > np.where(arm == 0, limit * SLOWER, limit)
            means = np.bincount(user, weights=slow)[present] / asked[present]
            sides = [means[arms[present] == side] for side in (0, 1)]
            users, sums, squares = (
                np.array([[float(part)] for part in parts])
                for parts in zip(*((len(x), x.sum(), (x**2).sum()) for x in sides), strict=True)
            )
            z, width = _standardised(users, sums, squares, step)
            if np.any(z > width):
                return True
    return False


def _drop_rule(counts: Floats, sums: Floats) -> bool:
    """At least 30 samples of each, and 5 points worse: found in the field as it stands."""
    enough = (counts >= 30).all(axis=0)
    rates = sums[:, enough] / counts[:, enough]
    return bool(np.any(rates[0] - rates[1] >= 0.05))


def _z_test(counts: Floats, sums: Floats) -> bool:
    """Two proportions, one-sided at 5 %, every hundred requests."""
    counts, sums = (part[:, _PEEK_EVERY - 1 :: _PEEK_EVERY] for part in (counts, sums))
    some = (counts > 0).all(axis=0)
    counts, sums = counts[:, some], sums[:, some]
    pooled = sums.sum(axis=0) / counts.sum(axis=0)
    error = np.sqrt(pooled * (1 - pooled) * (1 / counts).sum(axis=0))
    difference = sums[0] / counts[0] - sums[1] / counts[1]
    return bool(np.any(difference > 1.645 * np.where(error > 0, error, np.inf)))
