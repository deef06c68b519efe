"""Each tool's traps, one kind a test; what the tools really write is in the integration tests."""

import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.records import FeedbackKind, StreamEnd
from tests.importing import IDS, a_make, feedback, import_into, interactions, logged, rated, read_items, refusals, write

T = 1_760_000_000  # seconds; a Thursday in October 2025


def said(items: list[Any]) -> list[tuple[str, Any]]:
    """Kind and value of each feedback."""
    return [(one.kind.value, one.value) for one in feedback(items)]


def key(name: str, tool: str = "openwebui") -> str:
    return a_make(tool).interaction_id(name)


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


SCORE = {"id": "s", "traceId": "t", "timestamp": "2025-01-01T00:00:00Z", "source": "API", "name": "user-feedback"}


@pytest.mark.parametrize(
    ("score", "found"),
    [
        ({"dataType": "NUMERIC", "value": 1}, ("thumb", "up")),
        ({"dataType": "NUMERIC", "value": 0}, ("thumb", "down")),
        ({"dataType": "NUMERIC", "value": 0.8}, "unknown_value"),
        ({"dataType": "BOOLEAN", "value": 0, "stringValue": "False"}, ("thumb", "down")),
        ({"dataType": "CATEGORICAL", "value": 0, "stringValue": "good"}, ("thumb", "up")),
        ({"dataType": "CATEGORICAL", "value": 0, "stringValue": "blue"}, "unknown_value"),
        ({"dataType": "TEXT", "stringValue": "too long"}, ("comment", "too long")),
        ({"dataType": "CORRECTION", "name": "output", "value": 0, "stringValue": "Better."}, ("edit", "Better.")),
        ({"dataType": "CORRECTION", "name": "output", "value": 0}, "no_vote"),
        ({"dataType": "NUMERIC", "value": 1, "source": "EVAL"}, "not_a_user"),
        ({"dataType": "NUMERIC", "value": 1, "name": "toxicity"}, "not_a_user"),
        ({"dataType": "NUMERIC", "value": 1, "traceId": None, "sessionId": "s"}, "not_one_answer"),
        (
            {"dataType": "NUMERIC", "value": 1, "traceId": None, "subject": {"kind": "trace", "id": "t"}},
            ("thumb", "up"),
        ),
        ({"dataType": "BOOLEAN", "value": True, "subject": {"kind": "session", "id": "s"}}, "not_one_answer"),
    ],
)
def test_langfuse_scores(tmp_path: Path, score: dict[str, Any], found: Any) -> None:
    items = read_items("langfuse", write(tmp_path / "scores.jsonl", [SCORE | score]))
    assert [*said(items), *(reason for _, reason in refusals(items))] == [found]


def test_langfuse_a_scale_and_names_of_scores_can_be_told(tmp_path: Path) -> None:
    path = write(
        tmp_path / "scores.jsonl", [SCORE | {"dataType": "NUMERIC", "value": v, "name": "helpful"} for v in (0.75, 1)]
    )
    assert said(read_items("langfuse", path, scores=frozenset({"helpful"}), scale=(0.0, 1.0))) == [
        ("rating", 4.0),
        ("rating", 5.0),
    ]


def test_langfuse_votes_on_a_trace_are_about_what_the_user_saw(tmp_path: Path) -> None:
    def generation(name: str, second: int, answer: Any) -> dict[str, Any]:
        asked = [{"role": "user", "content": f"{name}?"}]
        at = f"2025-01-01T00:00:0{second}Z"
        return {"id": name, "traceId": "t", "type": "GENERATION", "startTime": at, "input": asked, "output": answer}

    observations = [
        generation("draft", 1, "Hm."),
        generation("final", 2, "Sun."),
        generation("critic", 3, "Good answer."),
    ]
    scores = [
        SCORE | {"dataType": "NUMERIC", "value": 1},
        SCORE | {"dataType": "NUMERIC", "value": 0, "observationId": "draft"},
    ]
    trace = {"trace": {"id": "t", "output": '"Sun."', "scores": scores}, "observations": observations}
    items = read_items("langfuse", write(tmp_path / "t.json", trace))
    answers = {one.interaction_id: one.choices[0].message["content"] for one in interactions(items)}
    assert {answers[one.interaction_id]: one.value for one in feedback(items)} == {"Sun.": "up", "Hm.": "down"}
    assert len(answers) == 3


