"""One contract for the real detectors and the honest fake."""

import json
import socket
from pathlib import Path
from typing import Literal

import pytest

from pipeline.clean.pii import PatternDetector, PiiDetector, Rules, make_detector
from pipeline.clean.pii.checks import chinese_id_digit
from pipeline.clean.pii_config import PiiConfig


@pytest.fixture(scope="module", params=["patterns", "en", "zh"])
def detector(request: pytest.FixtureRequest) -> PiiDetector:
    if request.param == "patterns":
        return PatternDetector()
    return make_detector(request.param)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a detector must not use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def removed(detector: PiiDetector, text: str) -> str:
    for span in reversed(detector([text])[0]):
        text = f"{text[: span.start]}<{span.entity}>{text[span.end :]}"
    return text


ID = "11010119900307123" + chinese_id_digit("11010119900307123")


@pytest.mark.parametrize("value", ["zhang.san@example.com", "13912345678", "+1 415 555 0100", "4111111111111111", ID])
@pytest.mark.parametrize("frame", ["{}", "请联系{}谢谢", "Please use {}, thanks.", "x{}好", "{}\n{}"])
def test_structured_data_is_found_in_any_surroundings(detector: PiiDetector, value: str, frame: str) -> None:
    assert value not in removed(detector, frame.format(value, value))


def test_glued_to_chinese(detector: PiiDetector, shared: Path) -> None:
    for line in (shared / "data/cases/pii/D-22_glued_zh.jsonl").read_text().splitlines():
        case = json.loads(line)
        left = removed(detector, case["text"])
        assert not [value for value in case["must_remove"] if value in left], left


def test_what_only_looks_like_it_stays(detector: PiiDetector, shared: Path) -> None:
    for line in (shared / "data/cases/pii/D-23_false_positives.jsonl").read_text().splitlines():
        case = json.loads(line)
        left = removed(detector, case["text"])
        assert all(value in left for value in case["must_keep"]), left


def test_a_batch_gives_what_each_text_gives(detector: PiiDetector) -> None:
    texts = ["", " ", "Call Ann Smith at 13912345678.", "联系人张三，住在上海。", "\u200b\ufeff", "a" * 30_000 + " x"]
    assert detector(texts) == [detector([text])[0] for text in texts]
    assert detector([]) == []


def test_spans_are_ordered_and_inside(detector: PiiDetector) -> None:
    text = "张三 and Ann Smith, 13912345678@qq.com, 北京市朝阳区建国路88号, １３９１２３４５６７８ " * 40
    at = 0
    for span in detector([text])[0]:
        assert at <= span.start < span.end <= len(text)
        at = span.end
    assert at


def test_placeholders_stay(detector: PiiDetector) -> None:
    text = "<PERSON_1> wrote to <EMAIL_2> about <PHONE_3>."
    assert removed(detector, text) == text


OWN = PiiConfig(
    allow=("0571-88886666", "service@harbour.example", "海港酒店", "Harbour Hotel"),
    allow_patterns=("13800[0-9]{6}",),
    recognisers=({"name": "member-card", "pattern": "VIP[0-9]{8}", "entity": "MEMBER_ID"},),  # type: ignore[arg-type]
    thresholds={"PERSON": 0.9, "LOCATION": 0.9},
)


@pytest.fixture(scope="module", params=["patterns", "en", "zh"])
def ruled(request: pytest.FixtureRequest) -> PiiDetector:
    """A detector with the rules of a business."""
    language: Literal["en", "zh"] = "en" if request.param == "en" else "zh"
    rules = Rules(OWN, "zh")
    return PatternDetector(rules) if request.param == "patterns" else make_detector(language, rules)


@pytest.mark.parametrize(
    "value",
    [
        "0571-88886666",
        "(0571) 8888 6666",
        "+86 571 88886666",
        "０５７１－８８８８６６６６",
        "service@harbour.example",
        "海港酒店",
        "Harbour Hotel",
        "13800123456",
    ],
)
@pytest.mark.parametrize("frame", ["{}", "请联系{}谢谢", "Please use {}, thanks.", "电话：{}\n13912345678"])
def test_what_is_the_business_s_own_stays_and_nothing_else(ruled: PiiDetector, value: str, frame: str) -> None:
    left = removed(ruled, frame.format(value))
    assert value in left
    assert "13912345678" not in left


@pytest.mark.parametrize("value", ["VIP12345678", "ＶＩＰ12345678", "xservice@harbour.example", "0571-88886667", ID])
def test_what_is_not_on_the_list_still_goes(ruled: PiiDetector, value: str) -> None:
    assert value not in removed(ruled, f"请联系{value}谢谢, or 0571-88886666")


def test_a_threshold_above_the_model_s_score_leaves_names_alone(ruled: PiiDetector) -> None:
    text = "My friend Emily Johnson lives in London. 张伟住在上海。"
    assert removed(ruled, text) == text


def test_what_is_found_says_by_which_rule_and_how_surely(detector: PiiDetector) -> None:
    (phone,) = [span for span in detector(["Please call 13912345678."])[0] if span.entity == "PHONE"]
    assert phone.rule
    assert 0.4 <= phone.score <= 1
