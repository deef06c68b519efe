"""OTLP's JSON, where every value stands in a wrapper of its own, and the flat JSON that SDKs print, as one form."""

from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.fields import member, members, text

_DEEPEST = 50


def things_of(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Spans and log events of a row: name, trace, span, start, end, attributes, body, events."""
    if "scopeSpans" in row or "scopeLogs" in row:  # one entry of resourceSpans or resourceLogs
        yield from _of_resource(row)
    elif "resourceSpans" in row or "resourceLogs" in row:
        for resource in [*members(row, "resourceSpans"), *members(row, "resourceLogs")]:
            yield from _of_resource(resource)
    elif "attributes" in row:
        yield _thing(row)


def _of_resource(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for scope in members(resource, "scopeSpans"):
        yield from map(_thing, members(scope, "spans"))
    for scope in members(resource, "scopeLogs"):
        yield from map(_thing, members(scope, "logRecords"))


def _thing(row: dict[str, Any]) -> dict[str, Any]:
    context = member(row, "context")  # an SDK's console exporter
    attributes = attributes_of(row.get("attributes"))
    body = plain(row.get("body"))
    return {
        "name": text(row, "eventName", "event_name", "name") or text(attributes, "event.name"),
        "trace": text(row, "traceId", "trace_id") or text(context, "trace_id").removeprefix("0x"),
        "span": text(row, "spanId", "span_id") or text(context, "span_id").removeprefix("0x"),
        "start": next((row[name] for name in _TIMES if row.get(name)), None),
        "end": row.get("endTimeUnixNano") or row.get("end_time"),
        "attributes": attributes,
        "body": body if isinstance(body, dict) else {},
        "events": [_thing(event) for event in members(row, "events")],
    }


_TIMES = ("startTimeUnixNano", "start_time", "timeUnixNano", "observedTimeUnixNano", "timestamp")


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes by name, from OTLP's list of pairs or from an object."""
    if isinstance(value, dict):
        return value
    pairs = value if isinstance(value, list) else []
    return {str(pair["key"]): plain(pair.get("value")) for pair in pairs if isinstance(pair, dict) and "key" in pair}


def plain(value: Any, depth: int = 0) -> Any:
    """A value out of its wrapper."""
    if not isinstance(value, dict) or depth > _DEEPEST:
        return value
    for name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if name in value:
            return value[name]
    if "intValue" in value:  # 64 bits, so that JSON keeps it as text
        return int(value["intValue"]) if str(value["intValue"]).lstrip("-").isdigit() else value["intValue"]
    if "arrayValue" in value:
        return [
            plain(one, depth + 1)
            for one in members(value, "arrayValue") or members(member(value, "arrayValue"), "values")
        ]
    if "kvlistValue" in value:
        pairs = members(member(value, "kvlistValue"), "values")
        return {text(pair, "key"): plain(pair.get("value"), depth + 1) for pair in pairs}
    return value
