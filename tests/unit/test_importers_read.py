"""Reading files of any size and any damage: places, reasons, and never an exception."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.collect.importers import TOOLS
from pipeline.collect.importers import document as document_module
from pipeline.collect.importers import elements as elements_module
from pipeline.collect.importers.elements import Element, read_elements
from pipeline.collect.importers.refusal import Refusal
from pipeline.collect.importers.source import Source
from tests.importing import read_items, write

REUSE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def seen(path: Path, *inside: str, encoding: str | None = None) -> list[Any]:
    """Values, and (place, reason) of what was refused."""
    found = read_elements(Source(path, encoding), *inside)
    return [one.value if isinstance(one, Element) else (one.place, one.reason.value) for one in found]


@pytest.mark.parametrize(
    ("name", "data", "inside", "found"),
    [
        ("a.json", b'[{"a":1},\n {"b":2}]', (), [{"a": 1}, {"b": 2}]),
        ("a.json", b"[]", (), []),
        ("a.json", b'{"a":1}', (), [{"a": 1}]),
        ("a.json", b'{\n"a":1}\n{"b":2}', (), [{"a": 1}, {"b": 2}]),
        ("a.json", b'{"a":1}\n{"b":2}\n', (), [{"a": 1}, {"b": 2}]),
        ("a.json", b'{"m":{"data":[{"no":1}]},"data":[{"a":1}]}', ("data",), [{"a": 1}]),
        ("a.json", b'{"a":"]}","b":"\\"{"}', (), [{"a": "]}", "b": '"{'}]),
        ("a.json", b'\xef\xbb\xbf[{"a":1}]', (), [{"a": 1}]),
        ("a.json", b'[{"a":1},{"b"', (), [{"a": 1}, ("item 2 (line 1)", "cut_short")]),
        ("a.json", b'[{"a":1},\n{"b":},\n{"c":3}]', (), [{"a": 1}, ("item 2 (line 2)", "bad_json"), {"c": 3}]),
        ("a.json", b'[{"a":1},5,{"c":3}]', (), [{"a": 1}, ("item 2 (line 1)", "wrong_form"), {"c": 3}]),
        ("a.json", b"[[1]]", (), [("item 1 (line 1)", "wrong_form")]),
        ("a.json", b'[{"a":"\xff"},{"c":3}]', (), [("item 1 (line 1)", "not_utf8"), {"c": 3}]),
        ("a.json", b"", (), [("file", "unreadable")]),
        ("a.json", b"hello", (), [("item 1 (line 1)", "bad_json")]),
        ("a.jsonl", b'{"a":1}\r\n\r\n"x"\r\n{"b":2}', (), [{"a": 1}, ("line 3", "wrong_form"), {"b": 2}]),
        ("a.jsonl", b'{"a":1}\n{"b":', (), [{"a": 1}, ("line 2", "cut_short")]),
        ("a.jsonl", b'{"a":NaN}\n{"b":1}\n', (), [("line 1", "bad_json"), {"b": 1}]),
        ("a.csv", b"a,b\n1,2\n3\n", (), [{"a": "1", "b": "2"}, ("line 3", "bad_row")]),
        ("a.csv", b'a;b\n1;"x\ny"\n3;4\n', (), [{"a": "1", "b": "x\ny"}, {"a": "3", "b": "4"}]),
        ("a.csv", b'a\tb\n1\t"x', (), [("line 2", "cut_short")]),
        ("a.jsonl.gz", b"no gzip", (), [("file", "unreadable")]),
        ("a.jsonl.gz", gzip.compress(b'{"a":1}\n', mtime=0), (), [{"a": 1}]),
        ("a.parquet", b"PAR1 no parquet", (), [("behind row 0", "unreadable")]),
    ],
)
def test_each_form_and_each_damage(tmp_path: Path, name: str, data: bytes, inside: tuple[str, ...], found: Any) -> None:
    assert seen(write(tmp_path / name, data), *inside) == found


def test_parquet_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": [{"c": "x"}, None]}), tmp_path / "a.parquet")
    assert seen(tmp_path / "a.parquet") == [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": None}]


def test_gbk_is_refused_and_is_read_when_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "编号;评论\n1;很好\n".encode("gb18030"))
    assert seen(path) == [("file", "not_utf8")]
    assert seen(path, encoding="gb18030") == [{"编号": "1", "评论": "很好"}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_half_a_surrogate_pair_is_mended_and_counted(tmp_path: Path, name: str) -> None:
    texts = [r'{"a":"x\ud83d"}', r'{"a":"\ud83c\udf78"}', r'{"a":"\udb8dy"}', r'{"a":"\\ud83d"}']
    data = "[" + ",".join(texts) + "]" if name == "a.json" else "\n".join(texts)
    source = Source(write(tmp_path / name, data.encode()))
    assert [one.value["a"] for one in read_elements(source) if isinstance(one, Element)] == [
        "x�",
        "🍸",
        "�y",
        "\\ud83d",
    ]
    assert source.repaired == 2


@pytest.mark.parametrize(
    "bomb", [b"[" * 200_000, b'{"a":' * 200_000, b'[{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}]"]
)
def test_deep_nesting_is_refused(tmp_path: Path, bomb: bytes) -> None:
    (found,) = seen(write(tmp_path / "a.json", bomb))
    assert found[1] in ("cut_short", "bad_json")


def test_what_is_too_long_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements_module, "MAX_LINE", 3_000_000)
    monkeypatch.setattr(document_module, "MAX_LINE", 3_000_000)
    long = json.dumps({"a": [{"b": "x" * 1000}] * 5000}).encode()
    assert seen(write(tmp_path / "a.json", b'[{"a":1},' + long + b',{"c":3}]')) == [
        {"a": 1},
        ("item 2 (line 1)", "too_long"),
        {"c": 3},
    ]
    assert seen(write(tmp_path / "a.jsonl", b'{"a":1}\n' + long + b'\n{"c":3}\n')) == [
        {"a": 1},
        ("line 2", "too_long"),
        {"c": 3},
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(max_size=8), JSON, max_size=5)


@REUSE
@given(rows=st.lists(OBJECT, max_size=8), indent=st.sampled_from([None, 1]), block=st.integers(3, 40))
def test_an_array_is_what_json_says(tmp_path: Path, rows: list[Any], indent: int | None, block: int) -> None:
    before, document_module._BLOCK = document_module._BLOCK, block  # every cut between two reads
    try:
        path = write(
            tmp_path / "a.json", json.dumps(rows, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
        )
        assert seen(path) == json.loads(path.read_bytes())
    finally:
        document_module._BLOCK = before


@REUSE
@given(
    data=st.binary(max_size=400), suffix=st.sampled_from([".json", ".jsonl", ".csv", ".parquet", ".zip", ".jsonl.gz"])
)
def test_no_bytes_break_an_importer(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", data)
    for tool in TOOLS:
        read_items(tool, path)


FIELDS = re.findall(
    r"\w+",
    """
    id data meta snapshot chat history messages mapping message_id parentId parent_id role content parts rating
    value name type dataType source input output trace observations trace_id span_id attributes score key run_id
    inputs outputs feedback fields responses annotations result user_id created_at timestamp message
    conversation_id text children childrenIds replies prompt answer chosen rejected kind label model choices
    tool_calls info spans query messageId parentMessageId conversationId target_id metric_name request_id
    response post patch events body
    """,
)
NAMED = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**40) | st.text(max_size=6) | st.sampled_from(FIELDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=15,
)


@REUSE
@given(rows=st.lists(st.dictionaries(st.sampled_from(FIELDS), NAMED, min_size=1, max_size=10), min_size=1, max_size=4))
def test_no_value_breaks_an_importer(tmp_path: Path, rows: list[Any]) -> None:
    """Fields that tools know, holding anything."""
    path = write(tmp_path / "a.json", rows)
    for tool in TOOLS:
        assert all(not isinstance(item, Refusal) or item.place for item in read_items(tool, path))
