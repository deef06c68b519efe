"""MLflow: traces (JSON of `Trace.to_json`, the API, or a downloaded table) and assessments.

Only assessments whose source is a human count; `expectation` is the answer as it should have been. An assessment that a
later one overrides is no longer valid. Inputs and outputs of spans are JSON inside strings.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.elements import attempt, read_each, read_elements
from pipeline.collect.importers.fields import key, member, members, parsed, text
from pipeline.collect.importers.generations import Generation, Trace, milliseconds, whole_trace
from pipeline.collect.importers.make import Make, why
from pipeline.collect.importers.messages import answer_message, chat_messages, tool_definitions
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.votes import check_is_a_users, score
from pipeline.records import FeedbackKind

_CHAT = frozenset({"CHAT_MODEL", "LLM"})


def read(source: Source, make: Make) -> Iterator[Item]:
    """Traces with their assessments, or assessments alone."""
    return read_each(read_elements(source, "traces", "assessments"), lambda row: _one(row, make))


def _one(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "info" in row or "data" in row or "spans" in row:
        return _trace(row, make)
    if "feedback" in row or "expectation" in row or "assessment_name" in row:
        return _assessment(row, make, None)
    if "trace_id" in row and ("request" in row or "response" in row):
        return _trace({"info": row, "assessments": row.get("assessments")}, make)
    raise Refused(RefusalReason.WRONG_FORM, "no trace, no assessment")


def _trace(row: dict[str, Any], make: Make) -> Iterator[Item]:
    info = member(row, "info")
    trace_id = key(info, "trace_id", "request_id") if info else key(row, "trace_id")
    about = {**member(info, "request_metadata"), **member(info, "trace_metadata"), **member(info, "tags")}
    spans = members(member(row, "data"), "spans") or members(row, "spans") or members(info, "spans")
    found = [_generation(span, make) for span in spans if _kind(span) in _CHAT]
    root = next((span for span in spans if not text(span, "parent_id", "parent_span_id")), {})
    asked, said = _attribute(root, "mlflow.spanInputs"), _attribute(root, "mlflow.spanOutputs")
    asked = asked if asked is not None else info.get("request") or info.get("request_preview")
    said = said if said is not None else info.get("response") or info.get("response_preview")
    if not found and asked is not None:
        at = first_moment(
            make.zone, info.get("request_time"), info.get("timestamp_ms"), root.get("start_time_unix_nano")
        )
        found = [whole_trace(text(root, "span_id") or trace_id, asked, said, at)]
    trace = Trace(
        trace_id=trace_id,
        generations=found,
        output=said,
        conversation=text(about, "mlflow.trace.session"),
        user=text(about, "mlflow.trace.user"),
    )
    if not found:
        yield Refusal("", RefusalReason.NOT_CHAT, "a trace without any call of a model")
    yield from trace.interactions(make)
    for one in members(info, "assessments") or members(row, "assessments"):
        yield from attempt("", lambda one=one: _assessment(one, make, trace))  # type: ignore[misc]


def _attribute(span: dict[str, Any], name: str) -> Any:
    return parsed(member(span, "attributes").get(name))


def _kind(span: dict[str, Any]) -> str:
    kind = _attribute(span, "mlflow.spanType")
    return kind if isinstance(kind, str) else text(span, "span_type")


def _generation(span: dict[str, Any], make: Make) -> Generation:
    asked, said = _attribute(span, "mlflow.spanInputs"), _attribute(span, "mlflow.spanOutputs")
    start = first_moment(make.zone, span.get("start_time_unix_nano"), span.get("start_time"))
    end = first_moment(make.zone, span.get("end_time_unix_nano"), span.get("end_time"))
    model = _attribute(span, "mlflow.llm.model")
    named = asked if isinstance(asked, dict) else {}
    status = span.get("status")
    code = text(status, "code", "status_code") if isinstance(status, dict) else str(status)
    return Generation(
        generation_id=key(span, "span_id"),
        messages=chat_messages(asked),
        answer=answer_message(said),
        at=start,
        model=model
        if isinstance(model, str)
        else text(said if isinstance(said, dict) else {}, "model") or text(named, "model"),
        tools=tool_definitions(_attribute(span, "mlflow.chat.tools"), asked),
        latency_ms=milliseconds(start, end),
        failed="ERROR" in code,
    )


def _assessment(row: dict[str, Any], make: Make, trace: Trace | None) -> Iterator[Item]:
    name, origin = text(row, "assessment_name", "name"), member(row, "source")
    if text(origin, "source_type").upper() != "HUMAN":
        raise Refused(RefusalReason.NOT_A_USER, f"assessment {name[:60]!r} of {text(origin, 'source_type')[:20]!r}")
    if row.get("valid") is False:
        raise Refused(RefusalReason.DELETED, "overridden by a later assessment")
    trace_id, span = text(row, "trace_id"), text(row, "span_id")
    if trace is not None:
        target = trace.key(span)
    elif trace_id:
        target = f"{trace_id}/{span}" if span else trace_id
    else:
        raise Refused(RefusalReason.NO_KEY, "no trace_id")
    times = ("last_update_time_ms", "last_update_time", "create_time_ms", "create_time")
    common: dict[str, Any] = {
        "at": first_moment(make.zone, *(row.get(field) for field in times)),
        "user": text(origin, "source_id"),
        "source_id": text(row, "assessment_id"),
    }
    if "expectation" in row:
        yield make.feedback(target, FeedbackKind.EDIT, _expected(row), **common)
        return
    feedback = member(row, "feedback")
    if feedback.get("value") is None:
        raise Refused(RefusalReason.NO_VOTE, "an assessment without a value")
    check_is_a_users(name, make.scores)
    kind, value = score(feedback["value"], make.scale)
    reason = why(f"{name}={feedback['value']}"[:200], text(row, "rationale"))
    yield make.feedback(target, kind, value, reason=reason, **common)


def _expected(row: dict[str, Any]) -> str:
    value = parsed(member(row, "expectation").get("value"))
    serialised = member(row, "expectation").get("serialized_value")
    value = value if value is not None else parsed(member({"v": serialised}, "v").get("value"))
    answer = answer_message(value)
    content = answer.get("content") if answer else None
    if not isinstance(content, str) or not content.strip():
        raise Refused(RefusalReason.UNKNOWN_VALUE, "an expectation that is no text")
    return content
