"""TensorZero: rows of its tables or datasets (inferences, feedback, datapoints) as JSON lines, JSON or Parquet.

Ids are UUIDv7 and hold the time. Whether a `target_id` is an inference or a whole episode stands in the gateway's
configuration, not in the row: feedback on an episode finds no inference and is counted as not joined. Rows are never
changed; the latest of several counts.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pipeline.clean.text import message_text
from pipeline.collect.importers.blocks import blocks_to_messages
from pipeline.collect.importers.elements import read_each, read_elements
from pipeline.collect.importers.fields import key, member, number, parsed, text
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.messages import chat_messages, tool_definitions
from pipeline.collect.importers.moments import first_moment, uuid7_moment
from pipeline.collect.importers.refusal import Item, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.votes import check_is_a_users, score
from pipeline.records import FeedbackKind, Message


def read(source: Source, make: Make) -> Iterator[Item]:
    """Rows of any of the tables."""
    elements = read_elements(source, "data", "datapoints", "inferences", "feedback")
    return read_each(elements, lambda row: _one(row, make))


def _one(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "input" in row and "output" in row:
        return _inference(row, make)
    if "value" in row and ("target_id" in row or "inference_id" in row):
        return _feedback(row, make)
    raise Refused(RefusalReason.WRONG_FORM, "no inference, no datapoint, no feedback")


def _inference(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if row.get("is_deleted") is True or row.get("staled_at"):
        raise Refused(RefusalReason.DELETED, "the datapoint was deleted or replaced")
    inference = key(row, "id", "inference_id")
    answer = _answer(row.get("output"))
    if answer is None:
        raise Refused(RefusalReason.NO_ANSWER, "output is empty")
    at = _when(inference, row, make)
    source = text(row, "source_inference_id")
    if source and row.get("is_custom") is True:  # somebody has edited the answer of another inference
        yield make.feedback(source, FeedbackKind.EDIT, message_text(answer), at, source_id=inference)
        return
    asked = member(row, "input")
    turn = Turn(
        messages=_messages(asked),
        at=at,
        model=text(row, "variant_name") or text(row, "function_name"),
        conversation=text(row, "episode_id"),
        user=text(member(row, "tags"), "user_id", "user"),
        tools=tool_definitions(member(row, "tool_params"), member(row, "dynamic_tools")),
        latency_ms=number(row.get("processing_time_ms")) or 0.0,
    )
    yield make.interaction(inference, turn, Answer(answer))


def _messages(asked: dict[str, Any]) -> list[Message]:
    messages = chat_messages(asked.get("messages"))
    system = parsed(asked.get("system"))
    if isinstance(system, str) and system.strip():
        return [{"role": "system", "content": system}, *messages]
    if isinstance(system, dict):  # a template's arguments
        return [*blocks_to_messages("system", [{"arguments": system}]), *messages]
    return messages


def _answer(value: Any) -> Message | None:
    """A chat's blocks, or a JSON function's `raw` text."""
    value = parsed(value)
    if isinstance(value, str):
        return {"role": "assistant", "content": value} if value.strip() else None
    if isinstance(value, dict):
        raw = text(value, "raw")
        return {"role": "assistant", "content": raw} if raw else None
    made = blocks_to_messages("assistant", value) if isinstance(value, list) else []
    said = [one for one in made if message_text(one).strip() or one.get("tool_calls")]
    return said[0] if said else None


def _feedback(row: dict[str, Any], make: Make) -> Iterator[Item]:
    feedback = text(row, "id")
    if text(row, "target_type") == "episode" or (
        text(row, "episode_id") and not text(row, "inference_id", "target_id")
    ):
        raise Refused(RefusalReason.NOT_ONE_ANSWER, "about a whole episode")
    target = key(row, "target_id", "inference_id")
    at = _when(feedback, row, make)
    common: dict[str, Any] = {"at": at, "user": text(member(row, "tags"), "user_id", "user"), "source_id": feedback}
    name = text(row, "metric_name")
    if name == "demonstration" or (not name and "inference_id" in row):
        answer = _answer(row["value"])
        if answer is None:
            raise Refused(RefusalReason.NO_VOTE, "an empty demonstration")
        yield make.feedback(target, FeedbackKind.EDIT, message_text(answer), **common)
    elif name == "comment" or not name:
        words = row["value"]
        if not isinstance(words, str) or not words.strip():
            raise Refused(RefusalReason.NO_VOTE, "an empty comment")
        yield make.feedback(target, FeedbackKind.COMMENT, words, **common)
    else:
        check_is_a_users(name, make.scores)
        kind, value = score(row["value"], make.scale)
        yield make.feedback(target, kind, value, reason=why(f"{name}={row['value']}"[:200]), **common)


def _when(row_id: str, row: dict[str, Any], make: Make) -> datetime | None:
    return uuid7_moment(row_id) or first_moment(make.zone, row.get("timestamp"), row.get("updated_at"))
