"""LiteLLM: rows of its spend log (database export, `GET /spend/logs`), as JSON, JSON lines, CSV or Parquet.

Prompts and answers are only there when `store_prompts_in_spend_logs` is on. There is no column for feedback: it comes
by request tags such as `user-feedback:up`, or from another tool that kept the request id.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.elements import attempt, read_each, read_elements
from pipeline.collect.importers.fields import key, member, number, parsed, text, texts
from pipeline.collect.importers.generations import milliseconds
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.messages import answer_message, chat_messages, tool_definitions
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.votes import check_is_a_users, score
from pipeline.records import StreamEnd

_CHAT = frozenset({"", "completion", "acompletion", "text_completion", "atext_completion", "responses", "aresponses"})


def read(source: Source, make: Make) -> Iterator[Item]:
    """One interaction a row, and what its tags say."""
    return read_each(read_elements(source, "data", "logs"), lambda row: _one(row, make))


def _one(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "request_id" not in row:
        raise Refused(RefusalReason.WRONG_FORM, "no row of the spend log: no request_id")
    if text(row, "call_type") not in _CHAT:
        raise Refused(RefusalReason.NOT_CHAT, f"a call of type {text(row, 'call_type')[:40]!r}")
    request_id = key(row, "request_id")
    asked = member(row, "proxy_server_request")
    messages = chat_messages(parsed(row.get("messages"))) or chat_messages(asked)
    said, failed = parsed(row.get("response")), text(row, "status") == "failure"
    answer = answer_message(said) if said else None
    user = text(row, "end_user", "user")
    start = first_moment(make.zone, row.get("startTime"))
    for tag in texts(row, "request_tags"):
        yield from attempt("", lambda tag=tag: _tag(tag, request_id, user, start, make))  # type: ignore[misc]
    if not messages:
        yield Refusal("", RefusalReason.NO_ANSWER, "prompts are not stored; switch store_prompts_in_spend_logs on")
        return
    tokens = number(row.get("prompt_tokens")), number(row.get("completion_tokens"))
    turn = Turn(
        messages=messages,
        at=start,
        model=text(row, "model_group", "model"),
        conversation=text(row, "session_id"),
        user=user,
        tools=tool_definitions(asked),
        tokens=None if None in tokens else (int(tokens[0] or 0), int(tokens[1] or 0)),
        latency_ms=milliseconds(start, first_moment(make.zone, row.get("endTime"))),
    )
    ended = Answer(answer or {"role": "assistant", "content": ""})
    if failed:
        ended = Answer(ended.message, None, StreamEnd.UPSTREAM_ERROR, 500)
    yield make.interaction(request_id, turn, ended)


def _tag(tag: str, request_id: str, user: str, at: Any, make: Make) -> Iterator[Item]:
    """A vote among the tags; all other tags say nothing about the answer."""
    name, colon, value = tag.replace("=", ":", 1).partition(":")
    if not colon:
        return
    try:
        check_is_a_users(name, make.scores)
    except Refused:
        return
    kind, vote = score(value.strip(), make.scale)
    yield make.feedback(request_id, kind, vote, at, user=user, reason=why(tag[:200]))
