"""What was finally said about one answer, when several users or several kinds of signal speak.

An outcome weighs more than an edit, an edit more than a vote; equals that disagree are a conflict.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.clean.text import message_text
from pipeline.dataset.edits import EditKind, classify_edit
from pipeline.records import CleanRecord, DropReason, FeedbackKind, Message, Signal, canonical_json

_VOTES = (FeedbackKind.THUMB, FeedbackKind.RATING)
_SAYS_GOOD_OR_BAD = (*_VOTES, FeedbackKind.EDIT, FeedbackKind.OUTCOME, FeedbackKind.CHOICE)


@dataclass(frozen=True)
class Judged:
    """A record with what was finally said about its answer."""

    record: CleanRecord
    said: tuple[Signal, ...]
    """Signals that were not withdrawn."""
    sign: int
    """The answer as it was given: 1 liked, -1 not, 0 nothing said."""
    edit: EditKind | None
    """What its edit is good for; None when there is none, or another signal overrules it."""
    problem: DropReason | None
    """Why its own signals give no example."""

    @property
    def id(self) -> str:
        return self.record.interaction_id

    @property
    def prefix(self) -> str:
        """Equal for exactly the same messages and tools."""
        return canonical_json([self.record.messages, self.record.tools])

    @property
    def asked(self) -> str:
        """The last thing that the user said."""
        return next((message_text(m) for m in reversed(self.record.messages) if m.get("role") == "user"), "")

    @property
    def replaced(self) -> bool:
        """Whether the user asked for another answer."""
        return self.record.replaced_by is not None or any(s.kind is FeedbackKind.REGENERATE for s in self.said)

    @property
    def users(self) -> frozenset[str]:
        """Who says so, of this answer or of its duplicates."""
        own = frozenset(s.user_key for s in self.said if s.user_key and s.kind in _SAYS_GOOD_OR_BAD)
        return own.union(self.record.backed_by) if own else own


def judge(record: CleanRecord) -> Judged:
    """Weigh all signals about one answer."""
    said = tuple(signal for signal in record.signals if signal.value is not None)
    outcome = _agreed(s.sign for s in said if s.kind is FeedbackKind.OUTCOME)
    vote = _agreed(_latest_votes(said).values())
    edit = None
    problem: DropReason | None = None
    judged = Judged(record, said, 0, None, None)
    if record.edited is not None and any(s.kind is FeedbackKind.EDIT for s in said):
        match classify_edit(message_text(record.answer), record.edited, judged.asked):
            case EditKind() as kind:
                edit = kind
            case reason:
                problem = reason
    if outcome != 0:
        sign, edit = outcome, edit if outcome == -1 and edit is not EditKind.TRIVIAL else None
    elif edit in (EditKind.PAIR, EditKind.TARGET):
        sign = -1 if vote == -1 else 0
    else:
        sign, edit = vote, None if vote in (-1, None) else edit
    if sign is None:
        return Judged(record, said, 0, None, DropReason.CONFLICT)
    if sign != 0 and not is_answer(record.answer):
        sign, problem = 0, problem or DropReason.EMPTY_SIDE
    return Judged(record, said, sign, edit, problem)


def is_answer(message: Message) -> bool:
    """Whether there is anything in a message: text, or a call of a tool."""
    return bool(message_text(message).strip() or message.get("tool_calls"))


def _latest_votes(said: Iterable[Signal]) -> Mapping[str | None, int]:
    """Thumb and rating of one user are one vote: the later one counts."""
    votes = sorted((s for s in said if s.kind in _VOTES), key=lambda s: (s.occurred_at, s.event_ids))
    return {signal.user_key: signal.sign for signal in votes}


def _agreed(signs: Iterable[int]) -> int | None:
    """The sign of all that is not neutral, 0 when nothing is, None when they disagree."""
    found = set(signs) - {0}
    return found.pop() if len(found) == 1 else None if found else 0
