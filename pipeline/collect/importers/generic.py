"""JSON lines, a JSON array, CSV or Parquet from anywhere: a documented form, for tools that have no importer.

What a row may hold is written in `pipeline.collect.importers.GENERIC_FORM`, which `tuneloop import --help` shows. Rows
without a vote are stored as interactions that nobody has rated. Ranked trees of messages (OpenAssistant) are read too.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue

from pipeline.collect.importers.elements import read_each, read_elements
from pipeline.collect.importers.fields import Row, text
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.ranked_tree import is_tree, read_tree
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.talks import Talk, pair_of, talk_of
from pipeline.collect.importers.votes import score, stars, thumb
from pipeline.records import FeedbackKind, content_id

_KEYS = ("interaction_id", "trace_id", "message_id", "request_id", "id")
_VOTES = ("rating", "thumb", "vote", "feedback", "feedback_rating_raw", "label", "kto_tag", "score")
_EDITS = ("edited", "correction", "edited_answer", "corrected", "edited_text")
_TIMES = ("occurred_at", "timestamp", "ts", "created_at", "time", "date", "feedback_date")
_WITHDRAWN = "_removed"


def read(source: Source, make: Make) -> Iterator[Item]:
    """Rows in any order."""
    return read_each(read_elements(source, "data", "items", "rows", "feedback_data"), lambda row: _one(row, make))


def _one(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if is_tree(row):
        yield from read_tree(row, make)
        return
    if "kind" in row or ("type" in row and ("value" in row or _WITHDRAWN in text(row, "type"))):
        yield _event(row, make)
        return
    pair = pair_of(row)
    if pair is not None:
        yield from _pair(row, *pair, make)
        return
    talk = talk_of(row)
    said = list(_said(row, _key(row, talk), make))
    if talk is not None:
        yield make.interaction(_key(row, talk), _turn(row, talk, make), Answer(talk.answer))
    elif not said:
        raise Refused(RefusalReason.WRONG_FORM, "neither a conversation with an answer nor anything about one")
    yield from said


def _key(row: Row, talk: Talk | None) -> str:
    found = text(row, *_KEYS).strip()
    if found:
        return found
    return "" if talk is None else content_id([talk.messages, talk.answer, talk.tools])


def _turn(row: Row, talk: Talk, make: Make) -> Turn:
    return Turn(
        messages=talk.messages,
        at=_when(row, make),
        model=text(row, "model", "model_id", "model_version"),
        conversation=text(row, "session_id", "conversation_id", "session"),
        user=_who(row),
        tools=talk.tools,
    )


def _said(row: Row, key: str, make: Make) -> Iterator[Item]:
    """The vote, the edit and the comment of a row, as far as they are there."""
    common: dict[str, Any] = {
        "at": _when(row, make),
        "user": _who(row),
        "source_id": text(row, "event_id", "feedback_id"),
    }
    votes = [name for name in _VOTES if row.get(name) not in (None, "")]
    edit = next((row[name] for name in _EDITS if isinstance(row.get(name), str)), None)
    comment = text(row, "comment", "feedback_comment")
    if not key and (votes or edit is not None or comment):
        raise Refused(RefusalReason.NO_KEY, "nothing says which answer it is about")
    for name in votes[:1]:
        kind, value = score(row[name], make.scale)
        yield make.feedback(key, kind, value, reason=why(text(row, "reason")), **common)
    if edit is not None:
        yield make.feedback(key, FeedbackKind.EDIT, edit, **common)
    if comment:
        yield make.feedback(key, FeedbackKind.COMMENT, comment, **common)


def _event(row: Row, make: Make) -> Item:
    """One feedback in the gateway's own words."""
    name = text(row, "kind", "type")
    withdrawn = name.endswith(_WITHDRAWN)
    try:
        kind = FeedbackKind(name.removesuffix(_WITHDRAWN))
    except ValueError as error:
        raise Refused(RefusalReason.UNKNOWN_VALUE, f"kind {name[:40]!r}") from error
    key = text(row, *_KEYS).strip()
    if not key:
        raise Refused(RefusalReason.NO_KEY, "nothing says which answer it is about")
    value = None if withdrawn else _value(kind, row.get("value"), make)
    return make.feedback(
        key,
        kind,
        value,
        _when(row, make),
        user=_who(row),
        source_id=text(row, "event_id"),
        reason=why(text(row, "reason")),
    )


def _value(kind: FeedbackKind, value: Any, make: Make) -> JsonValue:
    if value is None:
        return None
    match kind:
        case FeedbackKind.THUMB:
            return thumb(value)
        case FeedbackKind.RATING:
            return stars(value, make.scale or (1.0, 5.0))[1]
        case FeedbackKind.OUTCOME:
            return "passed" if thumb(value) == "up" else "failed"
        case FeedbackKind.CHOICE:
            other = value.get("over") if isinstance(value, dict) else None
            if not isinstance(other, str) or not other:
                raise Refused(RefusalReason.UNKNOWN_VALUE, 'a choice is {"over": <id of the answer not chosen>}')
            return make.over(other)
        case FeedbackKind.REGENERATE:
            return make.interaction_id(value) if isinstance(value, str) and value else True
        case FeedbackKind.ABORT:
            return True
        case _:
            return str(value) if isinstance(value, str) else None


def _pair(row: Row, better: Talk, worse: Talk, make: Make) -> Iterator[Item]:
    """Two answers and the choice between them. Prompts that differ stay different: that is for cleaning to say."""
    keys = [content_id([text(row, *_KEYS), talk.messages, talk.answer]) for talk in (better, worse)]
    for key, talk in zip(keys, (better, worse), strict=True):
        yield make.interaction(key, _turn(row, talk, make), Answer(talk.answer))
    if keys[0] == keys[1]:
        yield Refusal("", RefusalReason.DRAW, "both answers are the same")
        return
    over = make.over(keys[1])
    yield make.feedback(keys[0], FeedbackKind.CHOICE, over, _when(row, make), user=_who(row))


def _when(row: Row, make: Make) -> Any:
    return first_moment(make.zone, *(row.get(name) for name in _TIMES))


def _who(row: Row) -> str:
    return text(row, "user_id", "user", "end_user")
