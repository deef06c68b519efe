"""What really happened in a night's visits, and its sum: the demo holds it against what the pipeline found."""

from collections import Counter
from collections.abc import Mapping, Sequence

from evals.worlds.content import Content
from evals.worlds.personal import Planted
from evals.worlds.world import Habit
from examples.demo.visits import Quirk, Visit
from pipeline.clean.text import comparison_key
from pipeline.records import Record


class Reply(Record):
    """One answer as the user saw it, with what the gateway's headers said about it."""

    interaction_id: str
    model_version: str
    arm: str
    text: str
    obeyed: bool


class VisitResult(Record):
    """What really happened in a visit."""

    visit_id: str
    replies: tuple[Reply, ...] = ()
    feedback: tuple[str, ...] = ()
    """Kinds of the events posted, repeats included."""
    error: str | None = None


class Tally(Record):
    """What was planted in one night of one business; the demo holds it against what the pipeline found."""

    business: str
    visits: int
    users: int
    requests: int
    errors: int
    obeyed: int
    """Answers that were as the users want them, of `judged`."""
    judged: int
    """Whole answers, that is all but the aborted ones."""
    streamed: int
    aborted: int
    regenerated: int
    feedback: dict[str, int]
    """Kind to events posted, repeats included."""
    resent: int
    flipped: int
    withdrawn: int
    silent: int
    repeats: tuple[tuple[str, str], ...]
    """Interactions of which the second repeats the first: its question, its answer and what was said of it."""
    private_questions: int
    planted: tuple[Planted, ...]
    """Personal data in the questions that were really asked."""

    @property
    def obey_rate(self) -> float:
        return self.obeyed / self.judged if self.judged else 0.0


def count(content: Content, visits: Sequence[Visit], results: Sequence[VisitResult]) -> Tally:
    """Sum up what was planted; visits without a result, or with an error, count as errors and plant nothing."""
    done = {result.visit_id: result for result in results if result.error is None}
    real = [planned for planned in visits if planned.visit_id in done]
    replies = [
        reply for planned in real if planned.habit is not Habit.LEAVE for reply in done[planned.visit_id].replies
    ]
    quirks = Counter(planned.quirk for planned in real)
    habits = Counter(planned.habit for planned in real)
    return Tally(
        business=content.business,
        visits=len(real),
        users=len({planned.user_id for planned in real}),
        requests=sum(len(done[planned.visit_id].replies) for planned in real),
        errors=len(visits) - len(real),
        obeyed=sum(reply.obeyed for reply in replies),
        judged=len(replies),
        streamed=sum(planned.stream for planned in real),
        aborted=habits[Habit.LEAVE],
        regenerated=sum(len(done[planned.visit_id].replies) - 1 for planned in real),
        feedback=dict(Counter(kind for planned in real for kind in done[planned.visit_id].feedback)),
        resent=quirks[Quirk.RESEND],
        flipped=quirks[Quirk.FLIP],
        withdrawn=quirks[Quirk.WITHDRAW],
        silent=habits[Habit.SILENT],
        repeats=_repeats(real, done),
        private_questions=sum(bool(planned.question.personal) for planned in real),
        planted=tuple(value for planned in real for value in planned.question.personal),
    )


def _repeats(real: Sequence[Visit], done: Mapping[str, VisitResult]) -> tuple[tuple[str, str], ...]:
    firsts = {
        comparison_key(planned.question.text): done[planned.visit_id]
        for planned in real
        if planned.habit is Habit.EDIT and not planned.repeats
    }
    pairs = [
        (firsts.get(comparison_key(planned.question.text)), done[planned.visit_id])
        for planned in real
        if planned.repeats
    ]
    return tuple(
        (first.replies[-1].interaction_id, again.replies[-1].interaction_id)
        for first, again in pairs
        if first and (first.replies[-1].text, first.feedback) == (again.replies[-1].text, again.feedback)
    )
