"""Feedback links: a signed token stands for the right to say certain things about one answer. Pure.

A token carries all that is needed to take the feedback, so there is no table of them: interaction, business, user (as
the salted hash), allowed kinds, end, and the API key that it was made with, which can be revoked. It is signed, not
encrypted: whoever holds it can read these things, and cannot change them.
"""

import base64
import binascii
import hmac
from datetime import UTC, datetime, timedelta

import msgspec
from pydantic import Field, ValidationError

from pipeline.gateway.auth import ApiKey
from pipeline.gateway.errors import Refused
from pipeline.gateway.feedback import Id, Said, UserId, Whole, business_of_interaction, explain, read_json
from pipeline.gateway.ids import Ids
from pipeline.records import Feedback, FeedbackKind, Record, content_id

MAX_DAYS = 400
_SIGNATURE_BYTES = 16
_MAX_TOKEN = 2048


class Link(msgspec.Struct, frozen=True, array_like=True):
    """What a token says; its fields are what is signed, in this order."""

    interaction_id: str
    business: str
    kinds: tuple[FeedbackKind, ...]
    expires: int
    """Seconds since the epoch."""
    user_key: str | None
    maker: str
    """`prefix` of the API key that made it."""

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self.expires, UTC)


_PAYLOAD = msgspec.msgpack.Decoder(Link)


class _Wanted(Record):
    """A link as an application asks for it."""

    interaction_id: Id
    kinds: tuple[FeedbackKind, ...] = Field(min_length=1, max_length=len(FeedbackKind))
    days: Whole = Field(90, ge=1, le=MAX_DAYS)
    user_id: UserId | None = None
    business: str | None = None


class _Linked(Said):
    """One feedback as it is posted to a link. Who and what it is about stands in the token: naming it again changes
    nothing, naming another is refused."""

    event_id: Id | None = None
    interaction_id: str | None = None
    user_id: str | None = None
    business: str | None = None


def read_link_request(body: bytes, key: ApiKey, known: frozenset[str], ids: Ids, now: datetime) -> Link:
    """What an application asks a link for.

    Raises:
        Refused: it is no such request, or not about an interaction of the key's businesses.
    """
    try:
        wanted = _Wanted.model_validate(read_json(body, "one object"))
    except ValidationError as error:
        raise Refused(400, "invalid_link", "; ".join(explain(one) for one in error.errors()[:20])) from error
    business = business_of_interaction(wanted.interaction_id, wanted.business, key.businesses, known, ids)
    return Link(
        interaction_id=wanted.interaction_id,
        business=business,
        kinds=tuple(sorted(set(wanted.kinds))),
        expires=int((now + timedelta(days=wanted.days)).timestamp()),
        user_key=None if wanted.user_id is None else ids.user_key(business, wanted.user_id),
        maker=key.prefix,
    )


def make_token(link: Link, ids: Ids) -> str:
    """The token of a link: letters, digits, `-` and `_`."""
    payload = msgspec.msgpack.encode(link)
    return _to_text(payload + ids.link_signature(payload)).decode()


def read_token(token: bytes, ids: Ids) -> Link | None:
    """The link that a token stands for, expired or not; None when no gateway of ours made it."""
    if len(token) > _MAX_TOKEN:
        return None
    try:
        signed = base64.b64decode(token + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    payload, signature = signed[:-_SIGNATURE_BYTES], signed[-_SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, ids.link_signature(payload)) or _to_text(signed) != token:
        return None
    try:
        return _PAYLOAD.decode(payload)
    except msgspec.MsgspecError:  # signed by a version that knew other fields
        return None


def read_linked_feedback(body: bytes, link: Link, ids: Ids, now: datetime) -> Feedback:
    """Read the feedback that was posted to a link.

    Without an `event_id` the same words at the same `occurred_at` are one event, however often they are sent. Event ids
    of a link are its own: whoever holds it cannot take the id of an event that somebody else will send.

    Raises:
        Refused: it is no feedback, of a kind that the link is not for, or about somebody or something else.
    """
    try:
        said = _Linked.model_validate(read_json(body, "one feedback"))
    except ValidationError as error:
        raise Refused(400, "invalid_feedback", "; ".join(explain(one) for one in error.errors()[:20])) from error
    occurred_at = said.check(now)
    if said.kind not in link.kinds:
        raise Refused(403, "not_of_this_link", f"kind: this link is for {', '.join(link.kinds)}")
    _check_names(said, link, ids)
    words = said.model_dump(mode="json", include={"kind", "value", "choice_index", "reason", "occurred_at"})
    told = words if said.event_id is None else {"event_id": said.event_id}
    source = [link.interaction_id, link.business, link.user_key, told]
    return Feedback(
        event_id=f"link-{content_id(source)[:32]}",
        interaction_id=link.interaction_id,
        business=link.business,
        kind=said.kind,
        value=said.value,
        choice_index=said.choice_index,
        user_key=link.user_key,
        reason=said.reason,
        occurred_at=occurred_at,
        received_at=now,
    )


def _check_names(said: _Linked, link: Link, ids: Ids) -> None:
    user_key = None if said.user_id is None else ids.user_key(link.business, said.user_id)
    for name, told, true in (
        ("interaction_id", said.interaction_id, link.interaction_id),
        ("business", said.business, link.business),
        ("user_id", user_key, link.user_key),
    ):
        if told is not None and told != true:
            raise Refused(403, "not_of_this_link", f"{name}: the link stands for another one; leave the field out")


def _to_text(signed: bytes) -> bytes:
    return base64.urlsafe_b64encode(signed).rstrip(b"=")
