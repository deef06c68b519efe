"""What is feedback and what is not, and whose."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.gateway.errors import Refused
from pipeline.gateway.feedback import MAX_COMMENT, read_feedback
from pipeline.gateway.ids import Ids
from pipeline.records import Feedback, FeedbackKind

NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)
IDS = Ids("salt")
ALL = frozenset(("support", "sales"))
OWN = IDS.new_interaction("support")


def posted(**changes: Any) -> dict[str, Any]:
    return {"event_id": "e1", "interaction_id": OWN, "kind": "thumb", "value": "up"} | changes


def read(value: object, allowed: tuple[str, ...] = ("support",)) -> tuple[Feedback, ...]:
    return read_feedback(json.dumps(value).encode(), allowed, ALL, IDS, NOW)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("thumb", ["up", "down", None], ["UP", 1, True, "", []]),
        ("rating", [1, 5, 3.5, None], [0, 6, "5", True, 1e999, 10**400, -(10**400)]),
        ("edit", ["text", "", None], [1, {}, ["x"]]),
        ("regenerate", ["01a", True, None], [False, "", 1]),
        ("choice", [{"over": "01a"}, None], ["01a", {}, {"over": ""}, {"over": "x", "y": 1}, {"over": 1}]),
        ("abort", [True, None], [False, "true", 1]),
        ("outcome", ["passed", "failed", None], ["ok", True]),
        ("comment", ["fine", None], [1, "x" * (MAX_COMMENT + 1)]),
    ],
)
def test_each_kind_takes_its_values_and_null(kind: str, good: list[object], bad: list[object]) -> None:
    for value in good:
        (event,) = read(posted(kind=kind, value=value))
        assert (event.kind, event.value) == (FeedbackKind(kind), value)
    for value in bad:
        with pytest.raises(Refused, match="value") as refused:
            read(posted(kind=kind, value=value))
        assert refused.value.status == 400


def test_the_envelope_is_ours() -> None:
    (event,) = read(posted(user_id="u1", occurred_at="2026-03-01T10:00:00+08:00", reason="late", choice_index=1))
    assert event.business == "support"
    assert event.user_key == IDS.user_key("support", "u1")
    assert (event.received_at, event.occurred_at) == (NOW, datetime(2026, 3, 1, 2, tzinfo=UTC))
    assert (event.reason, event.choice_index) == ("late", 1)
    for forged in ({"user_key": "x"}, {"received_at": "2026-03-01T10:00:00Z"}):
        with pytest.raises(Refused, match=next(iter(forged))):
            read(posted(**forged))


@pytest.mark.parametrize(
    "changes",
    [
        {"event_id": ""}, {"event_id": 5}, {"interaction_id": "x" * 201}, {"kind": "like"}, {"choice_index": -1},
        {"choice_index": "1"}, {"choice_index": True}, {"choice_index": 0.5}, {"choice_index": None},
        {"occurred_at": "2026-03-01 10:00:00"}, {"occurred_at": "2026-03-01T10:06:00Z"}, {"user_id": ""},
        {"occurred_at": "0001-01-01T00:00:00+14:00"}, {"occurred_at": 1767225600}, {"occurred_at": "1767225600"},
    ],
)  # fmt: skip
def test_impossible_fields_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=next(iter(changes))) as refused:
        read(posted(**changes))
    assert refused.value.status == 400


def test_nothing_of_a_list_with_a_mistake_is_taken_and_each_mistake_has_its_place() -> None:
    assert len(read([posted(), posted(event_id="e2")])) == 2
    with pytest.raises(Refused, match=r"\[1\] value.*\[2\] kind"):
        read([posted(), posted(value=5), {"event_id": "e", "interaction_id": "i", "value": 1}])
    for empty in ([], [posted()] * 1001):
        with pytest.raises(Refused, match="1 to 1000"):
            read(empty)


def test_an_event_id_twice_in_one_list_is_one_event_of_its_business() -> None:
    first, again, other = posted(), posted(value="down"), posted(interaction_id=IDS.new_interaction("sales"))
    events = read([first, again, other, first], ("sales", "support"))
    assert [(event.business, event.value) for event in events] == [("support", "up"), ("sales", "up")]
    with pytest.raises(Refused, match=r"\[1\] value"):
        read([first, posted(value="UP")])


def test_the_id_tells_the_business() -> None:
    (event,) = read(posted(interaction_id=IDS.new_interaction("sales")), ("sales", "support"))
    assert event.business == "sales"
    for allowed, business in ((("support",), None), (("support",), "sales"), (("sales", "support"), "support")):
        with pytest.raises(Refused) as refused:
            read(posted(interaction_id=IDS.new_interaction("sales"), business=business), allowed)
        assert refused.value.status == 403


def test_an_id_of_elsewhere_belongs_to_the_key_s_only_business() -> None:
    assert read(posted(interaction_id="import-7"))[0].business == "support"
    with pytest.raises(Refused, match="business"):
        read(posted(interaction_id="import-7"), ("sales", "support"))
    assert read(posted(interaction_id="import-7", business="sales"), ("sales", "support"))[0].business == "sales"


def test_half_a_surrogate_pair_is_mended() -> None:
    assert read(posted(kind="comment", value="x\udb8dy"))[0].value == "x\ufffdy"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from([*posted(), "user_id", "x"]), v, max_size=5),
)


@given(JSON | st.fixed_dictionaries({key: JSON | st.just(value) for key, value in posted().items()}))
def test_anything_else_is_refused_and_never_fails(value: object) -> None:
    try:
        events = read(value)
    except Refused:
        return
    assert all(Feedback.model_validate_json(event.model_dump_json()) == event for event in events)


@given(st.binary(max_size=100))
def test_bytes_are_refused_too(body: bytes) -> None:
    with pytest.raises(Refused):
        read_feedback(body, ("support",), ALL, IDS, NOW)
