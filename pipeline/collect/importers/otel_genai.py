"""OpenTelemetry GenAI: spans and log events as OTLP JSON (a collector's file exporter) or as an SDK prints them.

`gen_ai.evaluation.result` does not say who evaluated, so only names that say "user" count, or those named with --score.
Messages are JSON inside strings on spans and structured on events; up to version 1.36 each is an event of its own.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.elements import Element, attempt, read_elements
from pipeline.collect.importers.fields import member, number, parsed, text, texts
from pipeline.collect.importers.generations import milliseconds
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.messages import answer_message, chat_messages, tool_definitions
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.otlp import things_of
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.spool import Spool
from pipeline.collect.importers.votes import check_is_a_users, score
from pipeline.records import Message, StreamEnd

_EVALUATION = "gen_ai.evaluation.result"
_OPERATIONS = frozenset({"chat", "text_completion", "generate_content", ""})
_OLD_ROLES = {"gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.tool.message": "tool"}


def read(source: Source, make: Make) -> Iterator[Item]:
    """Spans and events, brought together by trace: an evaluation may name its answer only by its span."""
    with Spool() as spool:
        for element in read_elements(source, "resourceSpans", "resourceLogs"):
            if isinstance(element, Refusal):
                yield element
                continue
            things = list(things_of(element.value))
            for thing in things:
                spool.add(thing["trace"], element.place, thing)
            if not things:
                yield Refusal(element.place, RefusalReason.WRONG_FORM, "no span, no event")
        for _, elements in spool.groups():
            yield from _trace(elements, make)


def _trace(elements: list[Element], make: Make) -> Iterator[Item]:
    keys: dict[str, str] = {}
    for element in elements:
        thing = element.value
        response = text(thing["attributes"], "gen_ai.response.id")
        if response and thing["name"] != _EVALUATION:
            keys.setdefault(thing["span"], response)
    for element in elements:
        yield from attempt(element.place, lambda thing=element.value: _one(thing, keys, make))  # type: ignore[misc]


def _one(thing: dict[str, Any], keys: dict[str, str], make: Make) -> Iterator[Item]:
    attributes = thing["attributes"]
    if thing["name"] == _EVALUATION:
        yield _evaluation(thing, keys, make)
    elif text(attributes, "gen_ai.operation.name") not in _OPERATIONS or not _is_genai(attributes):
        raise Refused(RefusalReason.NOT_CHAT, f"{thing['name'][:60]!r} is no call of a chat model")
    else:
        yield _call(thing, keys, make)
        for event in thing["events"]:
            if event["name"] == _EVALUATION:
                one = {**event, "trace": thing["trace"], "span": thing["span"]}
                yield from attempt("", lambda one=one: [_evaluation(one, keys, make)])  # type: ignore[misc]


def _is_genai(attributes: dict[str, Any]) -> bool:
    return any(name.startswith("gen_ai.") for name in attributes)


def _key(thing: dict[str, Any], keys: dict[str, str]) -> str:
    response = text(thing["attributes"], "gen_ai.response.id") or keys.get(thing["span"], "")
    if response:
        return response
    if not thing["span"]:
        raise Refused(RefusalReason.NO_KEY, "neither gen_ai.response.id nor a span")
    return f"{thing['trace']}/{thing['span']}"


def _call(thing: dict[str, Any], keys: dict[str, str], make: Make) -> Item:
    found = dict(thing["attributes"])
    for event in thing["events"]:
        found.update({name: value for name, value in event["attributes"].items() if name not in found})
    messages, answer = _messages(found, thing)
    if not messages:
        raise Refused(RefusalReason.NOT_CHAT, "its messages were not recorded")
    start = first_moment(make.zone, thing["start"])
    tokens = number(found.get("gen_ai.usage.input_tokens")), number(found.get("gen_ai.usage.output_tokens"))
    turn = Turn(
        messages=messages,
        at=start,
        model=text(found, "gen_ai.response.model", "gen_ai.request.model"),
        conversation=text(found, "gen_ai.conversation.id", "session.id"),
        user=text(found, "user.id", "enduser.id"),
        tools=tool_definitions(found.get("gen_ai.tool.definitions")),
        tokens=None if None in tokens else (int(tokens[0] or 0), int(tokens[1] or 0)),
        latency_ms=milliseconds(start, first_moment(make.zone, thing["end"])),
    )
    reasons = texts(found, "gen_ai.response.finish_reasons")
    ended = Answer(answer or {"role": "assistant", "content": ""}, reasons[0] if reasons else "stop")
    if text(found, "error.type"):
        ended = Answer(ended.message, None, StreamEnd.UPSTREAM_ERROR, 500)
    return make.interaction(_key(thing, keys), turn, ended)


def _messages(found: dict[str, Any], thing: dict[str, Any]) -> tuple[list[Message], Message | None]:
    messages = chat_messages(parsed(found.get("gen_ai.input.messages")))
    answer = answer_message(parsed(found.get("gen_ai.output.messages")))
    system = parsed(found.get("gen_ai.system_instructions"))
    if isinstance(system, list):
        messages = [*chat_messages([{"role": "system", "parts": system}]), *messages]
    elif isinstance(system, str) and system.strip():
        messages = [{"role": "system", "content": system}, *messages]
    if messages:
        return messages, answer
    for event in thing["events"]:  # up to version 1.36
        body = {**event["attributes"], **member(event, "body")}
        if event["name"] == "gen_ai.choice":
            answer = answer_message(member(body, "message") or body)
        elif event["name"] == "gen_ai.assistant.message":
            messages += chat_messages([{"role": "assistant", "content": "", **body}])
        elif event["name"] in _OLD_ROLES:
            messages += chat_messages([{**body, "role": _OLD_ROLES[event["name"]], "content": body.get("content")}])
    return messages, answer


def _evaluation(thing: dict[str, Any], keys: dict[str, str], make: Make) -> Item:
    found = thing["attributes"]
    name = text(found, "gen_ai.evaluation.name")
    if text(found, "error.type"):
        raise Refused(RefusalReason.NO_VOTE, "the evaluation failed")
    check_is_a_users(name, make.scores)
    label, value = text(found, "gen_ai.evaluation.score.label"), found.get("gen_ai.evaluation.score.value")
    kind, vote = score(label if value is None else value, make.scale)
    return make.feedback(
        _key(thing, keys),
        kind,
        vote,
        first_moment(make.zone, thing["start"]),
        user=text(found, "user.id", "enduser.id"),
        reason=why(f"{name}={label or value}"[:200], text(found, "gen_ai.evaluation.explanation")),
    )
