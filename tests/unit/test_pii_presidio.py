"""Presidio's recognisers are asked only about texts that may hold something, and nothing is lost by it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.pii.presidio import PresidioNumbers, may_hold_a_number

ENGLISH, CHINESE = PresidioNumbers("en", 0.4), PresidioNumbers("zh", 0.4)
FOUND = [
    "+44 20 7946 0958",
    "020 7946 0958",
    "0912 345 678",
    "+852 5138 1234",
    "(0431) 8765 4321",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
    "my passport is 912803456",
    "driver's license H12345678",
    "social security 212 09 9999",
    "ITIN 912-78-1234",
]
bits = st.sampled_from([*FOUND, "driver license", "passport", "call", "2025-07-20", "16:00", "SSN"])
soups = st.lists(bits | st.text("0123456789 -().+x/aZ\n", max_size=14), max_size=5).flatmap(
    lambda parts: st.sampled_from([" ", "\n", "。\n"]).map(lambda between: between.join(parts))
)


@pytest.mark.parametrize("text", FOUND)
def test_it_finds_these(text: str) -> None:
    assert ENGLISH(text) or CHINESE(text)


@pytest.mark.parametrize("text", ["", "How are you?", "单号1234567", "for 100-150 yuan", "in 2025"])
def test_it_is_not_asked_about_these(text: str) -> None:
    assert not may_hold_a_number(text, "en")
    assert not may_hold_a_number(text, "zh")


@pytest.mark.parametrize("text", ["订单123456789012今天发货", "手机13912345678", "driver license"])
def test_it_is_asked_about_american_papers_in_english_only(text: str) -> None:
    assert may_hold_a_number(text, "en")
    assert not may_hold_a_number(text, "zh")


@settings(max_examples=150, deadline=None)
@given(soups)
def test_no_text_that_holds_something_is_passed_over(text: str) -> None:
    if ENGLISH.look(text):
        assert may_hold_a_number(text, "en")
    assert CHINESE(text) == CHINESE.look(text)
