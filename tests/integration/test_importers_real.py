"""What other tools really wrote: every file of the shared data gets its right answer."""

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.clean.text import message_text
from pipeline.events.lake import compact
from pipeline.records import Interaction
from tests.importing import feedback, import_into, interactions, logged, rated, read_items, refusals, write

READ_HERE = {
    "feedback_exports": 7,
    "traces": 11,
    "trees": 2,
    "formats": 16,
}
"""Files in each folder: a new one needs its right answer here."""


@pytest.mark.parametrize("folder", READ_HERE)
def test_no_file_is_forgotten(shared: Path, folder: str) -> None:
    assert len(list((shared / "data" / folder).iterdir())) == READ_HERE[folder]


@pytest.fixture(scope="module")
def exports(shared: Path) -> Path:
    return shared / "data" / "feedback_exports"


@pytest.fixture(scope="module")
def traces(shared: Path) -> Path:
    return shared / "data" / "traces"


@pytest.fixture(scope="module")
def cases(shared: Path) -> Path:
    return shared / "data" / "cases"


def answer(one: Interaction) -> Any:
    return one.choices[0].message["content"]


def test_openwebui_export(exports: Path, tmp_path: Path) -> None:
    path = exports / "openwebui_feedback_export.json"
    records = json.loads(path.read_text(encoding="utf-8"))
    totals = import_into(tmp_path, "openwebui", path)
    assert (totals.interactions, totals.joined, totals.unjoined, totals.refused.total()) == (21, 26, 0, 0)
    votes = Counter(s.value for one in rated(tmp_path) for s in one.signals if s.kind == "thumb")
    assert votes == {"up": 12, "down": 5} == Counter({1: "up", -1: "down"}[r["data"]["rating"]] for r in records)
    for one in rated(tmp_path):
        turns: Any = one.interaction.request["messages"]
        assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
    users = {one.interaction.user_key for one in rated(tmp_path)}
    assert len(users) == len({record["user_id"] for record in records})
    written = b"".join(path.read_bytes() for path in (tmp_path / "segments").glob("*.jsonl"))
    assert not any(record["user_id"].encode() in written for record in records)


def test_chatgpt_export(exports: Path, tmp_path: Path) -> None:
    conversations = json.loads((exports / "chatgpt_export_conversations.json").read_text(encoding="utf-8"))
    first = import_into(tmp_path, "chatgpt", exports / "chatgpt_export_message_feedback.json")
    assert (first.feedback, first.joined, first.unjoined) == (12, 0, 12)
    second = import_into(tmp_path, "chatgpt", exports / "chatgpt_export_conversations.json")
    assert (second.interactions, second.refused.total()) == (46, 0)
    again = import_into(tmp_path, "chatgpt", exports / "chatgpt_export_message_feedback.json")
    assert (again.stored, again.joined, again.unjoined) == (0, 12, 0)
    siblings = sum(
        len(_answers_under(node, c)) - 1
        for c in conversations
        for node in c["mapping"].values()
        if _answers_under(node, c)
    )
    found = rated(tmp_path)
    assert sum(one.replaced_by is not None for one in found) == siblings == 28
    by_id = {one.interaction.interaction_id: one.interaction for one in found}
    for one in found:
        if one.replaced_by:
            assert by_id[one.replaced_by].started_at >= one.interaction.started_at
            assert by_id[one.replaced_by].request["messages"] == one.interaction.request["messages"]


def _answers_under(node: dict[str, Any], conversation: dict[str, Any]) -> list[str]:
    roles = {n: (m["message"] or {}).get("author", {}).get("role") for n, m in conversation["mapping"].items()}
    return [child for child in node["children"] if roles[child] == "assistant"]


def test_labelstudio_exports_hold_no_answers(exports: Path) -> None:
    assert refusals(read_items("labelstudio", exports / "labelstudio_csv_history.json")) == [
        ("item 1 (line 2)", "not_chat")
    ]
    assert refusals(read_items("labelstudio", exports / "labelstudio_csv_test.json")) == [
        ("item 1 (line 1)", "not_chat"),
        ("item 2 (line 1)", "not_chat"),
    ]
    assert refusals(read_items("labelstudio", exports / "labelstudio_csv_test2_result.csv")) == [
        ("line 2", "wrong_form")
    ]


def test_tensorzero_datapoints(exports: Path) -> None:
    path = exports / "tensorzero_chat_datapoint_fixture.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    items = read_items("tensorzero", path)
    assert [place for place, reason in refusals(items) if reason == "no_answer"] == [
        f"line {n}" for n, row in enumerate(rows, 1) if row["output"] is None
    ]
    said = [json.loads(row["output"])[0]["text"] for row in rows if row["output"]]
    assert [answer(one) for one in interactions(items)] == said
    crab: Any = next(one for one in interactions(items) if answer(one) == "It's a crab").request["messages"]
    assert [part["type"] for part in crab[0]["content"]] == ["text", "image_url"]


