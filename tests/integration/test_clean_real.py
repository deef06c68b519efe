"""The real detectors on public data: what they find, as a share, with floors just under what was measured."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from pipeline.clean.dedup import drop_duplicates
from pipeline.clean.pii import PiiDetector, Span, make_detector
from pipeline.clean.steps import clean_records
from tests.builders import a_rated, a_signal, an_interaction

OVERLAP_FLOORS = {  # measured: 1.0 up to IBAN_CODE, then 0.88, 0.67, 0.51, 0.43
    "EMAIL_ADDRESS": 1.0,
    "IP_ADDRESS": 1.0,
    "US_SSN": 1.0,
    "CREDIT_CARD": 1.0,
    "IBAN_CODE": 1.0,
    "PHONE_NUMBER": 0.82,
    "PERSON": 0.65,
    "GPE": 0.49,
    "STREET_ADDRESS": 0.40,
}


@pytest.fixture(scope="module")
def english() -> PiiDetector:
    return make_detector("en")


@pytest.fixture(scope="module")
def chinese() -> PiiDetector:
    return make_detector("zh")


def covered(text: str, spans: list[Span]) -> str:
    for span in reversed(spans):
        text = text[: span.start] + "\0" * (span.end - span.start) + text[span.end :]
    return text


def test_recall_on_english_sentences(english: PiiDetector, shared: Path) -> None:
    rows = json.loads((shared / "data/pii/presidio_synth_v2_dev.json").read_text())
    found = english([row["full_text"] for row in rows])
    hits: Counter[str] = Counter()
    total: Counter[str] = Counter()
    wrong = every = 0
    for row, spans in zip(rows, found, strict=True):
        gold = [(g["start_position"], g["end_position"], g["entity_type"]) for g in row["spans"]]
        for start, end, entity in gold:
            total[entity] += 1
            hits[entity] += any(s.start < end and start < s.end for s in spans)
        every += len(spans)
        wrong += sum(not any(s.start < end and start < s.end for start, end, _ in gold) for s in spans)
    recall = {entity: round(hits[entity] / total[entity], 3) for entity in OVERLAP_FLOORS}
    short = {entity: share for entity, share in recall.items() if share < OVERLAP_FLOORS[entity]}
    assert not short, recall
    assert wrong / every < 0.06  # measured: 0.03


NOT_PERSONAL = {"12345678901", "ORDER12345678901234"}


def test_recall_on_chinese_unit_texts(chinese: PiiDetector, shared: Path) -> None:
    lines = (shared / "data/pii/cn_pii_unit_texts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    texts = [row["text"] for row in rows if re.search("recognize|pipeline|anonymize|context", row["test"])]
    left = [covered(text, spans) for text, spans in zip(texts, chinese(texts), strict=True)]
    runs = [(run, rest) for text, rest in zip(texts, left, strict=True) for run in re.findall(r"[\w.@+]+", text, re.A)]
    gold = [(run, rest) for run, rest in runs if len(run) >= 9 and run not in NOT_PERSONAL]
    assert len(gold) == 39
    missed = [run for run, rest in gold if run in rest]
    assert not missed, missed
    assert not any("张三" in rest for rest in left)


def test_planted_names_in_chinese_and_english(chinese: PiiDetector, english: PiiDetector) -> None:
    zh = ["我叫李秀兰，想改收货人", "请转告陈建国先生，包裹到了。", "王小明和张伟都住在上海。"]
    assert [covered(t, s).count("\0") for t, s in zip(zh, chinese(zh), strict=True)] == [3, 3, 7]
    en = ["My name is Margaret Whitfield and I moved.", "Please tell Peter Lindqvist that it came."]
    left = [covered(text, spans) for text, spans in zip(en, english(en), strict=True)]
    assert "Whitfield" not in left[0]
    assert "Lindqvist" not in left[1]


def test_medical_answers_stay_readable_and_apart(chinese: PiiDetector, shared: Path) -> None:
    rows = json.loads((shared / "data/medical/huatuo_first600.json").read_text())
    rated = [
        a_rated(
            an_interaction(f"i{at:03}", prompt=row["instruction"], answer=row["output"], session=f"s{at}"), a_signal()
        )
        for at, row in enumerate(rows)
    ]
    records, dropped = clean_records(rated, chinese, frozenset())
    assert len(records) + len(dropped) == len(rows)
    assert len(records) >= 590
    replaced: Counter[str] = Counter()
    for record in records:
        replaced.update(record.pii_counts)
    assert set(replaced) <= {"PERSON", "LOCATION"}  # there is nothing structured in these texts
    assert replaced["LOCATION"] < 30  # measured: 14
    unique, _ = drop_duplicates(records, 0.8)
    assert len(unique) >= 0.98 * len(records)


def test_a_conversation_with_tools(chinese: PiiDetector, shared: Path) -> None:
    messages = json.loads((shared / "data/cases/pii/D-24_toolcall_json.json").read_text())["messages"]
    choice = {"index": 0, "message": messages[3], "finish_reason": "stop"}
    interaction = an_interaction(request={"messages": messages[:3]}, choices=(choice,))
    (record,), _ = clean_records([a_rated(interaction, a_signal())], chinese, frozenset())
    assert "13912345678" not in record.model_dump_json()
    assert record.model_dump_json().count("PHONE_1") == 5
    arguments = record.messages[1]["tool_calls"][0]["function"]["arguments"]  # type: ignore[index, call-overload]
    assert json.loads(str(arguments)) == {"phone": "<PHONE_1>", "page": 1, "note": '"急"'}
