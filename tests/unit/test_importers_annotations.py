"""Tools in which people review answers (Argilla, Label Studio, Dify): one trap a test."""

from pathlib import Path
from typing import Any

from tests.importing import T, feedback, import_into, interactions, key, rated, read_items, refusals, said, write

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