FRAMEWORKS = (
    "langgraph-python-2025-08-22",
    "openai-agents-2025-09-30",
    "pydantic-ai-tools-2025-12-04",
    "vercel-aisdk-2025-11-17",
)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_langfuse_traces_become_the_messages_that_langfuse_itself_makes_of_them(traces: Path, name: str) -> None:
    items = read_items("langfuse", traces / f"langfuse_{name}.trace.json")
    truth = json.loads((traces / f"langfuse_{name}.chatml.json").read_text(encoding="utf-8"))
    observations = json.loads((traces / f"langfuse_{name}.trace.json").read_text(encoding="utf-8"))["observations"]
    generations = {o["id"] for o in observations if o["type"] == "GENERATION"}
    wanted = [
        (_plain(chat["input"]["data"]), _plain(chat["output"]["data"]))
        for observation, chat in truth.items()
        if observation in generations and chat["input"]["success"] and chat["output"]["success"]
    ]
    found = [(_plain(one.request["messages"]), _plain([c.message for c in one.choices])) for one in interactions(items)]
    for turns, said in wanted:
        assert (turns, said) in [([t for t in f[0] if not _only_here(t, turns)], f[1]) for f in found], (turns, said)
    assert len(found) == len(wanted)
    assert {reason for _, reason in refusals(items)} <= {"not_a_user"}
    assert all(one.request.get("tools") for one in interactions(items) if one.choices[0].message.get("tool_calls"))


def _only_here(turn: tuple[Any, ...], theirs: list[tuple[Any, ...]]) -> bool:
    """The Responses API keeps the instructions beside the messages; for learning they are the system prompt."""
    return turn[0] == "system" and not any(one[0] == "system" for one in theirs)


def _plain(messages: Any) -> list[tuple[Any, ...]]:
    """Role, text and tool calls, whatever frame they stand in."""
    plain = []
    for message in messages:
        calls = [call.get("function", call) for call in message.get("tool_calls") or []]
        asked = [
            (call["name"], json.loads(call["arguments"]) if isinstance(call["arguments"], str) else call["arguments"])
            for call in calls
        ]
        plain.append((message["role"], message_text(message).strip(), asked))
    return plain


@pytest.mark.parametrize("name", ["js_wrap_openai_default", "js_wrap_openai_stream_no_usage", "py_wrap_openai_stream"])
def test_langsmith_runs(traces: Path, name: str) -> None:
    items = read_items("langsmith", traces / f"langsmith_{name}.json")
    (one,) = interactions(items)
    assert len(items) == 1
    assert one.request["messages"] == [{"role": "user", "content": "howdy"}]
    assert (answer(one), one.model_version, one.started_at.year) == (
        "Howdy! How can I assist you today?",
        "gpt-4o-mini-2024-07-18",
        2024,
    )
    assert 400 < one.timings.total_ms < 2000


@pytest.mark.parametrize("name", ["oasst_en_100_tree.jsonl", "oasst_en_100_message.jsonl"])
def test_ranked_trees(shared: Path, tmp_path: Path, name: str) -> None:
    path = shared / "data" / "trees" / name
    totals = import_into(tmp_path, "generic", path)
    assert (totals.interactions, totals.refused.total(), totals.unjoined) == (687, 0, 0)
    ranks = {m["message_id"]: (m.get("parent_id"), m.get("rank")) for m in _messages(path)}
    pairs = 0
    for parent in {parent for parent, _ in ranks.values()}:
        found = sorted(rank for p, rank in ranks.values() if p == parent and rank is not None)
        pairs += max(0, len(set(found)) - 1) if len(found) == len(set(found)) else 0
    assert totals.feedback == pairs == 429
    assert not any(one.replaced_by for one in rated(tmp_path))


def _messages(path: Path) -> list[dict[str, Any]]:
    waiting = [row.get("prompt", row) for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())]
    found = []
    while waiting:
        message = waiting.pop()
        found.append(message)
        waiting += [{**reply, "parent_id": message["message_id"]} for reply in message.get("replies", [])]
    return found


def test_training_files_are_conversations_nobody_has_rated(shared: Path) -> None:
    for path in sorted((shared / "data" / "formats").glob("msswift_*")):
        items = read_items("generic", path)
        assert feedback(items) == []
        if "_pre" in path.name:  # answers without any question
            assert [reason for _, reason in refusals(items)] == ["wrong_form"] * 3
        else:
            assert (len(interactions(items)), refusals(items)) == (3, []), path.name
    folder = shared / "data" / "formats"
    first = interactions(read_items("generic", folder / "msswift_alpaca.jsonl"))[0]
    assert first.request["messages"] == [
        {"role": "system", "content": "system123"},
        {"role": "user", "content": "aaaaa"},
        {"role": "assistant", "content": "bbbbb"},
        {"role": "user", "content": "11111\n22222"},
    ]
    one, _, long = interactions(read_items("generic", folder / "msswift_sharegpt.jsonl"))
    assert one.request["messages"] == [{"role": "system", "content": "00000"}, {"role": "user", "content": "11111"}]
    assert [m["content"] for m in long.request["messages"]] == ["AAAAA", "BBBBB", "CCCCC", "DDDDD", "EEEEE"]  # type: ignore[union-attr,index,call-overload]
    same = ["msswift_swift_multi.json", "msswift_swift_multi.jsonl"]
    assert (
        len({tuple(i.interaction_id for i in interactions(read_items("generic", folder / name))) for name in same}) == 1
    )


