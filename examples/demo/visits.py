"""Plan who asks what and how they react: `plan_visits`, pure and deterministic.

A plan of 200 visits per business gives a night enough of every signal even when the model obeys nobody. Its visits that
*echo* another user's question matter: one user's edit and another user's thumb down on the same question make a
preference pair, and exact or near repeats are the duplicates that cleaning has to find.
"""

import random
import uuid
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, TypeVar

from evals.worlds.content import Content, Question
from evals.worlds.world import Habit
from pipeline.records import Record

_EVENTS = uuid.UUID("6f1c2f0a-2f51-5e0c-9a55-0d3c7a3e1b60")


class Quirk(StrEnum):
    """What goes otherwise than planned with a vote."""

    NONE = "none"
    FLIP = "flip"  # first the wrong way round, then corrected
    WITHDRAW = "withdraw"  # taken back
    RESEND = "resend"  # the same event twice


class Visit(Record):
    """One user, one question, one reaction."""

    visit_id: str
    user_id: str
    question: Question
    habit: Habit
    quirk: Quirk = Quirk.NONE
    stream: bool
    temperature: float = 0.0
    seed: int
    repeats: Literal["exact", "near"] | None = None
    """Whether it repeats another user's question and reaction: a planted duplicate."""

    def event_id(self, kind: str, number: int = 0) -> str:
        """The same in every run of the same plan, so that a repeated visit is not counted twice."""
        return str(uuid.uuid5(_EVENTS, f"{self.visit_id}/{kind}/{number}"))


_SHARES: dict[Habit, float] = {
    Habit.REGENERATE: 0.28,
    Habit.VOTE: 0.12,
    Habit.OUTCOME: 0.04,
    Habit.RATING: 0.02,
    Habit.SILENT: 0.04,
    Habit.LEAVE: 0.03,
}
"""Of all visits; the rest are edits."""
_ECHOES = (Habit.VOTE, Habit.OUTCOME, Habit.RATING)
_REPEATS = 0.05
"""Share of visits that are planted duplicates, half of them exact."""
_HEAVY_SHARE = 0.06
"""Share of visits by the one user who writes far more than all others: the cap per user has to bite."""
_QUIRKS = (Quirk.FLIP, Quirk.WITHDRAW, Quirk.RESEND, Quirk.NONE)


class _Slot(NamedTuple):
    """A visit before it has a user."""

    question: Question
    habit: Habit
    repeats: Literal["exact", "near"] | None = None


def plan_visits(content: Content, seed: int, n_users: int = 90, n_visits: int = 200) -> list[Visit]:
    """The visits of one night, in the order in which they happen.

    Args:
        content: the business.
        seed: the night's number; in another night the same users ask other questions in another order.
        n_users: distinct users, at least 10; the first is the heavy one, the last three never say anything.
        n_visits: all visits, at least 60.

    Raises:
        ValueError: too few users or visits, or more visits than the content has questions for.
    """
    if n_users < 10 or n_visits < 60:
        raise ValueError(f"n_users={n_users}, n_visits={n_visits}: a plan needs at least 10 users and 60 visits")
    rng = random.Random(f"{content.business}/{seed}")
    slots = _slots(content, rng, n_visits)
    users = [f"{content.business}-user-{number:03d}" for number in range(n_users)]
    return [
        Visit(
            visit_id=f"{content.business}-night{seed}-{number:03d}",
            user_id=user,
            question=slot.question,
            habit=slot.habit,
            quirk=_QUIRKS[number % len(_QUIRKS)] if slot.habit is Habit.VOTE else Quirk.NONE,
            stream=slot.habit is Habit.LEAVE or rng.random() < 0.5,
            temperature=0.8 if slot.habit in _ECHOES else 0.0,
            seed=seed * 100_000 + number,
            repeats=slot.repeats,
        )
        for number, (slot, user) in enumerate(zip(slots, _who(slots, users, rng), strict=True))
    ]


def _slots(content: Content, rng: random.Random, n_visits: int) -> list[_Slot]:
    """Every question is first asked by one user; echoes and repeats of it come later in the night."""
    counts = {habit: round(share * n_visits) for habit, share in _SHARES.items()}
    n_repeats = round(_REPEATS * n_visits)
    n_edits = n_visits - sum(counts.values()) - n_repeats
    fresh = _shuffled(rng, content.plain())
    private = content.private()[: n_edits // 3]
    public = _take(fresh, n_edits - len(private))
    first = [_Slot(question, Habit.EDIT) for question in (*private, *public)]
    for habit in (Habit.REGENERATE, Habit.SILENT, Habit.LEAVE):
        first += [_Slot(question, habit) for question in _take(fresh, counts[habit])]
    known = _shuffled(rng, public)
    echoes = [_Slot(question, habit) for habit in _ECHOES for question in _take(known, counts[habit])]
    repeated = [
        _Slot(question, Habit.EDIT, "exact")
        if number % 2 == 0
        else _Slot(_nearly(question, content.language), Habit.EDIT, "near")
        for number, question in enumerate(_take(known, n_repeats))
    ]
    return [*_shuffled(rng, first), *_shuffled(rng, echoes), *repeated]


def _who(slots: list[_Slot], users: list[str], rng: random.Random) -> list[str]:
    """One user per slot: the heavy one first takes a share of the edits, the others take turns."""
    heavy, quiet = users[0], users[-3:]
    queue = _shuffled(rng, users[1:-3])
    heavy_left = round(_HEAVY_SHARE * len(slots))
    asked_by: dict[str, str] = {}
    chosen: list[str] = []
    for number, slot in enumerate(slots):
        if slot.habit is Habit.SILENT:
            user = quiet[number % len(quiet)]
        elif slot.habit is Habit.EDIT and heavy_left:
            user, heavy_left = heavy, heavy_left - 1
        else:  # an echo by the one who asked first would be one opinion told twice
            user = queue[0] if queue[0] != asked_by.get(slot.question.text) else queue[1]
            queue.remove(user)
            queue.append(user)
        asked_by.setdefault(slot.question.text, user)
        chosen.append(user)
    return chosen


_Item = TypeVar("_Item")


def _shuffled(rng: random.Random, items: Sequence[_Item]) -> list[_Item]:
    return rng.sample(items, len(items))


def _take(questions: list[Question], count: int) -> list[Question]:
    """Remove and return the first `count` questions."""
    if count > len(questions):
        raise ValueError(f"{len(questions)} questions are left and {count} are wanted; lower n_visits")
    taken, questions[:] = questions[:count], questions[count:]
    return taken


def _nearly(question: Question, language: str) -> Question:
    """The same question as another person types it."""
    text = question.text
    return question.model_copy(update={"text": f"{text.rstrip('.?').lower()}??" if language == "en" else f"{text}？？"})
