"""What an importer says of a part of a file that it does not take."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pipeline.records import Feedback, Interaction


class RefusalReason(StrEnum):
    """Why a part of a file gave nothing. Each refused part has exactly one reason."""

    UNREADABLE = "unreadable"  # not the kind of file that it seems to be, or damaged
    NOT_UTF8 = "not_utf8"
    BAD_JSON = "bad_json"
    BAD_ROW = "bad_row"  # a CSV row with more or fewer fields than its header
    CUT_SHORT = "cut_short"  # the file ends in the middle
    WRONG_FORM = "wrong_form"  # well written, but nothing that this tool writes
    TOO_LONG = "too_long"
    BAD_MESSAGES = "bad_messages"
    NO_ANSWER = "no_answer"
    NO_VOTE = "no_vote"  # nobody has said anything
    UNKNOWN_VALUE = "unknown_value"  # a vote that could mean anything
    CONTRADICTORY = "contradictory"  # says up in one field and down in another
    DRAW = "draw"  # neither answer is better
    NO_KEY = "no_key"  # nothing says which answer it is about
    NOT_ONE_ANSWER = "not_one_answer"  # about a whole session, project or episode
    NO_TIME = "no_time"
    NOT_A_USER = "not_a_user"  # a judge model, a rule or code
    DRAFT = "draft"  # not submitted, discarded or skipped
    DELETED = "deleted"
    ERASED = "erased"  # of a user who was erased; nothing of theirs is taken again
    NOT_CHAT = "not_chat"  # a tool's call, a retrieval, an embedding, a picture to label

    @property
    def is_damage(self) -> bool:
        """Whether somebody should look at the file: something in it was meant to be taken and could not be."""
        return self not in _NO_DAMAGE


_NO_DAMAGE = frozenset(
    {
        RefusalReason.NO_VOTE,
        RefusalReason.DRAW,
        RefusalReason.NOT_ONE_ANSWER,
        RefusalReason.NOT_A_USER,
        RefusalReason.DRAFT,
        RefusalReason.DELETED,
        RefusalReason.ERASED,
        RefusalReason.NOT_CHAT,
    }
)


@dataclass(frozen=True)
class Refusal:
    """A part of a file that gave nothing."""

    place: str
    """Where in the file, such as `line 7` or `item 12`."""
    reason: RefusalReason
    detail: str = ""
    """What exactly, without any text of a user."""


class Refused(Exception):
    """The part being read gives nothing; `read_each` adds the place."""

    def __init__(self, reason: RefusalReason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


Item: TypeAlias = Interaction | Feedback | Refusal
"""What an importer makes of a file, one after the other."""
