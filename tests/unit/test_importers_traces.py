"""Tools that log calls (Langfuse, LangSmith, TensorZero, MLflow, OpenTelemetry, LiteLLM): one trap a test."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importing import (
    T,
    feedback,
    interactions,
    key,
    read_items,
    refusals,
    said,
    write,
)

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
