"""When what breaks, and what people ask for meanwhile. Pure: the same seed and length, the same schedule."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What happens to a part, or what somebody asks for."""

    KILL = "kill"  # SIGKILL, and a new start after `lasts_s`
    HANG = "hang"  # SIGSTOP for `lasts_s`: connections stand, and nothing moves
    FILL = "fill"  # no byte is left on the disk for `lasts_s`
    PROMOTE = "promote"  # alias `promote` on `version`
    RETURN = "rollback alias"  # alias `rollback` on `version`
    CALL = "rollback call"  # at the controller's port


@dataclass(frozen=True)
class Event:
    """One thing that happens."""

    at_s: float
    """Since the load began."""
    what: What
    target: str
    """The part, or the business's registry."""
    lasts_s: float = 0.0
    version: int = 0

    def __str__(self) -> str:
        more = f" for {self.lasts_s:.1f} s" if self.lasts_s else f" version {self.version}" if self.version else ""
        return f"{self.what} {self.target}{more}"


GATEWAYS = ("gateway-a", "gateway-b")
ENGINES = ("one", "two")
DISK = "disk"
REGISTRY = "registry"
_FIRST_WITHIN_S = 5.0

Pick = Callable[[random.Random], tuple[What, str, float]]
Rest = tuple[float, float]
"""Shortest and longest time between two events of a lane, in seconds."""
_REST: Rest = (8.0, 25.0)
_LONG_REST: Rest = (20.0, 50.0)
"""MLflow and the controller take ten seconds to start; a canary gets somewhere only while both are up."""


def make_schedule(seed: int, seconds: float, versions: int) -> tuple[Event, ...]:
    """Everything that happens in `seconds`, by time.

    Each lane breaks one part at a time and lets it rest in between, so that of two gateways and of two engines one is
    always up; lanes know nothing of each other.

    Args:
        versions: how many there are to ask for, numbered from 1.
    """
    lanes: tuple[tuple[Pick, Rest], ...] = (
        (lambda draw: (What.KILL, "controller", draw.uniform(0.5, 4.0)), _LONG_REST),
        (lambda draw: (What.KILL, draw.choice(GATEWAYS), draw.uniform(0.5, 4.0)), _REST),
        (lambda draw: (draw.choice((What.KILL, What.HANG)), draw.choice(ENGINES), draw.uniform(1.0, 16.0)), _REST),
        (lambda draw: (What.KILL, "mlflow", draw.uniform(0.5, 4.0)), _LONG_REST),
        (lambda draw: (What.FILL, DISK, draw.uniform(1.0, 4.0)), _REST),
    )
    events = [e for lane, (pick, rest) in enumerate(lanes) for e in _lane(_drawn(seed, lane), seconds, pick, rest)]
    events += _wishes(_drawn(seed, len(lanes)), seconds, versions)
    return tuple(sorted(events, key=lambda event: event.at_s))


def _drawn(seed: int, lane: int) -> random.Random:
    return random.Random(f"{seed}/{lane}")


def _lane(draw: random.Random, seconds: float, pick: Pick, rest: Rest) -> Iterator[Event]:
    at = draw.uniform(0.5, _FIRST_WITHIN_S)
    while at < seconds:
        what, target, lasts = pick(draw)
        yield Event(at, what, target, lasts)
        at += lasts + draw.uniform(*rest)


def _wishes(draw: random.Random, seconds: float, versions: int) -> Iterator[Event]:
    """The first is always to promote; the next ones find a canary under way, or none."""
    at, what = draw.uniform(0.2, 1.0), What.PROMOTE
    while at < seconds:
        yield Event(at, what, REGISTRY, version=0 if what is What.CALL else draw.randint(1, versions))
        at += draw.uniform(6.0, 30.0)
        what = draw.choice((What.PROMOTE, What.PROMOTE, What.PROMOTE, What.CALL, What.RETURN))