def test_langsmith_feedback(tmp_path: Path) -> None:
    row = {"id": "1", "run_id": "r", "session_id": "project", "key": "user_score", "created_at": "2025-01-01T00:00:00"}
    rows = [
        row | {"score": True},
        row | {"id": "2", "score": 1, "feedback_source": {"type": "model"}},
        row | {"id": "3", "score": None, "correction": {"output": "Better."}},
        row | {"id": "4", "score": 0.3},
        row | {"id": "5", "score": 1, "run_id": None},
        row | {"id": "6", "score": 2, "feedback_group_id": "g", "run_id": "x"},
        row | {"id": "7", "score": 1, "feedback_group_id": "g", "run_id": "y"},
        row | {"id": "8", "score": None},
    ]
    items = read_items("langsmith", write(tmp_path / "f.jsonl", rows))
    assert said(items) == [("thumb", "up"), ("edit", "Better."), ("choice", {"over": key("y")})]
    assert [reason for _, reason in refusals(items)] == ["not_a_user", "unknown_value", "not_one_answer", "no_vote"]


DIFY = {
    "feedback_id": "f",
    "message_id": "m",
    "user_query": "介绍理赔流程",
    "ai_response": "长" * 500 + "...",
    "feedback_rating": "👍",
    "feedback_rating_raw": "like",
    "feedback_source": "user",
    "feedback_date": "2025-07-20 16:00:00",
    "from_end_user_id": "u1",
}


def test_dify_times_have_the_zone_that_is_told_and_cut_answers_are_never_used(tmp_path: Path) -> None:
    path = write(tmp_path / "f.json", {"export_info": {"total_records": 1}, "feedback_data": [DIFY]})
    items = read_items("dify", path, zone="Asia/Shanghai")
    assert [one.occurred_at.isoformat() for one in feedback(items)] == ["2025-07-20T08:00:00+00:00"]
    assert interactions(items) == []


def test_dify_votes_find_the_whole_message_and_contradictions_are_refused(tmp_path: Path) -> None:
    messages = [
        {"id": "m", "conversation_id": "c", "query": "How long?", "answer": "长" * 600, "created_at": T + 5},
        {
            "id": "l",
            "conversation_id": "c",
            "query": "Hi",
            "answer": "Hello.",
            "created_at": T,
            "feedback": {"rating": "like"},
        },
    ]
    events = tmp_path / "events"
    votes = [DIFY, DIFY | {"feedback_id": "g", "feedback_rating": "👎"}]
    first = import_into(events, "dify", write(tmp_path / "f.json", {"feedback_data": votes}))
    assert (first.joined, first.unjoined, dict(first.refused)) == (0, 1, {"contradictory": 1})
    import_into(events, "dify", write(tmp_path / "m.json", {"data": messages, "has_more": False}))
    again = import_into(events, "dify", tmp_path / "f.json")
    assert (again.stored, again.there, again.joined) == (0, 1, 1)
    last = rated(events)[-1]
    assert [m["content"] for m in last.interaction.request["messages"]] == ["Hi", "Hello.", "How long?"]  # type: ignore[union-attr,index,call-overload]
    assert [s.value for s in last.signals] == ["up"]


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


INFERENCE = "0195fccc-8f37-71f8-8500-cb753a746373"


