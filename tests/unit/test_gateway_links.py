"""A link's token says what it said when it was made, or nothing; what is posted to it cannot say more."""

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.gateway.auth import ApiKey
from pipeline.gateway.errors import Refused
from pipeline.gateway.ids import Ids
from pipeline.gateway.links import Link, make_token, read_link_request, read_linked_feedback, read_token
from pipeline.records import Feedback, FeedbackKind

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
IDS = Ids("salt")
KNOWN = frozenset(("support", "sales"))
OWN = IDS.new_interaction("support")
KEY = ApiKey("app", "ab" * 32, ("support",), NOW)
LINK = Link(
    OWN, "support", (FeedbackKind.OUTCOME, FeedbackKind.THUMB), 2**31, IDS.user_key("support", "u1"), KEY.prefix
)
SAID: dict[str, Any] = {"kind": "thumb", "value": "up"}

LINKS = st.builds(
    Link,
    interaction_id=st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace").decode()),
    business=st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True),
    kinds=st.lists(st.sampled_from(FeedbackKind), min_size=1, max_size=8).map(tuple),
    expires=st.integers(0, 2**40),
    user_key=st.none() | st.from_regex(r"[0-9a-f]{32}", fullmatch=True),
    maker=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
)


def ask(key: ApiKey = KEY, **wanted: Any) -> Link:
    body = {"interaction_id": OWN, "kinds": ["outcome"]} | wanted
    return read_link_request(json.dumps(body).encode(), key, KNOWN, IDS, NOW)


def say(link: Link = LINK, **said: Any) -> Feedback:
    return read_linked_feedback(json.dumps(SAID | said).encode(), link, IDS, NOW)


# tokens


@given(LINKS)
def test_a_token_is_read_back_whole_and_is_safe_in_a_path(link: Link) -> None:
    token = make_token(link, IDS)
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert read_token(token.encode(), IDS) == link
    assert read_token(token.encode(), Ids("salt")) == link
    assert read_token(token.encode(), Ids("other salt")) is None


@given(LINKS, st.data())
def test_a_changed_token_is_none(link: Link, data: st.DataObject) -> None:
    token = make_token(link, IDS).encode()
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != token[place]))
    assert read_token(token[:place] + bytes([other]) + token[place + 1 :], IDS) is None
    assert read_token(token[:place], IDS) is None
    assert read_token(token + data.draw(st.sampled_from((b"=", b"A", b"AAAA", b"\n", b" "))), IDS) is None


@given(st.binary(max_size=300) | st.binary(max_size=300).map(base64.urlsafe_b64encode))
def test_any_bytes_may_be_tried_as_a_token(token: bytes) -> None:
    assert read_token(token, IDS) is None


@given(LINKS, LINKS)
def test_the_signature_of_one_link_is_none_for_another(one: Link, other: Link) -> None:
    raw = [base64.urlsafe_b64decode(make_token(link, IDS) + "==") for link in (one, other)]
    mixed = base64.urlsafe_b64encode(raw[0][:-16] + raw[1][-16:]).rstrip(b"=")
    assert (read_token(mixed, IDS) is None) == (one != other)


# making one


def test_a_link_is_what_was_asked_for() -> None:
    link = ask(kinds=["thumb", "edit", "thumb"], days=7, user_id="u1")
    assert link == Link(
        interaction_id=OWN,
        business="support",
        kinds=(FeedbackKind.EDIT, FeedbackKind.THUMB),
        expires=int((NOW + timedelta(days=7)).timestamp()),
        user_key=IDS.user_key("support", "u1"),
        maker="ab" * 8,
    )
    assert ask(days=7.0).expires == ask(days=7).expires
    assert ask().user_key is None
    assert ask().expires_at == NOW + timedelta(days=90)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"kinds": []}, 400), ({"kinds": ["like"]}, 400), ({"kinds": "outcome"}, 400), ({"days": 0}, 400),
        ({"days": 401}, 400), ({"days": "7"}, 400), ({"days": True}, 400), ({"days": 1.5}, 400),
        ({"interaction_id": ""}, 400),
        ({"user_id": ""}, 400), ({"user_key": "x"}, 400), ({"expires": 1}, 400), ({"business": "sales"}, 403),
        ({"interaction_id": IDS.new_interaction("sales")}, 403),
    ],
)  # fmt: skip
def test_what_cannot_be_linked_is_refused(changes: dict[str, Any], status: int) -> None:
    with pytest.raises(Refused) as refused:
        ask(**changes)
    assert refused.value.status == status


