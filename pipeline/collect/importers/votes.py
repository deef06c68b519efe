"""Votes as other tools write them. No two write a thumb the same way; what could mean two things is refused."""

from typing import Any, Literal, TypeAlias

from pipeline.collect.importers.fields import number
from pipeline.collect.importers.refusal import RefusalReason, Refused
from pipeline.records import FeedbackKind

Vote: TypeAlias = tuple[FeedbackKind, str | float]

_UP = frozenset(
    {"up", "upvote", "like", "liked", "thumbsup", "thumbup", "good", "positive", "yes", "true", "helpful", "correct"}
    | {"pass", "passed", "👍", "赞", "点赞", "喜欢", "满意", "好评", "有用", "有帮助"}
)
_DOWN = frozenset(
    {
        "down",
        "downvote",
        "dislike",
        "disliked",
        "thumbsdown",
        "thumbdown",
        "bad",
        "negative",
        "no",
        "false",
        "incorrect",
    }
    | {"unhelpful", "nothelpful", "fail", "failed", "👎", "踩", "点踩", "不喜欢", "不满意", "差评", "没用", "没帮助"}
)


def thumb(value: Any) -> Literal["up", "down"]:
    """A thumb: truth values, 1 and -1, and words.

    Raises:
        Refused: it is a draw, or nobody can tell what it means.
    """
    found = number(value)
    if found is not None and found in (1, -1):
        return "up" if found > 0 else "down"
    if found == 0:
        raise Refused(RefusalReason.DRAW, "0 is neither up nor down")
    if isinstance(value, bool):
        return "up" if value else "down"
    word = word_of(value)
    if word in _UP:
        return "up"
    if word in _DOWN:
        return "down"
    if value is None or value == "":
        raise Refused(RefusalReason.NO_VOTE)
    raise Refused(RefusalReason.UNKNOWN_VALUE, f"{str(value)[:40]!r} is neither up nor down")


def word_of(value: Any) -> str:
    """A label without case, spaces, dashes, underlines and emoji variants, so that `thumbs_up` is `thumbsUp`."""
    if not isinstance(value, str) or len(value) > 40:
        return ""
    return "".join(char for char in value.casefold() if char not in " -_\t\n\ufe0f" and not "🏻" <= char <= "🏿")


def score(value: Any, scale: tuple[float, float] | None) -> Vote:
    """A score that a tool keeps as a number, a truth value or a label.

    1, 0 and -1 are thumbs; any other number needs its scale, because 0.8 may be of 1, of 5 or of 10.

    Args:
        scale: its lowest and highest value; then every number is a rating.

    Raises:
        Refused: nobody can tell what it means.
    """
    found = number(value)
    if found is None or isinstance(value, bool):
        return FeedbackKind.THUMB, thumb(value)
    if scale is None:
        if found in (1, 0, -1):
            return FeedbackKind.THUMB, "up" if found > 0 else "down"
        raise Refused(RefusalReason.UNKNOWN_VALUE, f"{found:g} on an unknown scale; name it with --scale")
    low, high = scale
    if not low <= found <= high:
        raise Refused(RefusalReason.UNKNOWN_VALUE, f"{found:g} is outside the scale {low:g}:{high:g}")
    return FeedbackKind.RATING, round(1 + 4 * (found - low) / (high - low), 3)


def stars(value: Any, scale: tuple[float, float] | None) -> Vote:
    """A rating on a scale of its own: here 1 is the worst and no thumb up.

    Raises:
        Refused: it is no number, or its scale is not known.
    """
    found = number(value)
    if found is None:
        raise Refused(RefusalReason.UNKNOWN_VALUE, f"{str(value)[:40]!r} is no rating")
    if scale is None:
        raise Refused(RefusalReason.UNKNOWN_VALUE, f"{found:g} on an unknown scale; name it with --scale")
    return score(value, scale)


_A_USERS = ("user", "thumb", "human", "feedback", "rating", "like", "csat", "评价", "点赞", "反馈", "满意")


def check_is_a_users(name: str, wanted: frozenset[str]) -> None:
    """Scores come from users, from code and from judge models alike: only the name tells.

    Args:
        wanted: names given with --score; if there are any, only these are users' votes.

    Raises:
        Refused: it is none.
    """
    folded = name.casefold()
    if (name in wanted) if wanted else any(word in folded for word in _A_USERS):
        return
    raise Refused(RefusalReason.NOT_A_USER, f"score {name[:60]!r}; if users gave it, say --score {name[:60]!r}")
