"""The contract of a judge: who says which of two answers is the better one, without knowing whose they are."""

from typing import Literal, NamedTuple, Protocol, TypeAlias

from pipeline.records import Message

Better: TypeAlias = Literal["A", "B", "tie"]


class Matchup(NamedTuple):
    """Two answers to one conversation, in the order in which they are shown."""

    messages: tuple[Message, ...]
    first: str
    """Shown as A."""
    second: str
    """Shown as B."""


class Ruling(NamedTuple):
    """What a judge replied, and what it took."""

    better: Better | None
    """None: the reply was no verdict, and none is guessed."""
    prompt_tokens: int
    completion_tokens: int


class Judge(Protocol):
    """Compares answers. Implementations may be called from several threads."""

    @property
    def name(self) -> str:
        """Under which its rulings are kept and reported: another model, or another place, has another name."""

    def compare(self, matchup: Matchup) -> Ruling:
        """Which answer is better, in this order.

        Raises:
            PromptRefused: it takes no such matchup, for instance because it is too long.
            EngineUnavailable: it does not answer now.
            ServingError: it refuses everything, such as with a wrong key, or is no chat endpoint.
        """