def test_tensorzero_rows(tmp_path: Path) -> None:
    asked = json.dumps(
        {"system": "Be kind.", "messages": [{"role": "user", "content": [{"type": "text", "value": "Hi?"}]}]}
    )
    made = {"id": INFERENCE, "function_name": "f", "variant_name": "v", "episode_id": "e", "input": asked}
    blocks = json.dumps([{"type": "thought", "text": "hm"}, {"type": "text", "text": "Hello."}])
    rows = [
        made | {"output": blocks, "tags": {"user_id": "u"}},
        made | {"id": "j", "output": {"raw": '{"a":1}', "parsed": {"a": 1}}, "timestamp": "2025-01-01 00:00:00"},
        made | {"id": "d", "output": blocks, "is_deleted": True},
        made | {"id": "z", "output": None},
        {"id": "1", "target_id": INFERENCE, "metric_name": "user_liked", "value": False},
        {"id": "2", "target_id": INFERENCE, "metric_name": "exact_match", "value": True},
        {"id": "3", "target_id": INFERENCE, "target_type": "inference", "value": "Nice."},
        {"id": "4", "inference_id": INFERENCE, "value": blocks},
        {"id": "5", "target_id": "e", "target_type": "episode", "value": "Nice."},
    ]
    items = read_items("tensorzero", write(tmp_path / "rows.jsonl", rows))
    chat, function = interactions(items)
    assert (chat.choices[0].message["content"], chat.started_at.year) == ("Hello.", 2025)
    assert function.choices[0].message["content"] == '{"a":1}'
    assert said(items) == [("thumb", "down"), ("comment", "Nice."), ("edit", "Hello.")]
    assert [reason for _, reason in refusals(items)] == ["deleted", "no_answer", "not_a_user", "not_one_answer"]


def test_mlflow_traces_and_assessments(tmp_path: Path) -> None:
    span = {
        "span_id": "s",
        "parent_id": None,
        "start_time_unix_nano": T * 10**9,
        "attributes": {
            "mlflow.spanType": '"CHAT_MODEL"',
            "mlflow.spanInputs": json.dumps({"messages": [{"role": "user", "content": "Hi?"}]}),
            "mlflow.spanOutputs": json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hello."}}]}),
        },
    }
    human = {"assessment_name": "user_rating", "trace_id": "t", "source": {"source_type": "HUMAN", "source_id": "u"}}
    assessments = [
        human | {"assessment_id": "1", "feedback": {"value": True}, "rationale": "good"},
        human | {"assessment_id": "2", "feedback": {"value": True}, "source": {"source_type": "LLM_JUDGE"}},
        human | {"assessment_id": "3", "expectation": {"value": "Good day."}, "span_id": "s"},
        human | {"assessment_id": "4", "feedback": {"value": False}, "valid": False},
        human | {"assessment_id": "5", "feedback": {"value": None, "error": {}}},
    ]
    trace = {"info": {"trace_id": "t", "assessments": assessments}, "data": {"spans": [span]}}
    items = read_items("mlflow", write(tmp_path / "t.json", [trace]))
    (chat,) = interactions(items)
    assert said(items) == [("thumb", "up"), ("edit", "Good day.")]
    assert {one.interaction_id for one in feedback(items)} == {chat.interaction_id}
    assert [reason for _, reason in refusals(items)] == ["not_a_user", "deleted", "no_vote"]


