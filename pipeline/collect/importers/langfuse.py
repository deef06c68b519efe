"""Langfuse: downloaded traces, exported traces, observations and scores (JSON, JSONL, CSV, Parquet, API pages).

Scores come from users, from code and from judge models, all alike: `EVAL` is never a user's, of the others only those
whose name says so (or that are named with --score). A trace row of the table export shows averages per score name, not
votes, so those columns are left alone. The text of a correction is in the API's answer, not in the table export.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue

from pipeline.collect.importers.elements import Element, attempt, read_elements
from pipeline.collect.importers.fields import key, member, members, number, parsed, text
from pipeline.collect.importers.generations import Generation, Trace, milliseconds, whole_trace
from pipeline.collect.importers.make import Make, why
from pipeline.collect.importers.messages import answer_message, chat_messages, tool_definitions
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.spool import Spool
from pipeline.collect.importers.votes import check_is_a_users, score, thumb
from pipeline.records import FeedbackKind

_KINDS = frozenset({"GENERATION", "SPAN", "EVENT", "TOOL", "AGENT", "CHAIN", "RETRIEVER", "EMBEDDING", "EVALUATOR"})


def read(source: Source, make: Make) -> Iterator[Item]:
    """What stands in the file; observations are brought together by trace, wherever they stand."""
    with Spool() as spool:
        for element in read_elements(source, "data", "scores", "traces"):
            if isinstance(element, Refusal):
                yield element
            elif text(element.value, "type") in _KINDS and "dataType" not in element.value:
                yield from _keep(spool, element)
            else:
                row = element.value
                yield from attempt(element.place, lambda row=row: _one(row, make))  # type: ignore[misc]
        for trace_id, elements in spool.groups():
            observations = [element.value for element in elements]
            yield from attempt(elements[0].place, lambda: _trace({"id": trace_id}, observations, make))  # noqa: B023


def _keep(spool: Spool, element: Element) -> Iterator[Item]:
    trace_id = text(element.value, "traceId", "trace_id")
    if trace_id:
        spool.add(trace_id, element.place, element.value)
    else:
        yield Refusal(element.place, RefusalReason.NO_KEY, "an observation without traceId")


def _one(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "trace" in row and "observations" in row:
        return _trace(member(row, "trace"), members(row, "observations"), make)
    if "dataType" in row or ("name" in row and ("value" in row or "stringValue" in row) and "input" not in row):
        return _score(row, make, None)
    if "input" in row and "output" in row:
        return _trace(row, members(row, "observations"), make)
    raise Refused(RefusalReason.WRONG_FORM, "no trace, no observation, no score")


def _trace(row: dict[str, Any], observations: list[dict[str, Any]], make: Make) -> Iterator[Item]:
    found = [_generation(one, make) for one in observations if text(one, "type") == "GENERATION"]
    if not found and row.get("input") is not None:
        at = first_moment(make.zone, row.get("timestamp"), row.get("createdAt"))
        found = [whole_trace(key(row, "id"), row["input"], row.get("output"), at)]
    about = observations[0] if observations else {}
    trace = Trace(
        trace_id=key(row, "id"),
        generations=found,
        output=row.get("output"),
        conversation=text(row, "sessionId") or text(about, "sessionId"),
        user=text(row, "userId") or text(about, "userId"),
    )
    if not found:
        yield Refusal("", RefusalReason.NOT_CHAT, "a trace without any generation")
    yield from trace.interactions(make)
    for one in [*members(row, "scores"), *members(row, "corrections")]:
        yield from attempt("", lambda one=one: _score(one, make, trace))  # type: ignore[misc]


def _generation(row: dict[str, Any], make: Make) -> Generation:
    request, output = parsed(row.get("input")), parsed(row.get("output"))
    messages = chat_messages(request)
    instructions = text(output, "instructions") if isinstance(output, dict) else ""
    if instructions and messages and messages[0].get("role") != "system":  # OpenAI's Responses repeat them there
        messages = [{"role": "system", "content": instructions}, *messages]
    start = first_moment(make.zone, row.get("startTime"), row.get("start_time"))
    usage = member(row, "usageDetails") or member(row, "usage")
    tokens = number(usage.get("input")), number(usage.get("output"))
    metadata = member(row, "metadata")
    attributes = member(metadata, "attributes")
    return Generation(
        generation_id=key(row, "id"),
        messages=messages,
        answer=answer_message(output),
        at=start,
        model=text(row, "model", "providedModelName", "internalModelId"),
        tools=tool_definitions(
            request, output, metadata, attributes.get("model_request_parameters"), attributes.get("ai.prompt.tools")
        ),
        tokens=None if None in tokens else (int(tokens[0] or 0), int(tokens[1] or 0)),
        latency_ms=milliseconds(start, first_moment(make.zone, row.get("endTime"), row.get("end_time"))),
        failed=text(row, "level") == "ERROR",
    )


def _score(row: dict[str, Any], make: Make, trace: Trace | None) -> Iterator[Item]:
    name, kind = text(row, "name"), text(row, "dataType", "data_type").upper()
    if text(row, "source").upper() == "EVAL":
        raise Refused(RefusalReason.NOT_A_USER, f"score {name[:60]!r} of a judge model")
    target = _target(row, trace)
    common: dict[str, Any] = {
        "at": first_moment(make.zone, row.get("timestamp"), row.get("updatedAt"), row.get("createdAt")),
        "user": text(row, "authorUserId", "userId") or (trace.user if trace else ""),
        "source_id": text(row, "id"),
    }
    if kind == "CORRECTION":
        edited = text(row, "longStringValue", "stringValue", "value", "content")
        if edited in ("", "0"):
            raise Refused(RefusalReason.NO_VOTE, "this export lacks the correction's text; take it from the API")
        yield make.feedback(target, FeedbackKind.EDIT, edited, **common)
        return
    check_is_a_users(name, make.scores)
    vote, value = _vote(row, kind, make)
    raw = text(row, "stringValue") or row.get("value")
    yield make.feedback(target, vote, value, reason=why(f"{name}={raw}"[:200]), **common)
    if vote is not FeedbackKind.COMMENT and (comment := text(row, "comment")):
        yield make.feedback(target, FeedbackKind.COMMENT, comment, **common)


def _vote(row: dict[str, Any], kind: str, make: Make) -> tuple[FeedbackKind, JsonValue]:
    label, value = text(row, "stringValue"), row.get("value")
    if kind == "TEXT":
        words = label or text(row, "value")
        if not words:
            raise Refused(RefusalReason.NO_VOTE, "an empty text")
        return FeedbackKind.COMMENT, words
    if kind == "CATEGORICAL":
        return FeedbackKind.THUMB, thumb(label or value)
    if kind == "BOOLEAN":
        return FeedbackKind.THUMB, thumb(label) if label else ("up" if number(value) or value is True else "down")
    return score(value if value not in (None, "") else label, make.scale)


def _target(row: dict[str, Any], trace: Trace | None) -> str:
    """What a score is about. v3 says so in `subject`, the older forms in a field each."""
    subject = member(row, "subject")
    if text(subject, "kind") in ("session", "experiment"):
        raise Refused(RefusalReason.NOT_ONE_ANSWER, f"about a whole {text(subject, 'kind')}")
    trace_id = text(row, "traceId", "trace_id") or text(subject, "traceId")
    observation = text(row, "observationId", "observation_id")
    if text(subject, "kind") == "observation":
        observation = text(subject, "id")
    elif text(subject, "kind") == "trace":
        trace_id = text(subject, "id")
    if not trace_id and trace is None:
        if text(row, "sessionId") or text(row, "datasetRunId"):
            raise Refused(RefusalReason.NOT_ONE_ANSWER, "about a whole session or run")
        raise Refused(RefusalReason.NO_KEY, "no traceId")
    if trace is not None:
        return trace.key(observation)
    return f"{trace_id}/{observation}" if observation else trace_id
