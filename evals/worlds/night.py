"""What happens in a world before one night, and what is true about it: `play`. Pure; the same seed is the same night.

Honest users come in office hours over the days before the night, ask, and react by habits of their own; `trouble` adds
those who mean to steer the model. What was planted is written down beside the events, never read off them again.
"""

import random
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from pydantic import JsonValue

from evals.worlds.content import Content, Question, obeys
from evals.worlds.events import Log
from evals.worlds.model import Model
from evals.worlds.personal import Place
from evals.worlds.planted import Played, Truth
from evals.worlds.trouble import make_trouble
from evals.worlds.world import Habit, World
from pipeline.records import FeedbackKind, Interaction, Message, StreamEnd

DAYS = 6
"""So long before the night the first users come."""
_POPULAR = 12
_Event = TypeVar("_Event")
_TAIL = {"en": " thanks", "zh": "呢"}


def play(world: World, content: Content, model: Model, seed: int, night: datetime) -> Played:
    """Let the world's users talk with `model` in the days before `night`, and react.

    Args:
        seed: of everything that is drawn; nights of one world have different seeds.
        night: when it is due; everything happens before.
    """
    rng = random.Random(f"{content.business}/{seed}")
    story = _Story(world, content, model, rng, night)
    story.honest_visits()
    story.repeats()
    honest = rng.getstate()  # with or without trouble, honest users do the same
    make_trouble(world, story.log, model, story.truth.topics, story.popular, night, rng, story.truth.poison)
    rng.setstate(honest)
    feedback = [*story.log.feedback, *_some(rng, story.log.feedback, world.redelivered)]
    rng.shuffle(feedback)
    interactions = [*story.log.interactions, *_some(rng, story.log.interactions, world.redelivered / 2)]
    return Played(tuple(interactions), tuple(feedback), story.truth)