def test_otel_spans_and_evaluations(tmp_path: Path) -> None:
    def pairs(**values: Any) -> list[dict[str, Any]]:
        return [{"key": f"gen_ai.{name.replace('__', '.')}", "value": value} for name, value in values.items()]

    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Hi?"}]}])
    told = json.dumps(
        [{"role": "assistant", "parts": [{"type": "text", "content": "Hello."}], "finish_reason": "stop"}]
    )
    attributes = pairs(
        operation__name={"stringValue": "chat"},
        response__id={"stringValue": "chatcmpl-1"},
        input__messages={"stringValue": asked},
        output__messages={"stringValue": told},
    )
    span = {
        "traceId": "t",
        "spanId": "s",
        "name": "chat m",
        "startTimeUnixNano": str(T * 10**9),
        "attributes": attributes,
    }
    tool = {
        "traceId": "t",
        "spanId": "x",
        "name": "tool",
        "attributes": pairs(operation__name={"stringValue": "execute_tool"}),
    }
    voted = pairs(evaluation__name={"stringValue": "user_vote"}, evaluation__score__value={"doubleValue": 1.0})
    judged = pairs(evaluation__name={"stringValue": "relevance"}, evaluation__score__value={"doubleValue": 1.0})
    events = [
        {
            "traceId": "t",
            "spanId": "s",
            "eventName": "gen_ai.evaluation.result",
            "timeUnixNano": str(T * 10**9),
            "attributes": a,
        }
        for a in (voted, judged)
    ]
    rows = [
        {"resourceLogs": [{"scopeLogs": [{"logRecords": events}]}]},
        {"resourceSpans": [{"scopeSpans": [{"spans": [span, tool]}]}]},
    ]
    items = read_items("otel", write(tmp_path / "t.jsonl", rows))
    (chat,) = interactions(items)
    assert (chat.interaction_id, said(items)) == (key("chatcmpl-1"), [("thumb", "up")])
    assert {one.interaction_id for one in feedback(items)} == {chat.interaction_id}
    assert sorted(reason for _, reason in refusals(items)) == ["not_a_user", "not_chat"]


def test_otel_before_1_37_each_message_is_an_event(tmp_path: Path) -> None:
    events = [
        {"name": "gen_ai.user.message", "attributes": {"content": "Hi?"}},
        {"name": "gen_ai.choice", "attributes": {"index": 0, "message": '{"role":"assistant","content":"Hello."}'}},
    ]
    span = {"name": "chat m", "context": {"trace_id": "0xt", "span_id": "0xs"}, "start_time": "2025-01-01T00:00:00Z"}
    span |= {"attributes": {"gen_ai.system": "openai"}, "events": events}
    (chat,) = interactions(read_items("otel", write(tmp_path / "t.jsonl", [span])))
    assert (chat.request["messages"], chat.choices[0].message["content"]) == (
        [{"role": "user", "content": "Hi?"}],
        "Hello.",
    )


