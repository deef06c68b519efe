"""What files of other tools become as training rows: from the file through log, join and cleaning to the rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.clean.pii import PatternDetector
from pipeline.clean.steps import clean_records
from pipeline.dataset.examples import WEAK, build_examples
from pipeline.records import Example, PreferenceExample, SftExample
from tests.importing import a_make, import_into, rated, write


def rows_of(tmp_path: Path, tool: str, path: Path) -> tuple[list[Example], dict[str, str]]:
    """Training rows of a file, and of each interaction that gives none the reason."""
    import_into(tmp_path / "events", tool, path)
    records, unclean = clean_records(rated(tmp_path / "events"), PatternDetector(), frozenset())
    examples, unused = build_examples(records, 1)
    return examples, {dropped.interaction_id: dropped.reason.value for dropped in [*unclean, *unused]}


def rows_of_lines(tmp_path: Path, *lines: dict[str, Any]) -> tuple[list[Example], list[str]]:
    """Training rows of generic lines, and the reasons in the order of the lines' ids."""
    examples, reasons = rows_of(tmp_path, "generic", write(tmp_path / "f.jsonl", lines))
    ids = [a_make("generic").interaction_id(line.get("id", "")) for line in lines]
    return examples, [reasons[i] for i in ids if i in reasons] or sorted(reasons.values())


def pairs(examples: list[Example]) -> list[tuple[str, str]]:
    return [(said(e.chosen), said(e.rejected)) for e in examples if isinstance(e, PreferenceExample)]


def said(messages: tuple[Any, ...]) -> str:
    return str(messages[0]["content"])


ANSWER = "在订单页点退款。"


@pytest.mark.parametrize(
    ("answer", "edited", "reason"),
    [
        (ANSWER, ANSWER, "identical"),
        (ANSWER, f"  {ANSWER}\n", "identical_after_normalise"),
        (ANSWER, "", "empty_side"),
        ("好的", "怎么退款", "equals_prompt"),
    ],
)
def test_an_edit_that_says_nothing_gives_no_row(tmp_path: Path, answer: str, edited: str, reason: str) -> None:
    line = {"id": "p", "prompt": "怎么退款", "answer": answer, "edited": edited}
    assert rows_of_lines(tmp_path, line) == ([], [reason])


@pytest.mark.parametrize(
    ("chosen", "rejected", "reasons"),
    [
        (ANSWER, ANSWER, ["no_feedback"]),  # one answer, and nothing said of it: the import says `draw`
        (ANSWER, f"  {ANSWER}\n", ["identical_after_normalise"] * 2),
        (ANSWER, f"{ANSWER}\u200b", ["trivial_edit"] * 2),
        ("怎么退款", ANSWER, ["equals_prompt"] * 2),
        (ANSWER, "", []),  # refused by the import
        (None, ANSWER, []),
    ],
)
def test_a_pair_that_says_nothing_gives_no_row(
    tmp_path: Path, chosen: str | None, rejected: str, reasons: list[str]
) -> None:
    line = {"prompt": "怎么退款", "chosen": chosen, "rejected": rejected}
    assert rows_of_lines(tmp_path, line) == ([], reasons)


def turns(*contents: str, system: str = "") -> list[dict[str, str]]:
    head = [{"role": "system", "content": system}] if system else []
    return head + [{"role": ("user", "assistant")[n % 2], "content": content} for n, content in enumerate(contents)]


@pytest.mark.parametrize(
    "rejected",
    [
        turns("上海天气", "雨"),
        turns("北京天气", "雨", system="Be brief."),
        turns("你好", "您好", "北京天气", "雨"),
        turns("北京天气 ", "雨"),
    ],
)
def test_a_pair_after_different_prompts_gives_no_row(tmp_path: Path, rejected: list[dict[str, str]]) -> None:
    line = {"chosen": turns("北京天气", "晴"), "rejected": rejected}
    assert rows_of_lines(tmp_path, line) == ([], ["prompt_mismatch"] * 2)


