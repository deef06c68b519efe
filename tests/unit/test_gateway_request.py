"""What a request asks and what is dispatched for it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.gateway.errors import Refused
from pipeline.gateway.request import conversation_start, copy_body, dispatch_body, engine_fields, read_request

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip
OURS = ("model", "cache_salt", "stream_options", "user", "stream")
FIELDS = engine_fields("m", "s")


@given(st.dictionaries(st.text().filter(lambda key: key not in OURS), JSON, max_size=5), st.booleans())
def test_every_other_field_passes_untouched(fields: dict[str, Any], stream: bool) -> None:
    body = json.dumps(fields | {"model": "support", "stream": stream, "cache_salt": "theirs"}).encode()
    sent = json.loads(dispatch_body(read_request(body), engine_fields("support-v2-abcdef01", "ours")))
    assert sent.pop("model") == "support-v2-abcdef01"
    assert sent.pop("cache_salt") == "ours"
    assert sent.pop("stream_options", None) == ({"include_usage": True} if stream else None)
    assert sent.pop("stream") is stream
    assert sent == fields


def test_values_keep_their_very_bytes() -> None:
    body = b'{"temperature": 0.10, "messages": [ {"role":"user", "content":"\\u4f60"} ], "seed": 12345678901234567890}'
    sent = dispatch_body(read_request(body), FIELDS)
    for value in (b"0.10", b'[ {"role":"user", "content":"\\u4f60"} ]', b"12345678901234567890"):
        assert value in sent


def test_of_a_repeated_model_only_ours_is_dispatched() -> None:
    sent = dispatch_body(
        read_request(b'{"model":"a","model":"sales-v1-00000000","cache_salt":"x"}'), engine_fields("mine", "salt")
    )
    assert sent.count(b"model") == 1
    assert json.loads(sent) == {"model": "mine", "cache_salt": "salt"}


@pytest.mark.parametrize(
    ("options", "sent", "hidden"),
    [
        ("null", {"include_usage": True}, True),
        ("{}", {"include_usage": True}, True),
        ('{"include_usage": false, "x": 1}', {"include_usage": True, "x": 1}, True),
        ('{"include_usage": true}', {"include_usage": True}, False),
        ('"odd"', "odd", False),
    ],
)
def test_usage_is_asked_for_and_hidden_only_where_the_client_did_not(options: str, sent: object, hidden: bool) -> None:
    asked = read_request(f'{{"stream": true, "stream_options": {options}}}'.encode())
    assert asked.hide_usage is hidden
    assert json.loads(dispatch_body(asked, FIELDS))["stream_options"] == sent


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b'"x"', b"{", b'{"a":NaN}', b'{"a":1}x', b'\xff\xfe{"a":1}', b'{"a":"\xff"}',
        b'{"model":5}',
        b'{"user":["x"]}', b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a":"\\ud83d","b":NaN}',
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_request(body)
    assert refused.value.status == 400
    assert "\n" not in refused.value.message


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    sent = dispatch_body(read_request(b'{"messages":[{"content":"x\\ud83d \\ud83c\\udf78"}]}'), FIELDS)
    assert json.loads(sent)["messages"][0]["content"] == "x\ufffd 🍸"


def test_a_conversation_is_known_by_its_system_prompt_and_first_user_message() -> None:
    first = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    later = [*first, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "more"}]
    starts = {
        conversation_start(read_request(json.dumps({"messages": messages}).encode())) for messages in (first, later)
    }
    assert starts == {('"be kind"', '"hi"')}
    other = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert conversation_start(read_request(json.dumps({"messages": other}).encode())) not in starts


@given(JSON)
def test_a_conversation_start_never_fails(messages: object) -> None:
    conversation_start(read_request(json.dumps({"messages": messages}).encode()))


LIMITS = st.none() | st.integers(-5, 2000) | st.text(max_size=3) | st.floats(allow_nan=False, allow_infinity=False)


@given(LIMITS, LIMITS, st.integers(1, 1000), st.booleans())
def test_a_copy_never_asks_for_more_than_it_may_take_nor_than_the_client_did(
    newer: object, older: object, most: int, chat: bool
) -> None:
    body = {"messages": [], "stream": True, "user": "u", "min_tokens": 5}
    body |= {"max_completion_tokens": newer, "max_tokens": older}
    copied, limit = copy_body(read_request(json.dumps(body).encode()).fields, FIELDS, most, chat=chat)
    assert json.loads(copied) == {"messages": [], "max_tokens": limit, "model": "m", "cache_salt": "s"}
    assert 1 <= limit <= most
    asked = [count for count in (newer, older) if type(count) is int and count > 0]
    assert limit <= (asked[0] if asked else limit)
    if not asked and not chat:
        assert limit == min(16, most)
