"""What a feedback says: from the client's JSON to a `Feedback` record. Pure."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import AwareDatetime, Field, JsonValue, ValidationError

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


class _Posted(Record):
    """One feedback as a client posts it."""

    event_id: str = Field(min_length=1, max_length=200)
    interaction_id: str = Field(min_length=1, max_length=200)
    kind: FeedbackKind
    value: JsonValue
    choice_index: int = Field(0, ge=0, le=1000)
    user_id: str | None = Field(None, min_length=1, max_length=500)
    reason: str | None = Field(None, max_length=MAX_COMMENT)
    occurred_at: AwareDatetime | None = None
    business: str | None = None


def read_feedback(
    body: bytes, allowed: tuple[str, ...], known: frozenset[str], ids: Ids, now: datetime
) -> tuple[Feedback, ...]:
    """Read one feedback or a list.

    Args:
        allowed: businesses of the caller's key.
        known: all businesses.

    Raises:
        Refused: nothing of the body is taken; the message names the place and what is wrong with each bad one.
    """
    try:
        value = json.loads(replace_surrogates(json.dumps(json.loads(body.decode()), ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise Refused(400, "invalid_json", "the body must be one feedback or a list of them, as JSON") from error
    items = value if isinstance(value, list) else [value]
    if not 1 <= len(items) <= MAX_EVENTS:
        raise Refused(400, "invalid_feedback", f"send 1 to {MAX_EVENTS} feedbacks at once, not {len(items)}")
    events: list[Feedback] = []
    mistakes: list[str] = []
    foreign = False
    for position, item in enumerate(items):
        place = f"[{position}] " if isinstance(value, list) else ""
        try:
            posted = _Posted.model_validate(item)
            _check_value(posted)
            events.append(_record(posted, allowed, known, ids, now))
        except ValidationError as error:
            mistakes += [f"{place}{_explain(one)}" for one in error.errors()]
        except Refused as refused:
            foreign = foreign or refused.status == 403
            mistakes.append(f"{place}{refused.message}")
    if mistakes:
        status, code = (403, "not_your_interaction") if foreign else (400, "invalid_feedback")
        raise Refused(status, code, "; ".join(mistakes[:20]))
    return tuple(events)


def _record(posted: _Posted, allowed: tuple[str, ...], known: frozenset[str], ids: Ids, now: datetime) -> Feedback:
    business = _business(posted, allowed, known, ids)
    occurred = posted.occurred_at or now
    if (occurred - now).total_seconds() > _FUTURE_S:
        raise Refused(400, "invalid_feedback", f"occurred_at: {occurred.isoformat()} is in the future")
    return Feedback(
        event_id=posted.event_id,
        interaction_id=posted.interaction_id,
        business=business,
        kind=posted.kind,
        value=posted.value,
        choice_index=posted.choice_index,
        user_key=None if posted.user_id is None else ids.user_key(business, posted.user_id),
        reason=posted.reason,
        occurred_at=occurred.astimezone(UTC),
        received_at=now,
    )


def _business(posted: _Posted, allowed: tuple[str, ...], known: frozenset[str], ids: Ids) -> str:
    """Whose interaction it is: its id tells when a gateway of ours made it."""
    if posted.business is not None and posted.business not in allowed:
        raise Refused(403, "not_your_interaction", f"business: this key may not use '{posted.business}'")
    candidates = allowed if posted.business is None else (posted.business,)
    for business in candidates:
        if ids.belongs(posted.interaction_id, business):
            return business
    if any(ids.belongs(posted.interaction_id, business) for business in known.difference(candidates)):
        raise Refused(403, "not_your_interaction", "interaction_id: not an interaction of this business")
    if len(candidates) != 1:
        raise Refused(400, "invalid_feedback", "business: name it; this key has several and the id tells none")
    return candidates[0]


def _is_text(limit: int) -> Callable[[JsonValue], str | None]:
    def check(value: JsonValue) -> str | None:
        if not isinstance(value, str):
            return "must be a string"
        return None if len(value) <= limit else f"has {len(value)} characters; at most {limit}"

    return check


def _one_of(*words: str) -> Callable[[JsonValue], str | None]:
    return lambda value: None if isinstance(value, str) and value in words else f"must be one of {', '.join(words)}"


def _is_rating(value: JsonValue) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if number and 1 <= float(value) <= 5 else "must be a number from 1 to 5"  # type: ignore[arg-type]


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


def _check_value(posted: _Posted) -> None:
    if posted.value is None:  # withdraws
        return
    mistake = _CHECKS[posted.kind](posted.value)
    if mistake is not None:
        raise Refused(400, "invalid_feedback", f"value: of kind '{posted.kind}' {mistake}; null withdraws")


def _explain(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"]) or "feedback"
    return f"{place}: {error['msg']}"