@pytest.mark.parametrize("rating", [1, -1])
@pytest.mark.parametrize(
    "answer",
    [
        "**NETWORK ERROR DUE TO HIGH TRAFFIC. PLEASE REGENERATE OR REFRESH THIS PAGE.**",
        "API REQUEST ERROR. Please increase the number of max tokens.",
        "[ERROR] list index out of range",
        "服务器繁忙，请稍后再试",
    ],
)
def test_an_error_message_is_no_example_whatever_it_was_voted(tmp_path: Path, answer: str, rating: int) -> None:
    line = {"id": "e", "prompt": "为什么", "answer": answer, "rating": rating}
    assert rows_of_lines(tmp_path, line) == ([], ["error_answer"])


def test_left_over_template_fields_are_no_example(tmp_path: Path, shared: Path) -> None:
    rows = json.loads((shared / "data/llamafactory/identity.json").read_text(encoding="utf-8"))
    lines = [{**row, "id": f"i{number}", "rating": 1} for number, row in enumerate(rows)]
    examples, reasons = rows_of_lines(tmp_path, *lines)
    marked = sum("{{" in row["output"] for row in rows)
    assert reasons.count("placeholder") == marked > 80
    assert examples
    assert not any("{{" in said(e.completion) for e in examples if isinstance(e, SftExample))


@pytest.mark.parametrize(
    ("answer", "edited"), [("价格是 100 元。", "价格是100元。"), ("价格是100元.", "价格是100元。"), ("A\n\nB", "A\nB")]
)
def test_an_edit_of_space_or_width_is_a_target_and_no_pair(tmp_path: Path, answer: str, edited: str) -> None:
    examples, reasons = rows_of_lines(tmp_path, {"id": "a", "prompt": "多少钱", "answer": answer, "edited": edited})
    (target,) = examples
    assert isinstance(target, SftExample)
    assert (said(target.completion), target.source.weight, reasons) == (edited, WEAK, [])


CODE = [
    ("```\nif a:\n  b\n```", "```\nif a:\n    b\n```"),
    ("~~~\na b\n~~~", "~~~\na  b\n~~~"),
    ("So:\n\n    if a:\n        b\n", "So:\n\n    if a:\n            b\n"),
    ("Run `rm -r a`.", "Run `rm  -r a`."),
]


@pytest.mark.parametrize(("answer", "edited"), CODE)
def test_an_edit_of_space_in_code_is_a_pair(tmp_path: Path, answer: str, edited: str) -> None:
    examples, _ = rows_of_lines(tmp_path, {"id": "a", "prompt": "how", "answer": answer, "edited": edited})
    assert pairs(examples) == [(edited, answer)]


def test_roles_in_any_order_are_kept_as_they_are(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "您好，请问有什么可以帮您？"},
        {"role": "user", "content": "在吗"},
        {"role": "user", "content": "我要改地址"},
        {"role": "assistant", "content": "请说"},
        {"role": "assistant", "content": "新地址是？"},
        {"role": "user", "content": "浦东"},
        {"role": "assistant", "content": "改好了"},
    ]
    examples, reasons = rows_of_lines(tmp_path, {"messages": messages, "feedback": "up"})
    assert not reasons
    for example in examples:
        assert list(example.prompt) == messages[:-1]


def test_tool_turns_are_kept_and_only_the_last_answer_is_learned(tmp_path: Path) -> None:
    def call(name: str) -> list[dict[str, Any]]:
        return [{"id": name, "type": "function", "function": {"name": "q", "arguments": '{"id":77}'}}]

    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "查订单 77"},
        {"role": "assistant", "content": None, "tool_calls": call("c1")},
        {"role": "tool", "tool_call_id": "c1", "content": '{"s":"已发货"}'},
        {"role": "assistant", "tool_calls": call("c2")},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "assistant", "content": "已发货。"},
    ]
    examples, _ = rows_of_lines(tmp_path, {"messages": messages, "feedback": "up"})
    target = next(e for e in examples if isinstance(e, SftExample))
    assert target.completion == ({"role": "assistant", "content": "已发货。"},)
    assert [m["role"] for m in target.prompt] == [m["role"] for m in messages[:-1]]
    assert [m.get("tool_calls") for m in target.prompt] == [m.get("tool_calls") for m in messages[:-1]]
    assert [m.get("tool_call_id") for m in target.prompt] == [m.get("tool_call_id") for m in messages[:-1]]
    assert "None" not in json.dumps([m["content"] for m in target.prompt])