SOFTER = {
    "jsonl_valid_general": 0,  # a bare text asks nothing
    "csv_valid_general": 0,
    "jsonl_missing_required_field": 1,  # one good row is one good row
    "jsonl_inconsistent_dataset_format": 1,
    "jsonl_invalid_weight": 1,  # weights are the trainer's
    "jsonl_invalid_weight_float": 1,
    "jsonl_invalid_multimodal_content": 1,
}
"""Where our verdict differs from the validator's: conversations that we take all the same, or do not."""


def test_files_of_an_upload_validator(shared: Path, tmp_path: Path) -> None:
    lines = (shared / "data" / "formats" / "together_files_checks.jsonl").read_text(encoding="utf-8").splitlines()
    for case in map(json.loads, lines):
        data = bytes.fromhex(case["hex"]) if case["hex"] is not None else case["content"].encode()
        items = read_items("generic", write(tmp_path / case["file_name"], data))
        taken = len(interactions(items))
        if case["case"] in SOFTER:
            assert taken == SOFTER[case["case"]], case["case"]
        else:
            assert bool(taken) == case["upstream_check_passes"], case["case"]
            assert bool(refusals(items)) == (
                not case["upstream_check_passes"] and case["case"] != "csv_invalid_column"
            ), case["case"]


def test_lone_surrogates_a_cut_line_and_gbk(cases: Path, tmp_path: Path) -> None:
    events = tmp_path / "events"
    import_into(events, "generic", cases / "encoding" / "D-08_lone_surrogate.jsonl")
    for _ in ("segments", "lake"):
        texts = [message_text(one.choices[0].message) for one in logged(events).interactions]
        assert sorted(texts) == sorted(["好的 �", "🍸 干杯", "ok"])
        compact(events, datetime.now(UTC) + timedelta(hours=3))
    path = cases / "encoding" / "D-10_truncated_last_line.jsonl"
    cut = import_into(tmp_path / "cut", "generic", path)
    assert (cut.interactions, cut.feedback, cut.damaged) == (2, 2, True)
    assert [(r.place, r.reason.value) for r in cut.refusals] == [("line 4", "wrong_form"), ("line 5", "cut_short")]
    mended = path.read_bytes() + '诗","answer":"好","rating":1}\n'.encode()
    again = import_into(tmp_path / "cut", "generic", write(tmp_path / "mended.jsonl", mended))
    assert (again.interactions, again.feedback, again.there) == (1, 1, 4)
    gbk = cases / "encoding" / "D-09b_gbk_semicolon.csv"
    assert refusals(read_items("dify", gbk)) == [("file", "not_utf8")]
    assert [one.value for one in feedback(read_items("dify", gbk, encoding="gb18030"))] == ["up", "回答准确"]


@pytest.mark.parametrize("tool", ["dify", "generic"])
def test_csv_with_bom_quoted_line_breaks_and_formula(cases: Path, tool: str) -> None:
    items = read_items(tool, cases / "encoding" / "D-09_bom_crlf.csv", zone="Asia/Shanghai")
    assert refusals(items) == []
    votes = feedback(items)
    assert [one.value for one in votes if one.kind == "thumb"] == ["up", "down", "down"]
    assert [one.value for one in votes if one.kind == "comment"] == [
        "很好,谢谢",
        '说了"不行"\r\n换行',
        '=HYPERLINK("http://x")',
    ]
    assert votes[0].occurred_at.isoformat() == "2025-07-20T00:00:00+00:00"


def test_thumbs_flipped_out_of_order_end_the_same(cases: Path, tmp_path: Path) -> None:
    lines = (cases / "events" / "D-12_thumb_flip_out_of_order.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    answers = [{"trace_id": f"t{n}", "prompt": f"{n}?", "answer": f"{n}."} for n in (9, 10)]
    states = []
    for seed in (None, 1, 2, 3):
        order = rows * 2 + answers
        if seed is not None:
            random.Random(seed).shuffle(order)
        import_into(tmp_path / str(seed), "generic", write(tmp_path / f"{seed}.jsonl", order))
        states.append([one.signals for one in rated(tmp_path / str(seed))])
    assert all(_same(state, states[0]) for state in states)
    values = sorted([s.value for s in signals] for signals in states[0] if len(signals) == 2)
    assert values == [["down", "up"]]
    assert [[s.value for s in signals] for signals in states[0] if len(signals) == 1] == [[None]]


def _same(one: list[Any], other: list[Any]) -> bool:
    return sorted(map(repr, one)) == sorted(map(repr, other))
