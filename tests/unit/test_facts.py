"""A changed number, negation or name is another claim; another way to write the same is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clean.facts import facts, facts_hash

KEY = b"k"


def same(one: str, other: str) -> bool:
    return facts_hash([one], [], KEY) == facts_hash([other], [], KEY)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Refunds take 3 days.", "Refunds take 5 days."),
        ("Refunds take three days.", "Refunds take five days."),
        ("It costs 1.5 euros.", "It costs 15 euros."),
        ("It is -5 degrees.", "It is 5 degrees."),
        ("退款三天到账", "退款五天到账"),
        ("打三折", "打五折"),
        ("第一步", "第二步"),
        ("可以退货", "不可以退货"),
        ("已经发货", "还未发货"),
        ("有货", "没有货"),
        ("已發貨", "沒發貨"),
        ("支持无线充电", "支持有线充电"),
        ("请拨打", "请勿拨打"),
        ("请关闭电源", "请别关闭电源"),
        ("You can return it.", "You can not return it."),
        ("You can return it.", "You can't return it."),
        ("You can return it.", "You can’t return it."),
        ("It is with batteries.", "It is without batteries."),
        ("I asked Anna about it.", "I asked Bob about it."),
        ("go from 3 to 5", "go from 5 to 3"),
        ("我用的是iPhone", "我用的是Pixel"),
    ],
)
def test_another_claim(one: str, other: str) -> None:
    assert not same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It costs 1,000 euros.", "it costs 1000 euros"),
        ("１２３号", "123號"),
        ("能退吗", "能不能退"),  # a question either way
        ("有货吗", "有没有货"),
        ("您好，请问", "不好意思，请问"),
        ("没问题，马上", "好的，马上"),
        ("thank you", "Thank you"),
        ("Hello. Then it works.", "Hello. So it works."),
        ("I think I can", "i think i can"),
        ("非常感谢", "感谢"),
        ("是否到货", "到货"),
    ],
)
def test_the_same_claim(one: str, other: str) -> None:
    assert same(one, other)


def test_names_come_from_what_was_found_as_personal_data() -> None:
    text = ["我找张伟"]
    found = [facts_hash(text, values, KEY) for values in ([("PERSON", "张伟")], [("PERSON", "李娜")], [])]
    assert len(set(found)) == 3
    assert facts_hash(text, [("PERSON", "a"), ("PHONE", "1")], KEY) == facts_hash(
        text, [("PHONE", "1"), ("PERSON", "A")], KEY
    )


def test_where_a_fact_stands_counts() -> None:
    assert facts_hash(["3", ""], [], KEY) != facts_hash(["", "3"], [], KEY)


@given(st.text(), st.binary(max_size=80))
def test_any_text_has_facts_and_none_of_it_shows_in_the_hash(text: str, key: bytes) -> None:
    assert facts(text) == facts(text)
    made = facts_hash([text], [], key)
    assert len(made) == 32
    assert int(made, 16) >= 0


def test_another_key_gives_another_hash() -> None:
    assert facts_hash(["3"], [], b"one") != facts_hash(["3"], [], b"other")
