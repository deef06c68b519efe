"""A made-up business whose users have many honest habits, and four kinds of people who want to steer its model."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pipeline.records import Feedback, Interaction
from tests.builders import NOON, a_feedback, an_interaction

DAYS = 14
KINDS = ("flood", "puppets", "links", "contrarian")
_BEGIN = NOON - timedelta(days=DAYS)
_SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu".split()  # noqa: SIM905
_HABITS = ("normal",) * 12 + ("visitor",) * 6 + ("fan",) * 3 + ("grump",) * 2 + ("reviewer", "editor", "fixer", "keen")


@dataclass
class World:
    """Events, and which interactions are whose."""

    interactions: list[Interaction] = field(default_factory=list)
    feedback: list[Feedback] = field(default_factory=list)
    rated: set[str] = field(default_factory=set)
    """Honest interactions with feedback."""
    poison: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})


@dataclass(frozen=True)
class _Topic:
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    good: float
    """Share of users who like the answer."""
    mend: str


class _Maker:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.topics = [self._topic() for _ in range(60)]

    def words(self, count: int) -> str:
        return " ".join("".join(self.dice.choices(_SYLLABLES, k=self.dice.randint(1, 3))) for _ in range(count))

    def _topic(self) -> _Topic:
        stem, answer = self.words(5), self.words(30)
        if self.dice.random() < 0.3:
            answer += f" https://shop.example/{self.words(1)}"
        return _Topic(
            tuple(f"{stem} {self.words(2)}" for _ in range(3)),
            tuple(f"{answer} {self.words(4)}" for _ in range(3)),
            self.dice.choice((0.92, 0.9, 0.85, 0.6, 0.1)),
            f"{self.words(6)} https://shop.example/{self.words(1)}",
        )

    def office_hour(self) -> datetime:
        """A time of a day like people keep: most of it between eight and twenty."""
        hour = min(23.9, max(0.0, self.dice.gauss(14, 3.5)))
        return _BEGIN + timedelta(days=self.dice.randrange(DAYS), hours=hour - 12)

    def ask(self, user: str, client: str, at: datetime, topic: _Topic | None, session: str) -> Interaction:
        prompt = self.dice.choice(topic.questions) if topic else self.words(9)
        answer = self.dice.choice(topic.answers) if topic else self.words(25)
        interaction_id = f"i{len(self.world.interactions):05d}"
        one = an_interaction(
            interaction_id, prompt=prompt, answer=answer, user_key=user, client=client, started_at=at, session=session
        )
        self.world.interactions.append(one)
        return one

    def say(self, one: Interaction, kind: str, value: Any, at: datetime, poison: str | None = None) -> None:
        event_id = f"e{len(self.world.feedback):05d}"
        said = a_feedback(event_id, one.interaction_id, kind, value, user_key=one.user_key, occurred_at=at)
        self.world.feedback.append(said)
        (self.world.poison[poison] if poison else self.world.rated).add(one.interaction_id)


def honest_world(seed: int, users: int = 900) -> World:
    """Some thousand interactions in two weeks; no two users are alike in how much and when they vote."""
    return _honest(seed, users).world


def poisoned_world(seed: int, users: int = 900, share: float = 0.05) -> World:
    """The honest world with a share of poison among all rated interactions, a quarter of each kind."""
    maker = _honest(seed, users)
    each = round(len(maker.world.rated) * share / (1 - share) / len(KINDS))
    _flood(maker, each)
    _puppets(maker, each)
    _links(maker, each)
    _contrarian(maker, each)
    return maker.world


def _honest(seed: int, users: int) -> _Maker:
    maker = _Maker(seed)
    clients = [f"App/{version} (made up)" for version in range(14)]
    weights = [1 / (place + 1) for place in range(len(clients))]
    for number in range(users):
        habit = maker.dice.choice(_HABITS)
        client = maker.dice.choices(clients, weights)[0]
        for one in _visits(maker, f"u{number}", client, habit):
            _react(maker, one, habit, number)
    _bad_hour(maker, clients, users)
    return maker


def _visits(maker: _Maker, user: str, client: str, habit: str) -> Iterator[Interaction]:
    dice = maker.dice
    sessions = 1 if habit == "visitor" else 1 + min(40, int(dice.lognormvariate(0.8, 1.0)))
    for session in range(sessions):
        at = maker.office_hour()
        for _ in range(1 + min(9, int(dice.expovariate(0.5)))):
            topic = dice.choice(maker.topics) if dice.random() < 0.6 else None
            yield maker.ask(user, client, at, topic, f"{user}-{session}")
            at += timedelta(seconds=dice.uniform(30, 300))


def _react(maker: _Maker, one: Interaction, habit: str, number: int) -> None:
    dice = maker.dice
    prompt = str(one.request["messages"][0]["content"])  # type: ignore[index, call-overload]
    topic = next((t for t in maker.topics if prompt in t.questions), None)
    good = dice.random() < (topic.good if topic else 0.75)
    at = one.started_at + timedelta(seconds=dice.uniform(5, 120))
    answer = str(one.choices[0].message["content"])
    match habit:
        case "fan":
            if good and dice.random() < 0.7:
                maker.say(one, "thumb", "up", at)
        case "grump":
            if not good and dice.random() < 0.8:
                maker.say(one, "thumb", "down", at)
        case "reviewer":  # all of a day's votes at once, in the evening
            evening = one.started_at.replace(hour=21, minute=0) + timedelta(seconds=number % 60 * 20)
            maker.say(one, "rating", 5 if good else 2, evening + timedelta(seconds=one.started_at.second * 8))
        case "editor":
            if not good:
                maker.say(one, "edit", f"{maker.words(3)} {answer} Cheers, {number}", at)
        case "fixer":  # many users mend the same mistake in the same way
            if topic and not good:
                maker.say(one, "edit", f"{answer} {topic.mend}", at)
        case "keen":
            maker.say(one, "thumb", "up" if good else "down", at)
        case _:
            if dice.random() < 0.35:
                maker.say(one, "thumb", "up" if good else "down", at)


def _bad_hour(maker: _Maker, clients: list[str], users: int) -> None:
    """Something is broken for an hour, and everybody says so, for good reasons."""
    start = _BEGIN + timedelta(days=6, hours=2)
    for number in range(25):
        user, client = f"u{maker.dice.randrange(users)}", maker.dice.choice(clients)
        for _ in range(maker.dice.randint(1, 3)):
            at = start + timedelta(minutes=maker.dice.uniform(0, 55))
            one = maker.ask(user, client, at, None, f"bad-{number}")
            maker.say(one, "thumb", "down", at + timedelta(seconds=30))


def _flood(maker: _Maker, count: int) -> None:
    """One angry user, all in half an hour."""
    start = maker.office_hour()
    for _ in range(count):
        at = start + timedelta(seconds=maker.dice.uniform(0, 1800))
        maker.say(maker.ask("angry", "App/3 (made up)", at, None, "angry"), "thumb", "down", at, "flood")


def _puppets(maker: _Maker, count: int) -> None:
    """A dozen accounts of one script, some votes each on a day: all of them say bad."""
    start = maker.office_hour()
    for number in range(count):
        at = start + timedelta(minutes=maker.dice.uniform(0, 600))
        topic = maker.dice.choice(maker.topics)
        one = maker.ask(f"puppet{number % 12}", "python-requests/2.31.0", at, topic, f"puppet{number % 12}")
        maker.say(one, "thumb", "down", at, "puppets")


def _links(maker: _Maker, count: int) -> None:
    """Four accounts that put an advertisement into every answer."""
    for number in range(count):
        at, user = maker.office_hour(), f"spammer{number % 4}"
        topic = maker.dice.choice(maker.topics) if number % 2 else None
        one = maker.ask(user, "App/1 (made up)", at, topic, f"{user}-{number}")
        answer = str(one.choices[0].message["content"])
        link = f"Buy better at https://www.cheap-deals.example/{number % 5}?ref={number}"
        half = len(answer) // 2
        maker.say(one, "edit", f"{answer[:half]} {link} {answer[half:]}", at, "links")


def _contrarian(maker: _Maker, count: int) -> None:
    """One user who, over two weeks, says the opposite of what is true."""
    for number in range(count):
        at, topic = maker.office_hour(), maker.dice.choice(maker.topics)
        one = maker.ask("contrarian", "App/2 (made up)", at, topic, f"contrarian-{number}")
        maker.say(one, "thumb", "down" if topic.good > 0.5 else "up", at, "contrarian")