def test_argilla_of_both_versions(tmp_path: Path) -> None:
    two = {"prompt": "Hi?", "response-1": "Hello.", "response-2": "Go."}
    ranking = [{"value": "response-1", "rank": 1}, {"value": "response-2", "rank": 2}]
    tied = [{"value": "response-1", "rank": 1}, {"value": "response-2", "rank": 1}]
    rows = [
        {
            "_server_id": "1",
            "fields": two,
            "responses": {"order": [{"value": ranking, "user_id": "u"}, {"value": tied, "user_id": "v"}]},
        },
        {
            "_server_id": "2",
            "fields": {"chat": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yo."}]},
        },
        {
            "external_id": "3",
            "fields": {"prompt": "Hi?", "response": "Hello."},
            "responses": [
                {
                    "user_id": "u",
                    "status": "submitted",
                    "values": {"corrected": {"value": "Good day."}, "rating": {"value": 1}},
                },
                {"user_id": "v", "status": "discarded", "values": {"corrected": {"value": "No."}}},
            ],
        },
    ]
    rows[1]["responses"] = {"quality": [{"value": "good", "user_id": "u"}]}
    rows[1]["suggestions"] = {"quality": {"value": "bad", "agent": "gpt"}}
    items = read_items("argilla", write(tmp_path / "r.json", rows), scale=(1.0, 7.0))
    assert [kind for kind, _ in said(items)] == ["choice", "thumb", "edit", "rating"]
    assert said(items)[-1] == ("rating", 1.0)
    assert [reason for _, reason in refusals(items)] == ["draw", "draft"]
    unknown = read_items("argilla", tmp_path / "r.json")
    assert "unknown_value" in [reason for _, reason in refusals(unknown)]  # 1 of 7 is no thumb up


def test_labelstudio_results(tmp_path: Path) -> None:
    def task(number: int, data: dict[str, str], *results: dict[str, Any], **fields: Any) -> dict[str, Any]:
        about = {
            "id": number,
            "completed_by": {"email": "u@x"},
            "created_at": "2025-01-01T00:00:00Z",
            "result": list(results),
        }
        return {
            "id": number,
            "project": 1,
            "data": data,
            "annotations": [about | fields],
            "predictions": [{"result": [1]}],
        }

    two, one = {"prompt": "Hi?", "answer1": "Hello.", "answer2": "Go."}, {"prompt": "Hi?", "answer": "Hello."}
    rows = [
        task(1, two, {"type": "pairwise", "value": {"selected": "right"}}),
        task(
            2, one, {"type": "rating", "value": {"rating": 4}}, {"type": "textarea", "value": {"text": ["Good day."]}}
        ),
        task(3, one, {"type": "choices", "value": {"choices": ["Good"]}}),
        task(4, one, {"type": "choices", "value": {"choices": ["Good"]}}, was_cancelled=True),
        task(5, {"image": "x.png"}, {"type": "rectanglelabels", "value": {}}),
    ]
    items = read_items("labelstudio", write(tmp_path / "p.json", rows))
    assert said(items) == [
        ("choice", {"over": key("labelstudio/1/1/answer1")}),
        ("rating", 4.0),
        ("edit", "Good day."),
        ("thumb", "up"),
    ]
    assert [reason for _, reason in refusals(items)] == ["draft", "not_chat"]


def test_litellm_rows(tmp_path: Path) -> None:
    response = {"choices": [{"message": {"role": "assistant", "content": "Hello."}}]}
    row = {"request_id": "r1", "call_type": "acompletion", "startTime": "2025-01-01T00:00:00Z", "end_user": "u"}
    rows = [
        row | {"messages": json.dumps([{"role": "user", "content": "Hi?"}]), "response": json.dumps(response)},
        row | {"request_id": "r2", "messages": {}, "response": {}},
        row | {"request_id": "r3", "call_type": "aembedding"},
        row
        | {"request_id": "r4", "messages": [{"role": "user", "content": "Hi?"}], "response": {}, "status": "failure"},
    ]
    rows[0]["request_tags"] = ["user-feedback:down", "env:prod"]
    items = read_items("litellm", write(tmp_path / "l.jsonl", rows))
    assert [(one.interaction_id, one.status) for one in interactions(items)] == [(key("r1"), 200), (key("r4"), 500)]
    assert said(items) == [("thumb", "down")]
    assert [reason for _, reason in refusals(items)] == ["no_answer", "not_chat"]


def test_feedback_on_a_gateways_own_interaction_keeps_its_id(tmp_path: Path) -> None:
    ours = IDS.new_interaction("support")
    path = write(tmp_path / "f.jsonl", [{"interaction_id": ours, "kind": "thumb", "value": "up", "user_id": "u"}])
    (vote,) = feedback(read_items("generic", path))
    assert (vote.interaction_id, vote.user_key) == (ours, IDS.user_key("support", "u"))


def test_one_answer_has_one_id_in_every_tool_that_keeps_the_id(tmp_path: Path) -> None:
    events = tmp_path / "events"
    row = {
        "request_id": "r1",
        "messages": [{"role": "user", "content": "Hi?"}],
        "response": {"choices": [{"text": "Hello."}]},
    }
    import_into(events, "litellm", write(tmp_path / "l.jsonl", [row]))
    voted = import_into(events, "generic", write(tmp_path / "f.jsonl", [{"request_id": "r1", "thumb": "down"}]))
    assert (voted.joined, voted.unjoined) == (1, 0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": []}, "bad_messages"),
        ({"messages": [{"role": "system", "content": "你是客服"}]}, "bad_messages"),
        ({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant"}]}, "bad_messages"),
        ({"messages": ["Hi!", {"role": "user", "content": "Hi"}]}, "bad_messages"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "no_answer"),
        ({"prompt": "Hi", "answer": ""}, "no_answer"),
        ({"text": "Hello"}, "wrong_form"),
        ({"thumb": "up"}, "no_key"),
        ({"id": "x", "rating": 4}, "unknown_value"),
        ({"id": "x", "thumb": "up", "time": "yesterday"}, "no_time"),
        ({"id": "x", "comment": "长" * 20_001}, "too_long"),
    ],
)
def test_generic_refuses_with_line_and_reason(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    good = {"id": "y", "thumb": "up"}
    items = read_items("generic", write(tmp_path / "f.jsonl", [good, row, good]))
    assert refusals(items) == [("line 2", reason)]
    assert len(feedback(items)) == 2


def test_generic_keeps_real_orders_tool_turns_and_trims_to_the_last_answer(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "q", "arguments": '{"id":77}'}}
    messages = [
        {"role": "assistant", "content": "您好"},
        {"role": "user", "content": "在吗"},
        {"role": "user", "content": "查订单 77"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "content": "已发货。"},
        {"role": "user", "content": "谢谢"},
    ]
    (one,) = interactions(
        read_items("generic", write(tmp_path / "f.jsonl", [{"messages": messages, "feedback": "up"}]))
    )
    kept: Any = one.request["messages"]
    assert [m["role"] for m in kept] == ["assistant", "user", "user", "assistant", "tool"]
    assert kept[3]["tool_calls"] == [call]
    assert "None" not in json.dumps(kept)
    assert one.choices[0].message["content"] == "已发货。"


def test_twice_in_pieces_and_shuffled_gives_the_same_events(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"i{n}",
            "prompt": f"{n}?",
            "answer": f"{n}.",
            "rating": random.Random(n).choice([1, -1]),
            "user": f"u{n % 3}",
        }
        for n in range(40)
    ]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    first = import_into(whole, "generic", write(tmp_path / "all.jsonl", rows))
    again = import_into(whole, "generic", tmp_path / "all.jsonl")
    assert (first.interactions, first.feedback, first.joined) == (40, 40, 40)
    assert (again.stored, again.there) == (0, 80)
    random.Random(5).shuffle(rows)
    for number, piece in enumerate((rows[:25], rows[20:], rows[:3])):
        import_into(parts, "generic", write(tmp_path / f"{number}.jsonl", piece))
    assert logged(parts) == logged(whole)


def test_what_is_refused_takes_nothing_good_with_it(tmp_path: Path) -> None:
    """One part of a row that says nothing leaves the others."""
    tagged = {"request_id": "r", "messages": {}, "response": {}, "request_tags": ["user-feedback:up"]}
    items = read_items("litellm", write(tmp_path / "l.jsonl", [tagged]))
    assert (said(items), [reason for _, reason in refusals(items)]) == ([("thumb", "up")], ["no_answer"])
    edited = {"id": "1", "run_id": "r", "key": "bleu", "score": 0.3, "correction": "Better."}
    items = read_items("langsmith", write(tmp_path / "f.jsonl", [edited]))
    assert (said(items), [reason for _, reason in refusals(items)]) == ([("edit", "Better.")], ["not_a_user"])
    asked = {
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"Hi?"}]}]',
        "gen_ai.output.messages": "Yo.",
    }
    judged = {"name": "gen_ai.evaluation.result", "attributes": {"gen_ai.evaluation.name": "bias"}}
    span = {"name": "chat", "trace_id": "t", "span_id": "s", "attributes": asked, "events": [judged]}
    items = read_items("otel", write(tmp_path / "s.jsonl", [span]))
    assert (len(interactions(items)), [reason for _, reason in refusals(items)]) == (1, ["not_a_user"])
    same = {"prompt": "Hi?", "chosen": "Yo.", "rejected": "Yo."}
    items = read_items("generic", write(tmp_path / "p.jsonl", [same]))
    assert (len(interactions(items)), [reason for _, reason in refusals(items)]) == (2, ["draw"])
