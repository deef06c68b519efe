"""The events before a night, and what is true about them."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from evals.worlds.personal import Place
from evals.worlds.trouble import Kind
from pipeline.records import Dropped, Feedback, Interaction


@dataclass
class Truth:
    """What was planted."""

    topics: dict[str, str] = field(default_factory=dict)
    """Question to its topic."""
    honest: set[str] = field(default_factory=set)
    """Interactions about which honest users said something."""
    poison: dict[Kind, set[str]] = field(default_factory=dict)
    """Interactions about which somebody spoke who wants to steer the model."""
    repeats: list[tuple[str, str]] = field(default_factory=list)
    """Interactions of which the second repeats the first, with the same correction."""
    places: list[Place] = field(default_factory=list)
    final: dict[str, int] = field(default_factory=dict)
    """Interactions whose first judgement was overruled, by a later vote or by an outcome; 1 good, -1 bad."""


@dataclass(frozen=True)
class Played:
    """The events before one night, as they arrived, and the truth about them."""

    interactions: tuple[Interaction, ...]
    feedback: tuple[Feedback, ...]
    truth: Truth


def kept_once(repeats: Iterable[tuple[str, str]], sources: Set[str], dropped: Iterable[Dropped]) -> tuple[int, int]:
    """Of how many planted repeats at most one side was learned from, and of how many.

    Args:
        repeats: interactions of which the second repeats the first.
        sources: interactions that a snapshot's rows were made of.
        dropped: the others; repeats with a side that went for another reason than its likeness are not counted.
    """
    gone = {one.interaction_id for one in dropped if one.kept is None}
    pairs = [pair for pair in repeats if gone.isdisjoint(pair)]
    return sum(len(sources & set(pair)) <= 1 for pair in pairs), len(pairs)
