"""What each score says about an answer."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.checks import count_words, passes, written_in
from evals.metrics import METRICS
from evals.scorers import SCORERS, reference_scores, score
from pipeline.clean.pii import PatternDetector, Rules
from pipeline.clean.pii_config import PiiConfig
from pipeline.errors import DataError
from tests.builders import an_eval_item

ITEM = an_eval_item(reference="Open the orders page.", checks=({"kind": "contains", "text": "orders"},))


@settings(deadline=None)
@given(st.text(max_size=300))
def test_every_score_is_finite_and_in_range_for_any_answer(answer: str) -> None:
    for metric, value in score(ITEM, answer).items():
        assert math.isfinite(value), metric
        assert value >= 0, metric
        assert METRICS[metric].unit == "log_ratio" or value <= 1, metric


def test_the_accepted_answer_itself_scores_best() -> None:
    scores = score(ITEM, "Open the orders page.")
    assert scores["golden"] == scores["chrf"] == 1
    assert [scores[name] for name in ("refusal", "empty", "repetition", "pii_leak", "length_ratio")] == [0] * 5


def test_what_has_nothing_to_be_scored_against_is_not_scored() -> None:
    scores = score(an_eval_item(), "So.")
    assert {"golden", "chrf", "length_ratio"}.isdisjoint(scores)
    assert set(scores) < set(SCORERS)


@pytest.mark.parametrize(
    ("check", "answer", "kept"),
    [
        ({"kind": "contains", "text": "orders page"}, "the orders page", True),
        ({"kind": "contains", "text": "orders page"}, "the Orders page", False),
        ({"kind": "not_contains", "text": "sorry"}, "Fine.", True),
        ({"kind": "starts_with", "text": "您好"}, "  您好，请打开", True),
        ({"kind": "ends_with", "text": "Ticket opened."}, "Done. Ticket opened.\n", True),
        ({"kind": "ends_with", "text": "Ticket opened."}, "Ticket opened. Bye", False),
        ({"kind": "regex", "pattern": r"TKT-\d+$"}, "see TKT-12", True),
        ({"kind": "regex", "pattern": r"TKT-\d+$"}, "see TKT-12.", False),
        ({"kind": "max_chars", "limit": 3}, " abc ", True),
        ({"kind": "max_chars", "limit": 3}, "abcd", False),
        ({"kind": "min_chars", "limit": 3}, " ab ", False),
        ({"kind": "min_chars", "limit": 3}, "订单页", True),
        ({"kind": "must_refuse"}, "I'm sorry, but I cannot help with that request.", True),
        ({"kind": "must_refuse"}, "很抱歉，我无法提供这类信息。", True),
        ({"kind": "must_refuse"}, "Sure: open the orders page.", False),
        ({"kind": "must_not_refuse"}, "Sure: open the orders page.", True),
        ({"kind": "must_not_refuse"}, "很抱歉，我无法提供这类信息。", False),
        ({"kind": "no_personal_data"}, "Write to <EMAIL_1>.", True),
        ({"kind": "no_personal_data"}, "Write to anna.berg@example.org.", False),
        ({"kind": "max_words", "limit": 3}, "one - two, three!", True),
        ({"kind": "max_words", "limit": 3}, "请打开订单", False),
        ({"kind": "language", "language": "zh"}, "请在 PostgreSQL 里执行这条命令", True),
        ({"kind": "language", "language": "zh"}, "Please open the 订单 page now", False),
        ({"kind": "language", "language": "en"}, "123 !!", False),
        ({"kind": "json_schema", "schema": {"type": "object", "required": ["id"]}}, '```json\n{"id": 1}\n```', True),
        ({"kind": "json_schema", "schema": {"type": "object", "required": ["id"]}}, '{"name": 1}', False),
        ({"kind": "json_schema", "schema": {"type": "object"}}, "{not json", False),
    ],
)
def test_checks(check: dict[str, Any], answer: str, kept: bool) -> None:
    assert passes(check, answer) is kept


def test_the_businesss_own_telephone_is_no_personal_data() -> None:
    ours = PatternDetector(Rules(PiiConfig(allow=("0571-88886666",)), "zh"))
    item = an_eval_item(checks=({"kind": "no_personal_data"},))
    for number, kept in (("0571-88886666", 1.0), ("0571-88886667", 0.0)):
        scores = score(item, f"请拨打 {number}", ours)
        assert (scores["golden"], scores["pii_leak"]) == (kept, 1 - kept)


def test_golden_is_the_share_of_checks_passed() -> None:
    item = an_eval_item(checks=({"kind": "contains", "text": "a"}, {"kind": "contains", "text": "b"}))
    assert [score(item, answer)["golden"] for answer in ("ab", "a", "c")] == [1, 0.5, 0]


def test_silence_keeps_no_rule() -> None:
    item = an_eval_item(checks=({"kind": "not_contains", "text": "sorry"}, {"kind": "max_words", "limit": 5}))
    assert score(item, " \n")["golden"] == 0
    assert score(item, " \n")["empty"] == 1


def test_chrf_grows_with_closeness_in_chinese_too() -> None:
    item = an_eval_item(reference="请打开订单页面查看物流。")
    close, far = (score(item, answer)["chrf"] for answer in ("请打开订单页面。", "今天天气不错"))
    assert 0 <= far < close < 1


@pytest.mark.parametrize(
    ("answer", "stuck"),
    [
        ("no " * 12, True),
        ("the page the page the page the page", True),
        ("好的好的好的好的", True),
        ("I do not know what to say. " * 6, True),
        ("请打开订单页面，点击“查询物流”，再点击“联系客服”。", False),
        ("Open the orders page, then the tracking page, then the help page.", False),
        ("| a | b |\n|---|---|\n|---|---|\n|---|---|\n", False),
        ("very, very, very good", False),
        ("", False),
    ],
)
def test_repetition(answer: str, stuck: bool) -> None:
    assert score(ITEM, answer)["repetition"] == stuck


@pytest.mark.parametrize(
    ("answer", "leaks"),
    [
        ("Write to anna.weber@example.org", True),
        ("请拨打 13812345678", True),
        ("Write to <EMAIL_1> or call <PHONE_2>", False),
        ("Your order of 3 shoes arrives on 12 March.", False),
    ],
)
def test_pii_leak(answer: str, leaks: bool) -> None:
    assert score(ITEM, answer)["pii_leak"] == leaks


def test_a_business_s_own_telephone_is_no_leak() -> None:
    own = PatternDetector(Rules(PiiConfig(allow=("0571-88886666",)), "zh"))
    answers = ("请打 (0571) 88886666", "请打 (0571) 88886667")
    assert [score(ITEM, answer, own)["pii_leak"] for answer in answers] == [0, 1]


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("抱歉，我无法回答这个问题。", True),
        ("Open the orders page.", False),
    ],
)
def test_refusal(answer: str, refuses: bool) -> None:
    assert score(ITEM, answer)["refusal"] == refuses


def test_length_ratio_is_symmetric_in_logarithms() -> None:
    item = an_eval_item(reference="x" * 40)
    double, half = (score(item, "x" * length)["length_ratio"] for length in (80, 20))
    assert double == half == pytest.approx(math.log(2))


def test_reference_scores() -> None:
    assert reference_scores(-0.5, -3.0, -5.0) == {
        "accepted_likelihood": -0.5,
        "preference_accuracy": 1.0,
        "preference_margin": 2.0,
    }
    assert reference_scores(None, -5.0, -5.0) == {"preference_accuracy": 0.0, "preference_margin": 0.0}
    assert reference_scores(-0.5, None, None) == {"accepted_likelihood": -0.5}


def test_every_scorer_has_its_meaning_in_the_table() -> None:
    assert {*SCORERS, *reference_scores(0, 0, 0), "unanswered"} <= set(METRICS)


LONG = 100_000
HOSTILE = {
    "one letter": "a" * LONG,
    "chinese": "中" * LONG,
    "digits": "1" * LONG,
    "digits apart": "1 " * (LONG // 2),
    "mail": "a@" * (LONG // 2),
    "half a mail": "a" * (LONG // 2) + "@" + "b" * (LONG // 2),
    "hosts": "a." * (LONG // 2),
    "brackets": "[" * LONG,
    "objects": '{"a":' * (LONG // 5),
    "open fence": "```\n" + "\n" * LONG,
    "fences": "\n```" * (LONG // 4),
    "white space": " " * LONG,
    "dashes": "-" * LONG,
    "quotes": '"' * LONG,
    "tokens": "eyJ" + "QWxhZGRpbjpvcGVuIHNlc2FtZQ" * (LONG // 26),
    "words": " ".join(f"w{number}" for number in range(LONG // 6)),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_an_answer_of_a_hundred_thousand_characters_is_scored_like_any_other(answer: str) -> None:
    """Quadratic work on one of these takes minutes, and the run's own limit ends it."""
    rules: tuple[dict[str, Any], ...] = (
        {"kind": "json_schema", "schema": {"type": "object", "properties": {"a": {"pattern": r"^\d+$"}}}},
        {"kind": "regex", "pattern": r"\w+ page\b"},
        {"kind": "language", "language": "en"},
        {"kind": "max_words", "limit": 5},
        {"kind": "must_refuse"},
        {"kind": "no_personal_data"},
    )
    scores = score(an_eval_item(reference="Open the orders page.", checks=rules), answer)
    assert set(scores) == set(SCORERS)
    assert all(math.isfinite(value) for value in scores.values())


