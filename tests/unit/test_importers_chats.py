"""Chat tools (Open WebUI, ChatGPT, LibreChat): their trees of turns and their thumbs, one trap a test."""

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.records import FeedbackKind, StreamEnd
from tests.importing import (
    IDS,
    T,
    feedback,
    import_into,
    interactions,
    key,
    rated,
    read_items,
    refusals,
    said,
    write,
)


def a_chat(*turns: tuple[str, str | None, str, str], chat_id: str = "c", **fields: Any) -> dict[str, Any]:
    """An Open WebUI chat of (id, parent, role, content)."""
    messages = {
        name: {"id": name, "parentId": parent, "role": role, "content": content, "timestamp": T + at, "model": "m"}
        for at, (name, parent, role, content) in enumerate(turns)
    }
    for name, changes in fields.items():
        messages[name] |= changes
    return {"id": chat_id, "user_id": "u", "chat": {"history": {"messages": messages}, "messages": []}}


def a_thumb(rating: Any, chat: dict[str, Any] | None, message: str = "a", **data: Any) -> dict[str, Any]:
    """An Open WebUI feedback record."""
    return {
        "id": "f",
        "user_id": "u",
        "type": "rating",
        "data": {"rating": rating} | data,
        "meta": {"chat_id": "c", "message_id": message},
        "snapshot": {"chat": chat} if chat else None,
        "created_at": T,
        "updated_at": T + 60,
    }


ASKED = ("q", None, "user", "Hi?"), ("a", "q", "assistant", "Hello.")


@pytest.mark.parametrize(
    ("rating", "found"),
    [(1, "up"), ("1", "up"), (-1, "down"), ("-1", "down"), (0, "draw"), (None, "no_vote"), (7, "unknown_value")],
)
def test_openwebui_thumbs(tmp_path: Path, rating: Any, found: str) -> None:
    items = read_items("openwebui", write(tmp_path / "f.json", [a_thumb(rating, a_chat(*ASKED))]))
    assert [value for _, value in said(items)] + [reason for _, reason in refusals(items)] == [found]


def test_openwebui_data_is_the_truth_and_the_snapshot_is_one_click_old(tmp_path: Path) -> None:
    chat = a_chat(*ASKED, a={"annotation": {"rating": 1}})
    items = read_items(
        "openwebui", write(tmp_path / "f.json", [a_thumb(-1, chat, reason="不准", details={"rating": 2})])
    )
    (vote,) = feedback(items)
    assert (vote.value, vote.reason, vote.occurred_at.timestamp()) == ("down", "不准; 2/10", T + 60)
    assert vote.user_key == IDS.user_key("support", "u")


def test_openwebui_a_changed_vote_is_a_new_event_and_the_latest_wins(tmp_path: Path) -> None:
    before, after = a_thumb(1, a_chat(*ASKED)), a_thumb(-1, a_chat(*ASKED)) | {"updated_at": T + 500}
    for number, record in enumerate((after, before)):
        import_into(tmp_path / "events", "openwebui", write(tmp_path / f"{number}.json", [record]))
    (one,) = rated(tmp_path / "events")
    assert [signal.value for signal in one.signals] == ["down"]
    assert len(one.signals[0].event_ids) == 2


def test_openwebui_siblings_are_regenerations_and_second_roots_are_not(tmp_path: Path) -> None:
    turns = (
        *ASKED,
        ("b", "q", "assistant", "Hello again."),
        ("q2", None, "user", "Hi!?"),
        ("c", "q2", "assistant", "Yes?"),
    )
    import_into(tmp_path / "events", "openwebui", write(tmp_path / "f.json", [a_thumb(1, a_chat(*turns), "b")]))
    replaced = {one.interaction.interaction_id: one.replaced_by for one in rated(tmp_path / "events")}
    assert replaced == {key("c/a"): key("c/b"), key("c/b"): None, key("c/c"): None}