class _Story:
    """One night in the making."""

    def __init__(self, world: World, content: Content, model: Model, rng: random.Random, night: datetime) -> None:
        self.world, self.content, self.model, self.rng, self.night = world, content, model, rng, night
        self.log, self.truth = Log(content, rng), Truth()
        questions = content.draw(rng, world.visits + _POPULAR)
        self.popular, self.fresh = questions[:_POPULAR], questions[_POPULAR:]
        self.users = [self.log.user(f"user {number}") for number in range(world.users)]
        self.busy = [rng.paretovariate(1.6) for _ in self.users]
        self.habits = {user: self._own_habits() for user in self.users}
        for user in self.users:
            self.log.set_clock(user, timedelta(minutes=rng.uniform(-1, 1) * world.skew_minutes))

    def honest_visits(self) -> None:
        for _ in range(self.world.visits):
            user: str | None = self.rng.choices(self.users, [min(busy, 8.0) for busy in self.busy])[0]
            assert user is not None
            habit = self.rng.choices(list(self.habits[user]), list(self.habits[user].values()))[0]
            session: str | None = self.log.user(f"session {len(self.log.interactions)}")
            if self.rng.random() < self.world.strangers:
                user, session = None, None
            self._visit(self._question(), user, session, habit)

    def repeats(self) -> None:
        """Other users ask what somebody asked and corrected, get the same answer, and correct it in the same way."""
        edited = {f.interaction_id: str(f.value) for f in self.log.feedback if f.kind is FeedbackKind.EDIT}
        known = {place.interaction_id for place in self.truth.places}  # a value is nobody else's to repeat
        firsts = [one for one in self.log.interactions if one.interaction_id in edited]
        firsts = [one for one in firsts if one.interaction_id not in known and self._long_enough(_asked(one))]
        wanted = [round(share * self.world.visits) for share in (self.world.exact, self.world.near)]
        chosen = self.rng.sample(firsts, min(sum(wanted), len(firsts)))
        for number, first in enumerate(chosen):
            text = (
                _asked(first) if number < wanted[0] else _asked(first).rstrip(".?？。") + _TAIL[self.content.language]
            )
            user = self.rng.choice([user for user in self.users if user != first.user_key])
            answer = str(first.choices[0].message["content"])
            session = self.log.user(f"repeat {number}")
            again = self.log.ask(text, answer, user=user, at=self._moment(), model=self.model.name, session=session)
            self._say(again, FeedbackKind.EDIT, edited[first.interaction_id])
            self.truth.topics[text] = self.truth.topics[_asked(first)]
            self.truth.repeats.append((first.interaction_id, again.interaction_id))

    def _visit(self, question: Question, user: str | None, session: str | None, habit: Habit) -> None:
        self.truth.topics[question.text] = question.topic
        answer = self.model.answer(self.content, question.text, question.topic)
        left = habit is Habit.LEAVE
        tool: tuple[Message, ...] = ()
        if question.personal and self.rng.random() < 0.3:
            tool = self._tool_call(question)
        elif question.personal and self.rng.random() < 0.3:
            answer = f"{answer} {question.personal[0].value}"  # the model says it again
        one = self.log.ask(
            question.text,
            answer[: len(answer) // 2] if left else answer,
            user=user,
            at=self._moment(),
            model=self.model.name,
            session=session,
            before=tool,
            end=StreamEnd.CLIENT_ABORT if left else StreamEnd.COMPLETE,
        )
        self._note(one, question, "prompt", question.text)
        self._note(one, question, "answer", str(one.choices[0].message["content"]))
        if tool:
            self._note(one, question, "tool", str(tool))
        self._react(one, question, habit, obeys(answer, self.content, question.topic))

    def _react(self, one: Interaction, question: Question, habit: Habit, good: bool) -> None:
        likes = self._judgement(good)
        match habit:
            case Habit.VOTE:
                self._vote(one, likes, question)
            case Habit.RATING:
                self._say(one, FeedbackKind.RATING, 5 if likes else 1)
                self._say(one, FeedbackKind.COMMENT, self._comment(one, likes, question))
            case Habit.OUTCOME:
                self._vote(one, likes, question)
                late = timedelta(days=self.rng.uniform(0.2, self.world.late_days))
                self.log.say(one, FeedbackKind.OUTCOME, "passed" if good else "failed", min(late, self._left(one)))
                self.truth.final[one.interaction_id] = 1 if good else -1
            case Habit.EDIT if good:
                self._vote(one, likes, question)
            case Habit.EDIT:
                self._edit(one, question)
            case Habit.REGENERATE if not likes:
                self._regenerate(one, question)
            case Habit.LEAVE:
                self._say(one, FeedbackKind.ABORT, True)
            case Habit.REGENERATE | Habit.SILENT:
                pass

    def _vote(self, one: Interaction, likes: bool, question: Question) -> None:
        right, wrong = ("up", "down") if likes else ("down", "up")
        if self.rng.random() < self.world.changed:
            self.log.say(one, FeedbackKind.THUMB, wrong, timedelta(seconds=20))
            self.truth.final[one.interaction_id] = 1 if likes else -1
        reason = self._comment(one, likes, question) if self.rng.random() < 0.3 else None
        self._say(one, FeedbackKind.THUMB, right, reason)

    def _edit(self, one: Interaction, question: Question) -> None:
        text = self.content.ideal(question.topic)
        if question.personal and self.rng.random() < 0.5:
            text = f"{text} {question.personal[0].value}"
            self._note(one, question, "edit", text)
        self._say(one, FeedbackKind.EDIT, text)

    def _regenerate(self, one: Interaction, question: Question) -> None:
        answer = self.model.answer(self.content, question.text, question.topic, attempt=1)
        again = self.log.ask(
            question.text,
            answer,
            user=one.user_key,
            at=min(one.started_at + timedelta(seconds=40), self.night - timedelta(seconds=2)),
            model=self.model.name,
            session=one.session if one.session_known else None,
            regenerates=one.interaction_id,
        )
        self._note(again, question, "prompt", question.text)
        self._say(one, FeedbackKind.REGENERATE, again.interaction_id)
        if answer != one.choices[0].message["content"]:
            self._vote(again, self._judgement(obeys(answer, self.content, question.topic)), question)

    def _comment(self, one: Interaction, likes: bool, question: Question) -> str:
        text = self.rng.choice(self.content.comments.up if likes else self.content.comments.down)
        if question.personal and self.rng.random() < 0.5:
            text = f"{text} {question.personal[0].value}"
            self._note(one, question, "comment", text)
        return text

    def _judgement(self, good: bool) -> bool:
        """What a user says of an answer, as the world has it."""
        if self.world.votes == "coin":
            return self.rng.random() < 0.5
        return good ^ (self.rng.random() < self.world.careless) ^ (self.rng.random() < self.world.flipped)

    def _say(self, one: Interaction, kind: FeedbackKind, value: JsonValue, reason: str | None = None) -> None:
        after = min(timedelta(seconds=self.rng.uniform(30, 600)), self._left(one))
        self.log.say(one, kind, value, after, reason)
        self.truth.honest.add(one.interaction_id)

    def _question(self) -> Question:
        if self.rng.random() < self.world.personal:
            return self.content.draw_private(self.rng)
        if self.rng.random() < self.world.popular or not self.fresh:
            return self.rng.choice(self.popular)
        return self.fresh.pop()

    def _tool_call(self, question: Question) -> tuple[Message, ...]:
        arguments = f'{{"query": "{question.personal[0].value}"}}'
        function: dict[str, JsonValue] = {"name": "find_customer", "arguments": arguments}
        call: dict[str, JsonValue] = {"id": "call_1", "type": "function", "function": function}
        return (
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "1 found"},
        )

    def _note(
        self,
        one: Interaction,
        question: Question,
        where: Literal["prompt", "answer", "edit", "comment", "tool"],
        text: str,
    ) -> None:
        for planted in question.personal:
            start = text.find(planted.value)
            if start >= 0:
                end = start + len(planted.value)
                self.truth.places.append(
                    Place(interaction_id=one.interaction_id, text=where, start=start, end=end, planted=planted)
                )

    def _own_habits(self) -> dict[Habit, float]:
        return {habit: weight * self.rng.gammavariate(1.5, 1 / 1.5) for habit, weight in self.world.habits.items()}

    def _moment(self) -> datetime:
        """Office hours: most of it between eight and twenty; the last day ends before the night."""
        hour = min(23.0, max(1.0, self.rng.gauss(13, 3.5)))
        return self.night - timedelta(days=self.rng.randrange(DAYS), hours=24 - hour)

    def _left(self, one: Interaction) -> timedelta:
        return self.night - one.started_at - timedelta(seconds=1)

    def _long_enough(self, text: str) -> bool:
        """Whether one word more leaves a text near: at 0.8 it needs nine words, or fifteen Chinese characters."""
        return len(text.split()) >= 9 if self.content.language == "en" else len(text) >= 15


def _asked(one: Interaction) -> str:
    messages = one.request["messages"]
    assert isinstance(messages, list)
    last = messages[-1]
    assert isinstance(last, dict)
    return str(last["content"])


def _some(rng: random.Random, events: list[_Event], share: float) -> list[_Event]:
    return rng.sample(events, round(share * len(events)))
