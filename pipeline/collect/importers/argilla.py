"""Argilla: records (`Record.to_dict`, `Dataset.records.to_json`), of version 1 and 2.

Several people answer one record, each for themselves; discarded and draft answers are no votes, and suggestions come
from models. Records keep no times: an answer counts as given when it was first imported. A rating needs --scale.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.annotated import Task, one_best, task_of, texts_in
from pipeline.collect.importers.elements import attempt, read_each, read_elements
from pipeline.collect.importers.fields import member, members, number, parsed, text
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.votes import stars, thumb
from pipeline.records import FeedbackKind, content_id


def read(source: Source, make: Make) -> Iterator[Item]:
    """Records with the answers of their annotators."""
    return read_each(read_elements(source, "records", "items"), lambda row: _record(row, make))


def _record(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "fields" not in row:
        raise Refused(RefusalReason.WRONG_FORM, "no record: no `fields`")
    task = task_of(member(row, "fields"))
    record = text(row, "_server_id", "id", "external_id") or content_id(row["fields"])
    about = member(row, "metadata")
    at = first_moment(make.zone, row.get("inserted_at"), about.get("created_at"))
    for name, answer in task.answers.items():
        turn = Turn(task.messages, at, model=text(about, f"{name}_model", f"{name}-model", "model"))
        yield make.interaction(_key(record, name), turn, Answer({"role": "assistant", "content": answer}))
    for response in _responses(row):
        yield from attempt("", lambda response=response: _said(record, task, response, make))  # type: ignore[misc]


def _key(record: str, name: str) -> str:
    return f"argilla/{record}/{name}"


def _responses(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One for each person and question: question, value, user, status."""
    responses = parsed(row.get("responses"))
    if isinstance(responses, dict):  # version 2
        for question in responses:
            for one in members(responses, question):
                yield {"status": "submitted", **one, "question": question}
    for one in members(row, "responses"):  # version 1
        values = member(one, "values")
        for question in values:
            found = member(values, question)
            yield {"question": question, "value": found.get("value"), **{k: one.get(k) for k in ("user_id", "status")}}


def _said(record: str, task: Task, response: dict[str, Any], make: Make) -> Iterator[Item]:
    if text(response, "status") not in ("", "submitted"):
        raise Refused(RefusalReason.DRAFT, f"an answer that is {text(response, 'status')[:20]}")
    question, value = text(response, "question"), response.get("value")
    common: dict[str, Any] = {"at": None, "user": text(response, "user_id"), "source_id": question}
    if isinstance(value, list) and any(isinstance(one, dict) and "rank" in one for one in value):
        best, second = one_best(_ranks(value, task))
        over = make.over(_key(record, second))
        yield make.feedback(_key(record, best), FeedbackKind.CHOICE, over, **common)
    elif number(value) is not None and not isinstance(value, str):
        kind, rating = stars(value, make.scale)
        reason = why(f"{question}={value}")
        yield make.feedback(_key(record, task.only()), kind, rating, reason=reason, **common)
    elif isinstance(value, str):
        yield _label(record, task, question, value, make, common)
    else:
        labels = why(*texts_in(value))
        what = f"{question[:40]!r} holds labels" if labels else f"{question[:40]!r} holds nothing to learn from"
        raise Refused(RefusalReason.UNKNOWN_VALUE, what)


def _label(record: str, task: Task, question: str, value: str, make: Make, common: dict[str, Any]) -> Item:
    """A label that is a thumb, one that names the better answer, or the answer as the annotator would have it."""
    if len(task.answers) > 1:
        better = task.named(value)
        worse = [name for name in task.answers if name != better]
        if len(worse) != 1:
            raise Refused(RefusalReason.NOT_ONE_ANSWER, "one of several, and none is named as the worse")
        return make.feedback(_key(record, better), FeedbackKind.CHOICE, make.over(_key(record, worse[0])), **common)
    answer = _key(record, task.only())
    try:
        return make.feedback(answer, FeedbackKind.THUMB, thumb(value), reason=why(f"{question}={value}"), **common)
    except Refused:
        if not any(
            word in question.casefold() for word in ("correct", "edit", "rewrite", "answer", "response", "text")
        ):
            raise
        return make.feedback(answer, FeedbackKind.EDIT, value, **common)


def _ranks(value: list[Any], task: Task) -> dict[str, float]:
    ranks: dict[str, float] = {}
    for one in value:
        rank = number(one.get("rank")) if isinstance(one, dict) else None
        if rank is not None:
            ranks[task.named(text(one, "value"))] = rank
    return ranks