def test_openwebui_models_side_by_side_replace_nothing_and_the_winner_is_chosen(tmp_path: Path) -> None:
    turns = (*ASKED, ("b", "q", "assistant", "Hey."))
    chat = a_chat(*turns, q={"models": ["m", "n"]}, a={"modelIdx": 0}, b={"model": "n", "modelIdx": 1})
    record = a_thumb(1, chat, "a", sibling_model_ids=["n"])
    import_into(tmp_path / "events", "openwebui", write(tmp_path / "f.json", [record]))
    found = rated(tmp_path / "events")
    assert [one.replaced_by for one in found] == [None, None]
    assert {s.over for one in found for s in one.signals if s.over} == {key("c/b")}


def test_openwebui_errors_stops_and_system_prompts(tmp_path: Path) -> None:
    turns = (*ASKED, ("b", "q", "assistant", "Hel"), ("c", "q", "assistant", ""))
    chat = a_chat(*turns, a={"error": {"content": "x"}}, b={"done": False})
    chat["chat"]["params"] = {"system": "Be kind."}
    items = read_items("openwebui", write(tmp_path / "f.json", [chat]))
    assert [(one.status, one.stream_end) for one in interactions(items)] == [
        (500, StreamEnd.UPSTREAM_ERROR),
        (200, StreamEnd.CLIENT_ABORT),
    ]
    assert interactions(items)[0].request["messages"][0] == {"role": "system", "content": "Be kind."}  # type: ignore[index]
    assert refusals(items) == [("item 1 (line 1)", "no_answer")]


@pytest.mark.parametrize("parents", [{"q": "a"}, {"q": "absent"}])
def test_openwebui_trees_that_are_none(tmp_path: Path, parents: dict[str, str]) -> None:
    chat = a_chat(*ASKED, **{name: {"parentId": parent} for name, parent in parents.items()})
    items = read_items("openwebui", write(tmp_path / "f.json", [a_thumb(1, chat)]))
    assert refusals(items) == [("item 1 (line 1)", "bad_messages")]
    assert said(items) == [("thumb", "up")]


def test_openwebui_csv_names_no_message(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", b"id,user_id,chat_id,model_id,rating\n1,u,,m,1\n")
    assert refusals(read_items("openwebui", path)) == [("line 2", "no_key")]


def a_gpt(*nodes: tuple[str, str | None, str | None, str, float | None], **fields: Any) -> dict[str, Any]:
    """A ChatGPT conversation of (id, parent, role, text, time)."""
    mapping: dict[str, Any] = {}
    for name, parent, role, words, at in nodes:
        message = None
        if role:
            content = {"content_type": "text", "parts": [words]}
            message = {"id": name, "author": {"role": role}, "create_time": at, "content": content, "recipient": "all"}
            message |= fields.get(name, {})
        mapping[name] = {"id": name, "parent": parent, "message": message, "children": []}
    return {"title": "t", "create_time": T, "conversation_id": "k", "mapping": mapping, "current_node": "a"}


REGENERATED = ("r", None, None, "", None), ("s", "r", "system", "", None), ("q", "s", "user", "Weather?", T + 1)


def test_chatgpt_regenerated_after_a_tools_call(tmp_path: Path) -> None:
    call = {"recipient": "browser", "content": {"content_type": "code", "text": "search('x')"}}
    chat = a_gpt(
        *REGENERATED,
        ("b", "o", "assistant", "Rain.", T + 9),
        ("c", "q", "assistant", "", T + 2),
        ("o", "c", "tool", "rain", T + 3),
        ("a", "o", "assistant", "Sun.", T + 4),
        c=call,
    )
    import_into(tmp_path / "events", "chatgpt", write(tmp_path / "conversations.json", [chat]))
    first, second = rated(tmp_path / "events")
    assert (first.interaction.interaction_id, first.replaced_by) == (key("a"), key("b"))
    messages: Any = second.interaction.request["messages"]
    assert [(m["role"], m["content"]) for m in messages] == [("user", "Weather?"), ("assistant", ""), ("tool", "rain")]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "browser", "arguments": '{"input": "search(\'x\')"}'}