def test_an_id_of_elsewhere_needs_a_business_when_the_key_has_several() -> None:
    both = ApiKey("app", "ab" * 32, ("sales", "support"), NOW)
    assert ask(both, interaction_id=OWN).business == "support"
    assert ask(both, interaction_id="import-7", business="sales").business == "sales"
    with pytest.raises(Refused, match="business"):
        ask(both, interaction_id="import-7")


# using one


def test_what_is_said_through_a_link_is_about_its_interaction_by_its_user() -> None:
    event = say(reason="fast", occurred_at="2026-03-01T09:00:00Z", choice_index=1)
    assert event == Feedback(
        event_id=event.event_id,
        interaction_id=OWN,
        business="support",
        kind=FeedbackKind.THUMB,
        value="up",
        choice_index=1,
        user_key=IDS.user_key("support", "u1"),
        reason="fast",
        occurred_at=NOW - timedelta(hours=1),
        received_at=NOW,
    )


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"interaction_id": IDS.new_interaction("support")}, 403), ({"business": "sales"}, 403),
        ({"user_id": "u2"}, 403), ({"kind": "edit", "value": "so"}, 403), ({"user_key": "x"}, 400),
        ({"received_at": "2026-03-01T10:00:00Z"}, 400), ({"value": "UP"}, 400), ({"event_id": ""}, 400),
        ({"occurred_at": "2026-03-01T11:00:00Z"}, 400),
    ],
)  # fmt: skip
def test_nothing_else_can_be_said_through_it(changes: dict[str, Any], status: int) -> None:
    with pytest.raises(Refused) as refused:
        say(**changes)
    assert refused.value.status == status


def test_naming_what_the_link_stands_for_changes_nothing() -> None:
    assert say(interaction_id=OWN, business="support", user_id="u1") == say()
    with pytest.raises(Refused, match="user_id"):
        say(Link(OWN, "support", (FeedbackKind.THUMB,), 2**31, None, KEY.prefix), user_id="u1")


def test_the_same_words_are_one_event_and_others_are_another() -> None:
    events = [
        say(), say(value="down"), say(value=None), say(reason="r"), say(choice_index=1),
        say(kind="outcome", value="passed"), say(occurred_at="2026-03-01T09:00:00Z"),
        say(event_id="e1"), say(event_id="e2"),
    ]  # fmt: skip
    assert len({event.event_id for event in events}) == len(events)
    assert say().event_id == events[0].event_id
    assert say(event_id="e1", value="down").event_id == say(event_id="e1").event_id


def test_a_link_cannot_take_the_event_id_of_another_sender() -> None:
    other = Link(OWN, "support", LINK.kinds, 2**31, IDS.user_key("support", "u2"), KEY.prefix)
    assert len({"e1", say(event_id="e1").event_id, say(other, event_id="e1").event_id}) == 3
    assert say(event_id=say(event_id="e1").event_id).event_id != say(event_id="e1").event_id


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from([*SAID, "user_id", "x"]), v, max_size=5),
)


@given(JSON | st.fixed_dictionaries({key: JSON | st.just(value) for key, value in SAID.items()}))
def test_anything_else_is_refused_and_never_fails(value: object) -> None:
    body = json.dumps(value).encode()
    with suppress(Refused):
        read_linked_feedback(body, LINK, IDS, NOW)
    with suppress(Refused):
        read_link_request(body, KEY, KNOWN, IDS, NOW)
