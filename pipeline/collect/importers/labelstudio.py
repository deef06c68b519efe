"""Label Studio: the JSON export of tasks with their annotations.

Skipped annotations (`was_cancelled`) and drafts are no votes, predictions are a model's. Several annotators may
disagree: each is a user. Tasks that label pictures, sounds or plain text hold no answer of a model; the flat forms
(JSON-MIN, CSV) do not tell which annotation was cancelled, so export as JSON.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.annotated import Task, one_best, task_of, texts_in
from pipeline.collect.importers.elements import attempt, read_each, read_elements
from pipeline.collect.importers.fields import key, member, members, text
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.votes import stars, thumb
from pipeline.records import FeedbackKind

_STARS = (1.0, 5.0)
"""What Label Studio offers when nothing else is configured."""


def read(source: Source, make: Make) -> Iterator[Item]:
    """Tasks with their annotations."""
    return read_each(read_elements(source, "tasks"), lambda row: _task(row, make))


def _task(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "data" not in row:
        raise Refused(RefusalReason.WRONG_FORM, "no task: no `data`; export as JSON, not as JSON-MIN or CSV")
    task = task_of(member(row, "data"))
    prefix = f"labelstudio/{text(row, 'project')}/{key(row, 'id')}"
    at = first_moment(make.zone, row.get("created_at"))
    for name, answer in task.answers.items():
        turn = Turn(task.messages, at, model=text(member(row, "data"), f"{name}_model", "model"))
        yield make.interaction(f"{prefix}/{name}", turn, Answer({"role": "assistant", "content": answer}))
    for annotation in members(row, "annotations") or members(row, "completions"):
        yield from _annotation(annotation, task, prefix, make)


def _annotation(annotation: dict[str, Any], task: Task, prefix: str, make: Make) -> Iterator[Item]:
    if annotation.get("was_cancelled") is True:
        yield Refusal("", RefusalReason.DRAFT, "a skipped annotation")
        return
    by = member(annotation, "completed_by")
    common: dict[str, Any] = {
        "at": first_moment(make.zone, annotation.get("updated_at"), annotation.get("created_at")),
        "user": text(annotation, "completed_by") or text(by, "email", "id"),
        "source_id": text(annotation, "id"),
    }
    results = members(annotation, "result")
    if not results:
        yield Refusal("", RefusalReason.NO_VOTE, "an annotation without any result")
    for result in results:
        yield from attempt("", lambda result=result: _result(result, task, prefix, make, common))  # type: ignore[misc]


def _result(result: dict[str, Any], task: Task, prefix: str, make: Make, common: dict[str, Any]) -> Iterator[Item]:
    kind, value = text(result, "type"), member(result, "value")
    about = text(result, "to_name")
    about = about if about in task.answers else ""
    reason = why(text(result, "from_name"))
    if kind == "pairwise":
        yield _choice(task.named(text(value, "selected")), task, prefix, make, common)
    elif kind == "ranker":
        best, second = one_best(_ranks(value, task))
        yield make.feedback(f"{prefix}/{best}", FeedbackKind.CHOICE, make.over(f"{prefix}/{second}"), **common)
    elif kind == "rating":
        vote, rating = stars(value.get("rating"), make.scale or _STARS)
        yield make.feedback(f"{prefix}/{about or task.only()}", vote, rating, reason=reason, **common)
    elif kind == "textarea":
        edited = "\n".join(texts_in(value.get("text")))
        if not edited:
            raise Refused(RefusalReason.NO_VOTE, "an empty text")
        yield make.feedback(f"{prefix}/{about or task.only()}", FeedbackKind.EDIT, edited, **common)
    elif kind == "choices":
        labels = texts_in(value.get("choices"))
        if len(labels) != 1:
            raise Refused(RefusalReason.UNKNOWN_VALUE, f"{len(labels)} labels at once")
        if len(task.answers) > 1 and not about:
            yield _choice(task.named(labels[0]), task, prefix, make, common)
        else:
            answer = f"{prefix}/{about or task.only()}"
            yield make.feedback(answer, FeedbackKind.THUMB, thumb(labels[0]), reason=reason, **common)
    else:
        raise Refused(RefusalReason.NOT_CHAT, f"a result of type {kind[:40]!r}")


def _choice(better: str, task: Task, prefix: str, make: Make, common: dict[str, Any]) -> Item:
    worse = [name for name in task.answers if name != better]
    if len(worse) != 1:
        raise Refused(RefusalReason.NOT_ONE_ANSWER, "one of several, and none is named as the worse")
    return make.feedback(f"{prefix}/{better}", FeedbackKind.CHOICE, make.over(f"{prefix}/{worse[0]}"), **common)


def _ranks(value: dict[str, Any], task: Task) -> dict[str, float]:
    """An order of names, or names in buckets; only the first and the second of an order can be told apart."""
    found = value.get("ranker")
    if isinstance(found, dict):
        found = next((inner for inner in found.values() if isinstance(inner, list)), [])
    names = [text(one, "id", "title") if isinstance(one, dict) else one for one in found or []]
    return {task.named(name): float(rank) for rank, name in enumerate(names, 1) if isinstance(name, str)}
