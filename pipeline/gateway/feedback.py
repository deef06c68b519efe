"""What a feedback says: from the client's JSON to a `Feedback` record. Pure."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field, JsonValue, ValidationError

from pipeline.gateway.errors import Refused
from pipeline.gateway.ids import Ids
from pipeline.gateway.request import replace_surrogates
from pipeline.records import Feedback, FeedbackKind, Record

MAX_EVENTS = 1000
MAX_TEXT = 200_000
"""Characters of an edit."""
MAX_COMMENT = 20_000
"""Characters of a comment or a reason."""
_FUTURE_S = 300.0
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _date_and_time(value: object) -> object:
    """A number, also one in quotes, could be seconds or milliseconds: nobody guesses."""
    if value is not None and not (isinstance(value, str) and _DATE.match(value)):
        raise ValueError("must be a date and time with its offset, such as 2026-03-01T10:00:00+00:00")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")
    return value


Whole = Annotated[int, BeforeValidator(_number)]
Id = Annotated[str, Field(min_length=1, max_length=200)]
UserId = Annotated[str, Field(min_length=1, max_length=500)]


class Said(Record):
    """What a client says about an answer, whichever way it comes."""

    kind: FeedbackKind
    value: JsonValue
    choice_index: Whole = Field(0, ge=0, le=1000)
    reason: str | None = Field(None, max_length=MAX_COMMENT)
    occurred_at: Annotated[AwareDatetime | None, BeforeValidator(_date_and_time)] = None

    def check(self, now: datetime) -> datetime:
        """Check the value against its kind; returns when it happened.

        Raises:
            Refused: the value is none of its kind, or the time is impossible.
        """
        if self.value is not None:  # null withdraws
            mistake = _CHECKS[self.kind](self.value)
            if mistake is not None:
                raise Refused(400, "invalid_feedback", f"value: of kind '{self.kind}' {mistake}; null withdraws")
        if self.occurred_at is None:
            return now
        if (self.occurred_at - now).total_seconds() > _FUTURE_S:
            raise Refused(400, "invalid_feedback", f"occurred_at: {self.occurred_at.isoformat()} is in the future")
        try:
            return self.occurred_at.astimezone(UTC)
        except OverflowError as error:
            raise Refused(400, "invalid_feedback", "occurred_at: before the year 1") from error


class _Posted(Said):
    """One feedback as an application posts it."""

    event_id: Id
    interaction_id: Id
    user_id: UserId | None = None
    business: str | None = None


def read_feedback(
    body: bytes, allowed: tuple[str, ...], known: frozenset[str], ids: Ids, now: datetime
) -> tuple[Feedback, ...]:
    """Read one feedback or a list; of several with one event id in a business the first is taken.

    Args:
        allowed: businesses of the caller's key.
        known: all businesses.

    Raises:
        Refused: nothing of the body is taken; the message names the place and what is wrong with each bad one.
    """
    value = read_json(body, "one feedback or a list of them")
    items = value if isinstance(value, list) else [value]
    if not 1 <= len(items) <= MAX_EVENTS:
        raise Refused(400, "invalid_feedback", f"send 1 to {MAX_EVENTS} feedbacks at once, not {len(items)}")
    events: dict[tuple[str, str], Feedback] = {}
    mistakes: list[str] = []
    foreign = False
    for position, item in enumerate(items):
        place = f"[{position}] " if isinstance(value, list) else ""
        try:
            event = _record(_Posted.model_validate(item), allowed, known, ids, now)
            events.setdefault((event.business, event.event_id), event)
        except ValidationError as error:
            mistakes += [f"{place}{explain(one)}" for one in error.errors()]
        except Refused as refused:
            foreign = foreign or refused.status == 403
            mistakes.append(f"{place}{refused.message}")
    if mistakes:
        status, code = (403, "not_your_interaction") if foreign else (400, "invalid_feedback")
        raise Refused(status, code, "; ".join(mistakes[:20]))
    return tuple(events.values())


def read_json(body: bytes, what: str) -> Any:
    """A JSON body in which half a surrogate pair has become U+FFFD.

    Raises:
        Refused: it is no JSON.
    """
    try:
        value = json.loads(body.decode())
        return json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise Refused(400, "invalid_json", f"the body must be {what}, as JSON in UTF-8") from error


def business_of_interaction(
    interaction_id: str, named: str | None, allowed: tuple[str, ...], known: frozenset[str], ids: Ids
) -> str:
    """Whose interaction it is: its id tells when a gateway of ours made it.

    Args:
        named: the business that the caller says it is of.

    Raises:
        Refused: it is another's, or nobody can tell.
    """
    if named is not None and named not in allowed:
        raise Refused(403, "not_your_interaction", f"business: this key may not use '{named[:80]}'")
    candidates = allowed if named is None else (named,)
    for business in candidates:
        if ids.belongs(interaction_id, business):
            return business
    if any(ids.belongs(interaction_id, business) for business in known.difference(candidates)):
        raise Refused(403, "not_your_interaction", "interaction_id: not an interaction of this business")
    if len(candidates) != 1:
        raise Refused(400, "invalid_feedback", "business: name it; this key has several and the id tells none")
    return candidates[0]


def explain(error: Any) -> str:
    """One mistake that pydantic found: its place and what is wrong."""
    place = ".".join(str(part) for part in error["loc"])[:200] or "body"
    return f"{place}: {error['msg'].removeprefix('Value error, ')}"


def _record(posted: _Posted, allowed: tuple[str, ...], known: frozenset[str], ids: Ids, now: datetime) -> Feedback:
    occurred_at = posted.check(now)
    business = business_of_interaction(posted.interaction_id, posted.business, allowed, known, ids)
    return Feedback(
        event_id=posted.event_id,
        interaction_id=posted.interaction_id,
        business=business,
        kind=posted.kind,
        value=posted.value,
        choice_index=posted.choice_index,
        user_key=None if posted.user_id is None else ids.user_key(business, posted.user_id),
        reason=posted.reason,
        occurred_at=occurred_at,
        received_at=now,
    )


def _is_text(limit: int) -> Callable[[JsonValue], str | None]:
    def check(value: JsonValue) -> str | None:
        if not isinstance(value, str):
            return "must be a string"
        return None if len(value) <= limit else f"has {len(value)} characters; at most {limit}"

    return check


def _one_of(*words: str) -> Callable[[JsonValue], str | None]:
    return lambda value: None if isinstance(value, str) and value in words else f"must be one of {', '.join(words)}"


def _is_rating(value: JsonValue) -> str | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 5
    return None if good else "must be a number from 1 to 5"


def _is_regeneration(value: JsonValue) -> str | None:
    good = value is True or (isinstance(value, str) and 0 < len(value) <= 200)
    return None if good else "must be the new interaction's id, or true"


def _is_choice(value: JsonValue) -> str | None:
    good = isinstance(value, dict) and set(value) == {"over"} and isinstance(value["over"], str) and value["over"]
    return None if good else 'must be {"over": "<interaction id of the answer not chosen>"}'


_CHECKS: Mapping[FeedbackKind, Callable[[JsonValue], str | None]] = {
    FeedbackKind.THUMB: _one_of("up", "down"),
    FeedbackKind.RATING: _is_rating,
    FeedbackKind.EDIT: _is_text(MAX_TEXT),
    FeedbackKind.REGENERATE: _is_regeneration,
    FeedbackKind.CHOICE: _is_choice,
    FeedbackKind.ABORT: lambda value: None if value is True else "must be true",
    FeedbackKind.OUTCOME: _one_of("passed", "failed"),
    FeedbackKind.COMMENT: _is_text(MAX_COMMENT),
}
