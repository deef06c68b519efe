"""A world's recipe: how many users, what they do, and what is planted among them. `worlds.yaml` names those in use."""

from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError

from pipeline.errors import DataError
from pipeline.records import Record, Share

FILE = Path(__file__).parent / "worlds.yaml"


class Habit(StrEnum):
    """What a user does with an answer."""

    VOTE = "vote"
    RATING = "rating"  # five or one, with a comment
    EDIT = "edit"  # a thumb up if it is good, else the answer as it should be
    REGENERATE = "regenerate"  # if it is bad: asks again, and judges the second answer
    OUTCOME = "outcome"  # what became of it is known days later
    LEAVE = "leave"  # closes the stream early
    SILENT = "silent"


_HABITS = {
    Habit.VOTE: 0.3,
    Habit.RATING: 0.06,
    Habit.EDIT: 0.3,
    Habit.REGENERATE: 0.1,
    Habit.OUTCOME: 0.08,
    Habit.LEAVE: 0.04,
    Habit.SILENT: 0.12,
}


class World(Record):
    """What is true in a world, apart from its business (`Content`) and its seed."""

    name: str
    about: str
    users: int = Field(140, ge=10)
    """Honest ones."""
    visits: int = Field(300, ge=50)
    """Of honest users; each asks one question and reacts."""
    habits: dict[Habit, float] = _HABITS
    """Weights; each user has own ones around these."""
    votes: Literal["meant", "coin"] = "meant"
    """`coin`: votes, ratings and regenerations have nothing to do with the answers."""
    careless: Share = 0.05
    """Share of judgements that go wrong by themselves."""
    flipped: Share = 0.0
    """Share of votes that say the opposite of what is meant."""
    skill: Share = 0.25
    """Share of the answers of the model in service that keep the planted preference."""
    strangers: Share = 0.05
    """Share of visits of which nobody knows the user or the conversation."""
    popular: Share = 0.3
    """Share of visits that ask one of a dozen questions that many ask."""
    personal: Share = 0.03
    """Share of visits that hold personal data."""
    exact: Share = 0.01
    near: Share = 0.01
    """Shares of visits that repeat another user's question and correction, word for word or nearly."""
    changed: Share = 0.05
    """Share of votes that were first cast the other way round."""
    redelivered: Share = 0.05
    """Share of events that arrive twice."""
    skew_minutes: float = Field(10.0, ge=0)
    """The clocks of users' devices are off by at most so much."""
    late_days: float = Field(3.0, gt=0)
    """Outcomes are known after at most so many days."""
    flood: int = Field(0, ge=0)
    """Thumbs up of one user for answers that nobody wants."""
    flood_minutes: float = Field(10.0, gt=0)
    """From the first of them to the last."""
    puppets: int = Field(0, ge=0)
    """Accounts of one client that praise answers that nobody wants."""
    pushers: int = Field(0, ge=0)
    """Users who edit a link to their site into every answer."""
    contrarians: int = Field(0, ge=0)
    """Users who vote against everybody else."""
    bots: int = Field(0, ge=0)
    """Accounts that ask one question over and over and say nothing."""


@cache
def worlds() -> dict[str, World]:
    """The worlds of `worlds.yaml` by name.

    Raises:
        DataError: the file is not as `World` says.
    """
    try:
        recipes = yaml.safe_load(FILE.read_text(encoding="utf-8"))
        return {name: World.model_validate({"name": name, **recipe}) for name, recipe in recipes.items()}
    except (yaml.YAMLError, ValidationError) as error:
        raise DataError(f"worlds: {FILE}: {' '.join(str(error).split())}; mend the file") from None
