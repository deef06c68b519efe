"""One contract for the real detectors and the honest fake."""

import json
import socket
from pathlib import Path

import pytest

from pipeline.clean.pii import PatternDetector, PiiDetector, make_detector
from pipeline.clean.pii.checks import chinese_id_digit


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
