"""One value, one placeholder, through a whole conversation; structures stay in one piece; nothing passes unscrubbed."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clean.pii import PatternDetector, PiiDetector, Span, Texts, find_all, scrub_conversation
from pipeline.clean.pii.placeholders import Scrubbed, ScrubFailure
from pipeline.clean.pii.structure import Piece, Place, map_json, map_message, map_text

patterns = PatternDetector()


def texts(*messages: dict[str, Any], answer: str = "", notes: Sequence[str | None] = (), **fields: Any) -> Texts:
    return Texts(messages, fields.get("tools", ()), {"role": "assistant", "content": answer}, tuple(notes))


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def scrub(*turns: Texts, detector: PiiDetector = patterns, fixed: frozenset[str] = frozenset()) -> list[Texts]:
    results = scrub_conversation(turns, find_all(turns, detector, fixed), fixed)
    assert all(isinstance(result, Scrubbed) for result in results), results
    return [result.texts for result in results if isinstance(result, Scrubbed)]


def names(*known: str) -> PiiDetector:
    """A detector that knows a few names, as a model would, and all patterns."""

    def detect(asked: Sequence[str]) -> list[list[Span]]:
        found = patterns(asked)
        for text, spans in zip(asked, found, strict=True):
            spans += [Span(text.index(n), text.index(n) + len(n), "PERSON") for n in known if n in text]
        return found

    return detect


def test_structures_stay_well_formed(shared: Path) -> None:
    messages = json.loads((shared / "data/cases/pii/D-24_toolcall_json.json").read_text())["messages"]
    (clean,) = scrub(Texts(tuple(messages[:3]), (), messages[3], ()))
    assert "13912345678" not in repr(clean)
    call = clean.messages[1]["tool_calls"][0]  # type: ignore[index, call-overload]
    assert json.loads(call["function"]["arguments"]) == {"phone": "<PHONE_1>", "page": 1, "note": '"急"'}  # type: ignore[index, call-overload, arg-type]
    assert call["id"] == clean.messages[2]["tool_call_id"] == "call_1"  # type: ignore[index, call-overload]
    assert json.loads(str(clean.messages[2]["content"])) == {"orders": [{"id": "202507200001", "phone": "<PHONE_1>"}]}
    answer = str(clean.answer["content"])
    url, _, code = answer.removeprefix("查到了，见 ").partition("\n")
    assert parse_qs(urlsplit(url).query) == {"phone": ["<PHONE_1>"], "id": ["202507200001"]}
    assert json.loads(code.removeprefix("```json\n").removesuffix("\n```")) == {"phone": "<PHONE_1>"}


INNER = '{"phone": "13912345678", "page": 1}'
CLEAN = INNER.replace("13912345678", "<PHONE_1>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"a": INNER}), json.dumps({"a": CLEAN})),
        (json.dumps({"a": json.dumps({"b": INNER})}), json.dumps({"a": json.dumps({"b": CLEAN})})),
        (f"{INNER}\n{INNER}", f"{CLEAN}\n{CLEAN}"),
        (r'{"phone":"\u003139\u00312345678"}', '{"phone":"<PHONE_1>"}'),
        ('{"phone":"13912345678","a":', '{"phone":"<PHONE_1>","a":'),
        ("phone: 13912345678\nlist:\n  - 13912345678\n", "phone: <PHONE_1>\nlist:\n  - <PHONE_1>\n"),
        (
            '<o id="7" phone="13912345678"><tel>13912345678</tel></o>',
            '<o id="7" phone="<PHONE_1>"><tel><PHONE_1></tel></o>',
        ),
        ("id,phone\n7,13912345678\n", "id,phone\n7,<PHONE_1>\n"),
        ("| 电话 | 13912345678 |\n|---|---|", "| 电话 | <PHONE_1> |\n|---|---|"),
        ("WHERE phone='13912345678' AND id=77", "WHERE phone='<PHONE_1>' AND id=77"),
        ('```json\n{"n": 13912345678, "b": [1,2]}\n```', '```json\n{"n": "<PHONE_1>", "b": [1,2]}\n```'),
        ('~~~json\n{"n": 13912345678}\n~~~', '~~~json\n{"n": "<PHONE_1>"}\n~~~'),
        (
            "https://a.cn/?to=https%3A%2F%2Fb.cn%2F%3Fphone%3D13912345678%26id%3D7",
            "https://a.cn/?to=https%3A%2F%2Fb.cn%2F%3Fphone%3D%3CPHONE_1%3E%26id%3D7",
        ),
    ],
)
def test_each_structure_keeps_its_form(text: str, expected: str) -> None:
    (clean,) = scrub(texts(user(text)))
    found = str(clean.messages[0]["content"])
    try:
        assert json.loads(found) == json.loads(expected)
    except json.JSONDecodeError:
        assert found == expected


def test_one_value_has_one_placeholder_however_it_is_written() -> None:
    first = texts(user("我是13912345678"), answer="记下了 139-1234-5678", notes=["+86 139 1234 5678"])
    second = texts(user("再打 13912345678 或 13800138000"), answer="１３９１２３４５６７８")
    one, two = scrub(first, second)
    assert one.messages[0]["content"] == "我是<PHONE_1>"
    assert one.answer["content"] == "记下了 <PHONE_1>"
    assert one.notes == ("<PHONE_1>",)
    assert two.messages[0]["content"] == "再打 <PHONE_1> 或 <PHONE_2>"
    assert two.answer["content"] == "<PHONE_1>"


def test_a_name_found_once_goes_everywhere() -> None:
    once = names("Ann Lee")

    def detect(asked: Sequence[str]) -> list[list[Span]]:
        return [spans if text.startswith("I am") else [] for text, spans in zip(asked, once(asked), strict=True)]

    (clean,) = scrub(texts(user("I am Ann Lee"), answer="Dear Ann Lee, Ann Leeds wrote."), detector=detect)
    assert clean.answer["content"] == "Dear <PERSON_1>, Ann Leeds wrote."


def test_sessions_do_not_share_placeholders() -> None:
    one = scrub(texts(user("13912345678")))
    other = scrub(texts(user("13800138000")))
    assert one[0].messages == other[0].messages == (user("<PHONE_1>"),)


def test_numbers_without_quotes_become_strings() -> None:
    code = '```python\ncall(13912345678, "13912345678")\n```'
    (clean,) = scrub(texts(user('{"phone": 13912345678, "n": 1}'), answer=f'so {{"a": 13912345678}}\n{code}'))
    assert clean.messages[0]["content"] == '{"phone": "<PHONE_1>", "n": 1}'
    assert clean.answer["content"] == 'so {"a": "<PHONE_1>"}\n```python\ncall("<PHONE_1>", "<PHONE_1>")\n```'


def test_a_key_says_what_its_value_is() -> None:
    (clean,) = scrub(texts(user('{"qq":"12345678","password":"hunter22x","order":"12345679"}')))
    assert clean.messages[0]["content"] == '{"qq":"<QQ_1>","password":"<SECRET_1>","order":"12345679"}'


def test_personal_data_in_a_key_goes_too() -> None:
    (clean,) = scrub(texts(user('{"13912345678": 1}')))
    assert clean.messages[0]["content"] == '{"<PHONE_1>": 1}'


def test_names_in_shared_prompts_code_and_tools_stay() -> None:
    system = {"role": "system", "content": "You are Ann of Harbour Books. Support: 13912345678"}
    tool = {"type": "function", "function": {"name": "ask", "description": "Ask Ann or 13912345678"}}
    turn = texts(system, user("Ann?"), answer="```\nAnn()\n```", tools=(tool,))
    (clean,) = scrub(turn, detector=names("Ann"), fixed=frozenset({str(system["content"])}))
    assert clean.messages[0]["content"] == "You are Ann of Harbour Books. Support: <PHONE_1>"
    assert clean.messages[1]["content"] == "<PERSON_1>?"
    assert clean.tools[0]["function"] == {"name": "ask", "description": "Ask Ann or <PHONE_1>"}


def test_ids_and_roles_are_never_scanned_and_participants_lose_their_names() -> None:
    message = {"role": "tool", "tool_call_id": "13912345678", "name": "13912345678", "content": "ok"}
    (clean,) = scrub(texts(message, {"role": "user", "name": "ann", "content": "hi"}))
    assert clean.messages == (message, {"role": "user", "content": "hi"})


def test_parts_of_text_are_scrubbed_and_images_refused() -> None:
    text = user([{"type": "text", "text": "13912345678"}])
    image = user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])
    turns = [texts(text), texts(image)]
    good, bad = scrub_conversation(turns, find_all(turns, patterns, frozenset()))
    assert isinstance(good, Scrubbed)
    assert good.texts.messages == (user([{"type": "text", "text": "<PHONE_1>"}]),)
    assert good.counts == {"PHONE": 1}
    assert bad == ScrubFailure("content part of type 'image_url'")


def test_a_detector_that_fails_on_one_text_costs_that_record_only() -> None:
    def detect(asked: Sequence[str]) -> list[list[Span]]:
        if any("bomb" in text for text in asked):
            raise RuntimeError("no")
        return patterns(asked)

    turns = [texts(user("bomb 13912345678")), texts(user("13912345678"))]
    bad, good = scrub_conversation(turns, find_all(turns, detect, frozenset()))
    assert isinstance(bad, ScrubFailure)
    assert "139" not in bad.detail
    assert isinstance(good, Scrubbed)


@pytest.mark.parametrize("spans", [[], [[Span(0, 99, "X")]], [[Span(3, 3, "X")]]])
def test_a_detector_that_answers_nonsense_fails_the_record(spans: list[list[Span]]) -> None:
    turns = [texts(user("a text"), answer="b")]
    (result,) = scrub_conversation(turns, find_all(turns, lambda _: spans, frozenset()))
    assert isinstance(result, ScrubFailure)


pieces = st.sampled_from(
    [
        "13912345678",
        "a@b.com",
        "4111111111111111",
        "12",
        "说",
        " ",
        "\n",
        '"',
        "{",
        "}",
        "[",
        ":",
        "```",
        "/",
        "&",
        "x=",
    ]
)
soups = st.lists(pieces, max_size=25).map("".join)


@settings(max_examples=50, deadline=None)
@given(soups)
def test_scrubbing_leaves_nothing_and_is_stable(text: str) -> None:
    (once,) = scrub(texts(user(text)))
    left = str(once.messages[0]["content"])
    assert not re.search(r"(?<!\d)13912345678(?!\d)", left)
    assert not re.search(r"(?<!\d)4111111111111111(?!\d)", left)
    assert "a@b.com" not in left
    (twice,) = scrub(once)
    assert twice == once


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | soups | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=4), json_values))
def test_json_stays_json_of_the_same_shape(value: dict[str, Any]) -> None:
    (clean,) = scrub(texts(user(json.dumps(value, ensure_ascii=False))))
    assert _shape(json.loads(str(clean.messages[0]["content"]))) == _shape(value)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [_shape(item) for item in value.values()]
    return [_shape(item) for item in value] if isinstance(value, list) else None


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80), soups)
def test_looking_changes_nothing(text: str, soup: str) -> None:
    def same(piece: Piece) -> str:
        return piece.text

    assert map_text(text + soup, same, Place.PROSE) == text + soup
    value = {"a": [text, 1, 2.5, None, True, {"b": soup}]}
    assert map_json(value, same, Place.PROSE) == value
    assert map_json(json.dumps(value), same, Place.PROSE) == json.dumps(value)
    message = {"role": "assistant", "content": text, "tool_calls": [{"function": {"arguments": soup}}]}
    assert map_message(message, same) == message
