"""Numbers over the borders of messages are found; everything else stays as it was sent."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.pii import PatternDetector
from pipeline.clean.pii.borders import join_split_numbers
from pipeline.clean.steps import clean_records
from tests.builders import a_rated, a_signal, an_interaction


def users(*texts: str) -> tuple[dict[str, Any], ...]:
    return tuple({"role": "user", "content": text} for text in texts)


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (("电话是139", "12345678"), ("电话是13912345678", "")),
        (("139", "1234", "5678，谢谢"), ("13912345678", "", "，谢谢")),
        (("身份证110101", "19900307707X"), ("身份证11010119900307707X", "")),
        (("卡号6222", "0212", "3456", "7891", "233"), ("卡号6222021234567891233", "", "", "", "")),
        (("１３９", "１２３４５６７８"), ("１３９１２３４５６７８", "")),
        (("订单77", "88 件"), None),
        (("13912345678", "13800138000"), None),
        (("我要 2", "3 个"), None),
    ],
)
def test_numbers_over_borders(texts: tuple[str, ...], joined: tuple[str, ...] | None) -> None:
    assert join_split_numbers(users(*texts)) == users(*(joined or texts))


def test_what_the_assistant_says_between_is_a_border() -> None:
    messages = (*users("电话是139"), {"role": "assistant", "content": "嗯"}, *users("12345678"))
    assert join_split_numbers(messages) == messages


def test_a_dictated_number_is_in_no_record() -> None:
    interaction = an_interaction(request={"messages": list(users("电话是139", "12345678", "对吗"))})
    (record,), _ = clean_records([a_rated(interaction, a_signal())], PatternDetector(), frozenset())
    assert [message["content"] for message in record.messages] == ["电话是<PHONE_1>", "", "对吗"]


contents = st.text("0139 -x电", max_size=12) | st.sampled_from(["139", "12345678", "4111", "1111"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), contents), max_size=6))
def test_no_sign_is_lost_and_twice_is_once(turns: list[tuple[str, str]]) -> None:
    messages = tuple({"role": role, "content": content} for role, content in turns)
    once = join_split_numbers(messages)
    assert [message["role"] for message in once] == [role for role, _ in turns]
    assert _signs(once) == _signs(messages)
    assert join_split_numbers(once) == once


def _signs(messages: tuple[dict[str, Any], ...]) -> str:
    return re.sub(r"\s", "", "".join(message["content"] for message in messages))
