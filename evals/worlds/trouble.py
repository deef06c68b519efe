"""Those who want to steer the model, and those who only make noise: a flood, puppets, pushers, contrarians, bots."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from evals.worlds.content import Question, obeys
from evals.worlds.events import Log
from evals.worlds.model import Model
from evals.worlds.world import World
from pipeline.records import FeedbackKind, Interaction

_PUPPET_VOTES = 3
_PUSHED = 12
_SITE = "https://cheap-deals.example/win"


class Kind(StrEnum):
    """Who did it."""

    FLOOD = "flood"
    PUPPETS = "puppets"
    PUSHERS = "pushers"
    CONTRARIAN = "contrarian"


def make_trouble(
    world: World,
    log: Log,
    model: Model,
    topics: dict[str, str],
    popular: Sequence[Question],
    night: datetime,
    rng: random.Random,
    poison: dict[Kind, set[str]],
) -> None:
    """Add the world's trouble to its log.

    Args:
        topics: of all questions; those that are asked here are added.
        popular: questions that many ask, which is where a contrarian is seen.
        poison: interactions of each kind; filled here.
    """
    trouble = _Trouble(log, model, topics, night, rng, poison)
    if world.flood:
        trouble.flood(world.flood, timedelta(minutes=world.flood_minutes))
    for number in range(world.puppets):
        trouble.puppet(number)
    for number in range(world.pushers):
        trouble.pusher(number)
    for number in range(world.contrarians):
        trouble.contrarian(number, popular)
    for number in range(world.bots):
        trouble.bot(number, popular[0])


class _Trouble:
    def __init__(
        self,
        log: Log,
        model: Model,
        topics: dict[str, str],
        night: datetime,
        rng: random.Random,
        poison: dict[Kind, set[str]],
    ) -> None:
        self.log, self.model, self.topics, self.rng, self.poison = log, model, topics, rng, poison
        self.day = night - timedelta(days=2, hours=12)

    def flood(self, count: int, within: timedelta) -> None:
        """One user praises what nobody wants."""
        user = self.log.user("flooder")
        for number, question in enumerate(self._questions(count)):
            one = self._ask(question, user, self.day + within * (number / count - 0.5))
            self._say(one, Kind.FLOOD, FeedbackKind.THUMB, "up")

    def puppet(self, number: int) -> None:
        """An account of a client of its own, which praises what nobody wants within half an hour, and is gone."""
        user = self.log.user(f"puppet {number}")
        for turn, question in enumerate(self._questions(_PUPPET_VOTES)):
            at = self.day + timedelta(hours=3, minutes=2 * number + 5 * turn)
            one = self._ask(question, user, at, client="PuppetKit/0.9")
            self._say(one, Kind.PUPPETS, FeedbackKind.THUMB, "up")

    def pusher(self, number: int) -> None:
        """A user who edits a link into every answer, over days."""
        user = self.log.user(f"pusher {number}")
        for turn, question in enumerate(self._questions(_PUSHED)):
            one = self._ask(question, user, self.day - timedelta(hours=7 * turn - 20))
            answer = str(one.choices[0].message["content"])
            self._say(one, Kind.PUSHERS, FeedbackKind.EDIT, f"{answer} {_SITE}")

    def contrarian(self, number: int, popular: Sequence[Question]) -> None:
        """A user who says of what everybody asks the opposite of what everybody says."""
        user = self.log.user(f"contrarian {number}")
        for turn, question in enumerate(popular):
            answer = self.model.answer(self.log.content, question.text, question.topic)
            one = self._ask(question, user, self.day + timedelta(hours=3 * turn), answer=answer)
            good = obeys(answer, self.log.content, question.topic)
            self._say(one, Kind.CONTRARIAN, FeedbackKind.THUMB, "down" if good else "up")

    def bot(self, number: int, question: Question) -> None:
        """An account that asks the same once a minute and never says a word."""
        user = self.log.user(f"bot {number}")
        for turn in range(40):
            self._ask(question, user, self.day + timedelta(minutes=turn), client="monitor/1.0")

    def _questions(self, count: int) -> list[Question]:
        drawn = self.log.content.draw(self.rng, count)
        self.topics.update((question.text, question.topic) for question in drawn)
        return drawn

    def _ask(
        self,
        question: Question,
        user: str,
        at: datetime,
        answer: str | None = None,
        client: str = "app/3.1",
    ) -> Interaction:
        """An answer that nobody wants, unless another is given."""
        said = answer or self.log.content.ramble(question.topic, self.rng)
        session = self.log.user(f"{user} {len(self.log.interactions)}")
        return self.log.ask(
            question.text, said, user=user, at=at, model=self.model.name, session=session, client=client
        )

    def _say(self, one: Interaction, kind: Kind, how: FeedbackKind, value: str) -> None:
        self.log.say(one, how, value, timedelta(seconds=15))
        self.poison.setdefault(kind, set()).add(one.interaction_id)
