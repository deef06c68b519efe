"""The events before a night, and what is true about them."""

from dataclasses import dataclass, field

from evals.worlds.personal import Place
from evals.worlds.trouble import Kind
from pipeline.records import Feedback, Interaction


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