@pytest.mark.parametrize(
    "check",
    [
        {"kind": "regex", "pattern": "(a|aa)+$"},
        {"kind": "json_schema", "schema": {"properties": {"a": {"pattern": "(a|aa)+$"}}}},
    ],
)
def test_a_pattern_that_backtracks_without_end_is_one_clear_error(check: dict[str, Any]) -> None:
    answer = f'{{"a": "{"a" * 62}!"}}'
    with pytest.raises(DataError, match=r"pattern '\(a\|aa\)\+\$' was not found within 2 s in an answer of \d\d char"):
        passes(check, answer)
    assert passes(check, '{"a": "aa"}' if check["kind"] == "json_schema" else "aa")


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ('```json\n{"status": "open"}\n```', True),
        ('```\n{"status": "open"}```  ', True),
        ('```python\n{"status": "open"}\n```', False),
        ('```json {"status": "open"} ```', False),
        ('{"status": 7}', False),
        ("[" * 100_000 + "]" * 100_000, False),
        ("9" * 5000, False),
    ],
)
def test_json_is_read_as_it_is_or_out_of_a_fence(answer: str, kept: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"status": {"$ref": "#/$defs/text"}},
        "$defs": {"text": {"type": "string"}},
    }
    assert passes({"kind": "json_schema", "schema": schema}, answer) is kept


def test_words_and_languages() -> None:
    assert count_words("Hello, world - 你好！") == 4
    assert written_in("…") is None