def test_what_follows_the_last_answer_is_not_learned(tmp_path: Path) -> None:
    examples, _ = rows_of_lines(tmp_path, {"messages": turns("a", "b", "谢谢"), "feedback": "up"})
    assert {(len(e.prompt), said(e.completion)) for e in examples if isinstance(e, SftExample)} == {(1, "b")}


@pytest.mark.parametrize("tool", ["dify", "generic"])
def test_an_answer_that_the_export_has_cut_is_never_learned(tmp_path: Path, tool: str) -> None:
    row = {"feedback_id": "f", "message_id": "m", "user_query": "介绍理赔流程", "ai_response": "长" * 500 + "..."}
    row |= {"feedback_rating": "👍", "feedback_rating_raw": "like", "feedback_date": "2025-07-20 16:00:00"}
    path = write(tmp_path / "f.json", {"export_info": {"total_records": 1}, "feedback_data": [row]})
    assert rows_of(tmp_path, tool, path) == ([], {})
    whole = {"id": "m", "prompt": "介绍理赔流程", "answer": "长" * 600}
    examples, _ = rows_of(tmp_path, "generic", write(tmp_path / "log.jsonl", [whole]))
    assert {len(said(e.completion)) for e in examples if isinstance(e, SftExample)} == {600}


def test_replaced_answers_of_a_chat_are_never_targets(tmp_path: Path, shared: Path) -> None:
    exports = shared / "data" / "feedback_exports"
    import_into(tmp_path / "events", "chatgpt", exports / "chatgpt_export_message_feedback.json")
    examples, reasons = rows_of(tmp_path, "chatgpt", exports / "chatgpt_export_conversations.json")
    replaced = {one.interaction.interaction_id for one in rated(tmp_path / "events") if one.replaced_by}
    targets = {i for e in examples if isinstance(e, SftExample) for i in e.source.interaction_ids}
    assert len(replaced) == 28
    assert targets
    assert targets.isdisjoint(replaced)
    assert {reasons[i] for i in replaced if i in reasons} <= {"replaced", "weak_evidence"}


def a_chat_with_a_tool() -> dict[str, Any]:
    """A question, a tool's call and result, and two answers below the result; the later stands first in the file."""
    call = {"recipient": "browser", "content": {"content_type": "code", "text": "search('x')"}}
    parts: list[tuple[str, str | None, str, str, int, dict[str, Any]]] = [
        ("q", None, "user", "Weather?", 1, {}),
        ("c", "q", "assistant", "", 2, call),
        ("o", "c", "tool", "rain", 3, {}),
        ("b", "o", "assistant", "Rain.", 9, {}),
        ("a", "o", "assistant", "Sun.", 4, {}),
    ]
    mapping: dict[str, Any] = {}
    for name, parent, role, words, second, more in parts:
        content = {"content_type": "text", "parts": [words]}
        message = {"id": name, "author": {"role": role}, "create_time": 1_760_000_000 + second, "content": content}
        mapping[name] = {"id": name, "parent": parent, "children": [], "message": message | {"recipient": "all"} | more}
    return {"conversation_id": "k", "create_time": 1_760_000_000, "mapping": mapping, "current_node": "b"}


@pytest.mark.parametrize(("vote", "expected"), [("thumbsUp", [("Rain.", "Sun.")]), (None, [])])
def test_an_answer_regenerated_after_a_tools_call_loses_only_to_a_liked_one(
    tmp_path: Path, vote: str | None, expected: list[tuple[str, str]]
) -> None:
    if vote:
        row = {"message_id": "b", "conversation_id": "k", "user_id": "u", "rating": vote, "content": "{}"}
        row["create_time"] = "2025-10-09T10:00:00Z"
        import_into(tmp_path / "events", "chatgpt", write(tmp_path / "message_feedback.json", [row]))
    examples, _ = rows_of(tmp_path, "chatgpt", write(tmp_path / "conversations.json", [a_chat_with_a_tool()]))
    assert pairs(examples) == expected
    for pair in examples:
        assert [m["role"] for m in pair.prompt] == ["user", "assistant", "tool"]
        assert not isinstance(pair, SftExample) or said(pair.completion) == "Rain."