def test_chatgpt_zip_knows_the_time_of_old_feedback_and_who_exported(tmp_path: Path) -> None:
    chat = a_gpt(
        *REGENERATED, ("a", "q", "assistant", "Sun.", T + 4), ("b", "q", "assistant", "Hidden.", T), b={"weight": 0}
    )
    old = {"message_id": "a", "conversation_id": "k", "user_id": "u", "rating": "thumbsDown"}
    old["content"] = json.dumps({"text": "wrong", "tags": ["false"]})
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps([chat]))
        archive.writestr("message_feedback.json", json.dumps([old]))
        archive.writestr("chat.html", "x")
    items = read_items("chatgpt", tmp_path / "export.zip")
    assert [one.user_key for one in interactions(items)] == [IDS.user_key("support", "u")]
    vote, comment = feedback(items)
    assert (vote.value, vote.reason, vote.occurred_at.timestamp()) == ("down", "false", T + 4)
    assert (comment.kind, comment.value) == (FeedbackKind.COMMENT, "wrong")


@pytest.mark.parametrize(("verdict", "better", "worse"), [("new", "n", "o"), ("original", "o", "n"), ("same", "", "")])
def test_chatgpt_comparisons(tmp_path: Path, verdict: str, better: str, worse: str) -> None:
    def message(name: str, role: str) -> dict[str, Any]:
        return {"id": name, "author": {"role": role}, "content": {"content_type": "text", "parts": [name]}}

    second = {"original_turn": [message("o", "assistant")], "new_turn": [message("n", "assistant")]}
    row = {
        "id": "x",
        "user_id": "u",
        "create_time": "2025-01-01T00:00:00Z",
        "input": {"prompt_convo": {"messages": [message("q", "user")]}, "conversation_id": "k"},
        "output": {"feedback_step_1": {}, "feedback_step_2": second | {"completion_comparison_rating": verdict}},
    }
    items = read_items("chatgpt", write(tmp_path / "model_comparisons.json", [row]))
    assert len(interactions(items)) == 2
    if better:
        (choice,) = feedback(items)
        assert (choice.interaction_id, choice.value) == (key(better), {"over": key(worse)})
    else:
        assert [reason for _, reason in refusals(items)] == ["draw"]


def test_librechat_turns_in_any_order_stops_errors_and_tags(tmp_path: Path) -> None:
    root = "00000000-0000-0000-0000-000000000000"
    row = {"conversationId": "c", "user": "u", "createdAt": {"$date": "2025-01-01T00:00:00Z"}}
    rows = [
        row | {"messageId": "b", "parentMessageId": "q", "text": "Hel", "unfinished": True},
        row | {"messageId": "e", "parentMessageId": "q", "text": "ETIMEDOUT", "error": True},
        row | {"messageId": "a", "parentMessageId": "q", "content": [{"type": "text", "text": {"value": "Hello."}}]},
        row | {"messageId": "q", "parentMessageId": root, "isCreatedByUser": True, "text": "Hi?"},
    ]
    rows[2]["feedback"] = {"rating": "thumbsDown", "tag": {"key": "not_matched"}, "text": "no"}
    random.Random(1).shuffle(rows)
    items = read_items("librechat", write(tmp_path / "m.jsonl", rows))
    found = {one.interaction_id: (one.status, one.stream_end.value) for one in interactions(items)}
    assert found == {
        key("a"): (200, "complete"),
        key("b"): (200, "client_abort"),
        key("e"): (500, "upstream_error"),
    }
    assert [(one.value, one.reason) for one in feedback(items)] == [("down", "not_matched"), ("no", None)]
    nested = {"conversationId": "c", "messages": [rows_of(rows, "q") | {"children": [rows_of(rows, "a")]}]}
    (same,) = interactions(read_items("librechat", write(tmp_path / "c.json", nested)))
    assert same in interactions(items)


def rows_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["messageId"] == name)
