"""What is simulated, and what was promised of it."""

from dataclasses import replace

from pipeline.config import RolloutConfig
from tests.benchmarks.gate import canaries, nights

PROMISED = 5.0
"""Percent of nights or canaries that may err."""


EQUAL = nights.Scenario("an equal candidate, 120 users", users=120)
"""Other seeds of the same adapter: two answers in five differ, and neither side is better."""

FEWER = nights.Scenario("equal, 60 users")

NO_BETTER = (
    EQUAL,
    nights.Scenario("equal, one user may have most answers", activity="unequal"),
    FEWER,
    nights.Scenario("equal, 30 users", users=30),
    nights.Scenario("equal, scores with heavy tails, unequal users", kind="similarity", activity="unequal"),
    nights.Scenario("a tenth of the users loses what the others gain, 30 users", users=30, kind="minority"),
    nights.Scenario("worse by 2 points", effect=-0.02),
    nights.Scenario("worse by 10 points", effect=-0.1),
    nights.Scenario("better by 10 points, but refuses 10 points more", effect=0.1, more_refusals=0.1),
    nights.Scenario("exactly as much worse as `not_worse` allows", effect=-0.05, goal="not_worse", margin=0.05),
)
"""Candidates of which at most one in twenty may be promoted."""

SIZES = (30, 60, 180)
EFFECTS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.12, 0.16)

NO_WORSE = (
    canaries.Scenario("an equal candidate"),
    canaries.Scenario("equal, unequal users, traffic that swings by half", activity="unequal", drift=0.5),
    canaries.Scenario("equal, each step watched five times as long", activity="unequal", watched=5),
)
"""Canaries of which at most one in twenty may be rolled back."""

WORSE = (
    canaries.Scenario("5 points more thumbs down", worse={"thumb_down": 0.05}),
    canaries.Scenario("20 points more thumbs down", worse={"thumb_down": 0.2}),
    canaries.Scenario("5 points more failures", worse={"hard_failure": 0.05}),
    canaries.Scenario("half as fast", slower=2.0),
)


def at_stated_effect(users: int, smallest_effect: float) -> nights.Scenario:
    """A candidate that is better by exactly what the nights said they could find."""
    name = f"{users} users, better by the stated smallest effect, {100 * smallest_effect:.1f} points"
    return nights.Scenario(name, users=users, effect=smallest_effect)


def at_stated_canary_effect() -> canaries.Scenario:
    """Thumbs down more by what the first step says it finds."""
    step = RolloutConfig().steps[0]
    effect = canaries.stated_effect("thumb_down", step, seed=0)
    return replace(canaries.Scenario(f"{100 * effect:.0f} points more thumbs down"), worse={"thumb_down": effect})
