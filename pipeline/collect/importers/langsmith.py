"""LangSmith: runs and feedback, as JSON, JSON lines, Parquet (bulk export) or the bodies that its SDK posts.

`session_id` is the project, not the conversation. Feedback of `type: model` is a judge's. Answers that were compared
with each other carry one `feedback_group_id`: their scores mean only which was better. `feedback_stats` on a run are
averages over people and are left alone.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.elements import attempt, read_elements
from pipeline.collect.importers.fields import key, member, members, number, parsed, text
from pipeline.collect.importers.generations import Generation, Trace, milliseconds
from pipeline.collect.importers.make import Make, why
from pipeline.collect.importers.messages import answer_message, chat_messages, tool_definitions
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.votes import check_is_a_users, score
from pipeline.records import FeedbackKind

_CHAT = frozenset({"llm", "chain", "chat", ""})
_Groups = defaultdict[str, list[tuple[float, str, dict[str, Any]]]]


def read(source: Source, make: Make) -> Iterator[Item]:
    """Runs and feedback in any order; comparisons when all of a group was seen."""
    groups: _Groups = defaultdict(list)
    for element in read_elements(source, "data", "runs", "feedback", "results"):
        if isinstance(element, Refusal):
            yield element
        else:
            row = element.value
            yield from attempt(element.place, lambda row=row: _one(row, make, groups))  # type: ignore[misc]
    for name, group in sorted(groups.items()):
        yield from attempt(f"group {name}", lambda group=group: _compared(group, make))  # type: ignore[misc]


def _one(row: dict[str, Any], make: Make, groups: _Groups) -> Iterator[Item]:
    if "post" in row or "patch" in row:
        for run in _merged(members(row, "post"), members(row, "patch")):
            yield from _run(run, make)
    elif "key" in row and ("score" in row or "value" in row or "correction" in row):
        yield from _feedback(row, make, groups)
    elif "run_type" in row or "inputs" in row:
        yield from _run(row, make)
    else:
        raise Refused(RefusalReason.WRONG_FORM, "no run, no feedback")


def _merged(posted: list[dict[str, Any]], patched: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs as they were begun, with what was said at their end. Some patches name the run only in `dotted_order`."""
    runs = {text(run, "dotted_order") or text(run, "id"): run for run in posted}
    for patch in patched:
        name = text(patch, "dotted_order") or text(patch, "id")
        filled = {field: value for field, value in patch.items() if value not in (None, {}, [])}
        runs[name] = {**runs.get(name, {}), **filled}
    return list(runs.values())


def _run(row: dict[str, Any], make: Make) -> Iterator[Item]:
    kind = text(row, "run_type")
    if kind not in _CHAT:
        raise Refused(RefusalReason.NOT_CHAT, f"a run of type {kind[:40]!r}")
    run_id = key(row, "id", "trace_id")
    inputs, outputs = member(row, "inputs"), member(row, "outputs")
    metadata = member(member(row, "extra"), "metadata")
    start = first_moment(make.zone, row.get("start_time"))
    tokens = number(row.get("prompt_tokens")), number(row.get("completion_tokens"))
    invocation = member(member(row, "extra"), "invocation_params")
    run = Generation(
        generation_id=run_id,
        messages=chat_messages(inputs),
        answer=answer_message(outputs),
        at=start,
        model=text(outputs, "model") or text(metadata, "ls_model_name") or text(inputs, "model"),
        tools=tool_definitions(inputs, invocation),
        tokens=None if None in tokens else (int(tokens[0] or 0), int(tokens[1] or 0)),
        latency_ms=milliseconds(start, first_moment(make.zone, row.get("end_time"))),
        failed=bool(row.get("error")),
    )
    conversation = text(metadata, "session_id", "thread_id", "conversation_id")
    user = text(metadata, "user_id", "user", "ls_user_id")
    yield from Trace(run_id, [run], conversation=conversation, user=user).interactions(make)


def _feedback(row: dict[str, Any], make: Make, groups: _Groups) -> Iterator[Item]:
    name, origin = text(row, "key"), member(row, "feedback_source")
    if text(origin, "type") == "model":
        raise Refused(RefusalReason.NOT_A_USER, f"score {name[:60]!r} of a judge model")
    run_id = text(row, "run_id")
    if not run_id:
        raise Refused(RefusalReason.NOT_ONE_ANSWER, "about a whole project: no run_id")
    common: dict[str, Any] = {
        "at": first_moment(make.zone, row.get("modified_at"), row.get("created_at")),
        "user": text(origin, "user_id", "user_name") or text(member(origin, "metadata"), "user_id"),
        "source_id": text(row, "id"),
    }
    if (edited := _correction(row.get("correction"))) is not None:
        yield make.feedback(run_id, FeedbackKind.EDIT, edited, **common)
    if row.get("score") is not None or row.get("value") is not None:
        yield from attempt("", lambda: _scored(row, run_id, make, groups, common))
    elif comment := text(row, "comment"):
        yield make.feedback(run_id, FeedbackKind.COMMENT, comment, **common)
    elif edited is None:
        raise Refused(RefusalReason.NO_VOTE)


def _scored(row: dict[str, Any], run_id: str, make: Make, groups: _Groups, common: dict[str, Any]) -> Iterator[Item]:
    name = text(row, "key")
    check_is_a_users(name, make.scores)
    value = row["score"] if row.get("score") is not None else row["value"]
    if group := text(row, "feedback_group_id"):
        groups[group].append((_points(value), run_id, common))
        return
    kind, vote = score(value, make.scale)
    yield make.feedback(run_id, kind, vote, reason=why(f"{name}={value}"[:200]), **common)
    if comment := text(row, "comment"):
        yield make.feedback(run_id, FeedbackKind.COMMENT, comment, **common)


def _points(value: Any) -> float:
    found = number(value) if not isinstance(value, bool) else float(value)
    if found is None:
        raise Refused(RefusalReason.UNKNOWN_VALUE, f"{str(value)[:40]!r} is no score")
    return found


def _correction(value: Any) -> str | None:
    value = parsed(value)
    if isinstance(value, str):
        return value if value.strip() else None
    if not isinstance(value, dict) or not value:
        return None
    answer = answer_message(value)
    content = answer.get("content") if answer else None
    return content if isinstance(content, str) and content.strip() else None


def _compared(group: list[tuple[float, str, dict[str, Any]]], make: Make) -> Iterator[Item]:
    """The best of answers that were compared, over the next one."""
    ranked = sorted(group, key=lambda one: (-one[0], one[1]))
    if len(ranked) < 2 or ranked[0][0] == ranked[1][0]:
        raise Refused(RefusalReason.DRAW, "no answer of the group is the best")
    (_, best, common), (_, second, _) = ranked[:2]
    yield make.feedback(best, FeedbackKind.CHOICE, make.over(second), **common)
