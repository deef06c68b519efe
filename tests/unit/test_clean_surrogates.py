"""Surrogates have the form of what they stand for, are nobody's, and are never taken for personal data again."""

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.scorers import pii_leak
from pipeline.clean.pii import PatternDetector, Rules, Texts, find_all, scrub_conversation
from pipeline.clean.pii.checks import chinese_id_digit, luhn
from pipeline.clean.pii.placeholders import Scrubbed
from pipeline.clean.pii.surrogates import surrogate, surrogates_in
from pipeline.clean.pii_config import PiiConfig
from tests.builders import an_eval_item

RULES = Rules(PiiConfig(placeholders="surrogates"), "zh")
detector = PatternDetector(RULES)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def scrub(*turns: Texts) -> list[Scrubbed]:
    results = scrub_conversation(turns, find_all(turns, detector, frozenset()), frozenset(), RULES)
    assert all(isinstance(result, Scrubbed) for result in results), results
    return [result for result in results if isinstance(result, Scrubbed)]


def scrubbed(text: str) -> str:
    (result,) = scrub(Texts((user(text),), (), user(""), ()))
    return str(result.texts.messages[0]["content"])


@pytest.mark.parametrize(
    ("entity", "value", "form"),
    [
        ("PHONE", "13912345678", r"154\d{8}"),
        ("PHONE", "+86 139-1234-5678", r"\+86 154-\d{4}-\d{4}"),
        ("PHONE", "一三八〇〇一三八〇〇〇", r"154\d{8}"),
        ("PHONE", "(415) 555-0100 ext 12", r"\(29\d\) \d{3}-\d{4} ext 11"),
        ("PHONE", "415-555-0100", r"29\d-\d{3}-\d{4}"),
        ("PHONE", "+1 415 555 0100", r"\+1 29\d \d{3} \d{4}"),
        ("ID_CARD", "440305 19900307 2311", r"99\d{4} 1970\d{4} \d{3}[\dX]"),
        ("ID_CARD", "110108670101123", r"99\d{4}70\d{7}"),
        ("CARD", "6222 0212 3456 7890 128", r"9999 \d{4} \d{4} \d{4} \d{3}"),
        ("SSN", "123-45-6789", r"9\d\d-1\d-\d{4}"),
        ("EMAIL", "zhang.san@mail.cn", r"user\d{6}@example\.com"),
        ("IP", "114.25.36.201", r"203\.0\.113\.\d+"),
        ("MAC", "00-1b-63-84-45-e6", r"00-00-5e-00-53-[0-9a-f]{2}"),
    ],
)
def test_forms(entity: str, value: str, form: str) -> None:
    made = [surrogate(entity, value, number) for number in range(1, 100)]
    assert len(set(made)) == 99
    assert all(one and re.fullmatch(form, one) for one in made), made[:3]
    assert surrogate(entity, value, 100) is None
    if entity == "CARD":
        assert all(one and luhn(one) for one in made)
    if entity == "ID_CARD" and len(value) > 15:
        plain = [str(one).replace(" ", "") for one in made]
        assert all(one[17] == chinese_id_digit(one[:17]) for one in plain)


@pytest.mark.parametrize("entity", ["PERSON", "ADDRESS", "SECRET", "PLATE", "WECHAT"])
def test_kinds_without_a_range_keep_their_labels(entity: str) -> None:
    assert surrogate(entity, "x", 1) is None
    assert scrubbed("密码是hunter2!x，车牌京A12345") == "密码是<SECRET_1>，车牌<PLATE_1>"


def test_one_value_has_one_surrogate_in_its_own_spelling_through_a_conversation() -> None:
    first = Texts((user("我是13912345678"),), (), user("记下了 139-1234-5678"), ("+86 139 1234 5678",))
    second = Texts((user("再打 13912345678 或 13800138000"),), (), user("１３９１２３４５６７８"), ())
    one, two = scrub(first, second)
    number = str(one.texts.messages[0]["content"]).removeprefix("我是")
    spelled = f"{number[:3]}-{number[3:7]}-{number[7:]}"
    assert one.texts.answer["content"] == f"记下了 {spelled}"
    assert one.texts.notes == (f"+86 {spelled.replace('-', ' ')}",)
    assert str(two.texts.messages[0]["content"]).startswith(f"再打 {number} 或 154")
    assert two.texts.answer["content"] == number
    assert (one.counts, two.counts) == ({"PHONE": 1}, {"PHONE": 2})


def test_structures_and_types_stay() -> None:
    source = '{"phone": 13912345678, "card": "4111 1111 1111 1111", "page": 1}'
    made = json.loads(scrubbed(source))
    assert [type(value) for value in made.values()] == [int, str, int]
    assert luhn(made["card"])
    url = urlsplit(scrubbed("https://shop.example.com/o?phone=13912345678&mail=a%40b.com&id=7"))
    assert [len(values) for values in parse_qs(url.query).values()] == [1, 1, 1]
    assert parse_qs(url.query)["mail"][0].endswith("@example.com")
    code = scrubbed("```python\ncall(13912345678, '13912345678')\n```")
    compile(code.removeprefix("```python\n").removesuffix("\n```"), "code", "exec")
    assert "call(154" in code


VALUES = ["13912345678", "+44 20 7946 0958", "(415) 555-0100", "010-62345678", "4111111111111111", "a@b.com", "8.8.4.4"]
VALUES += ["11010519491231002X", "身份证110108670101123", "GB82 WEST 1234 5698 7654 32", "SSN 123-45-6789", "卡号 4111"]
soups = st.lists(st.sampled_from([*VALUES, "说", " ", "\n", "，", "电话", "x"]), max_size=8).map("".join)
glued = st.lists(st.sampled_from(VALUES) | st.text("0123456789", max_size=3), max_size=8).map("".join)


@settings(max_examples=150, deadline=None)
@given(soups | glued)
def test_what_is_left_is_no_leak_and_is_left_alone_the_second_time(text: str) -> None:
    once = scrubbed("说" + text)
    assert detector([once]) == [[]]
    assert scrubbed(once) == once


def test_a_conversation_in_which_surrogates_would_read_as_other_numbers_gets_labels() -> None:
    whole = Texts((user("我是13912345678"),), (), user("好"), ())
    glue = Texts((user("4111111111111111 18.8.4.4x电话13912345678"),), (), user("好"), ())
    first, second = scrub(whole, glue)
    assert first.texts.messages[0]["content"] == "我是<PHONE_1>"
    assert second.texts.messages[0]["content"] == "<CARD_1> <IP_1>x电话<PHONE_1>"
    (alone,) = scrub(whole)
    assert re.fullmatch(r"我是154\d{8}", str(alone.texts.messages[0]["content"]))


def test_the_gate_counts_no_surrogate_as_a_leak_but_every_other_number() -> None:
    answer = scrubbed("请打13912345678，或发邮件到a@b.com，卡号4111111111111111")
    item = an_eval_item()
    assert pii_leak(item, answer, detector) == 0
    assert pii_leak(item, answer + " 13800138000", detector) == 1
    assert PatternDetector()([answer])[
        0
    ]  # a business that did not ask for them: whose number begins with 154 is unknown


@given(st.text(max_size=60))
def test_ranges_are_told_in_any_text(text: str) -> None:
    assert all(0 <= start < end <= len(text) for start, end in surrogates_in(text))
