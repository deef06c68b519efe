"""The documented generic form, and what holds for all importers: ids, refusals, and importing again."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.collect.importers.store import Digests
from tests.importing import (
    IDS,
    feedback,
    import_into,
    interactions,
    logged,
    read_items,
    refusals,
    said,
    write,
)


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


DIGEST = st.one_of(
    st.binary(min_size=16, max_size=16), st.sampled_from([bytes(16), b"\1" + bytes(15), b"\0" * 15 + b"\1"])
)


@settings(max_examples=50, deadline=None)
@given(st.lists(DIGEST, max_size=20), st.lists(DIGEST, max_size=20))
def test_what_was_imported_is_known_and_nothing_else(stored: list[bytes], others: list[bytes]) -> None:
    known = Digests(stored)
    assert [digest in known for digest in [*stored, *others]] == [
        digest in set(stored) for digest in [*stored, *others]
    ]
