"""Dify: the console's feedback export (CSV, JSON), pages of `GET /messages`, and annotations.

The console's export cuts answers at 500 characters and keeps one question without the turns before it. So its texts are
never used: its votes wait for the message by its id, which the pages of `GET /messages` or the gateway's log bring. Its
times name no zone: say --timezone. A thumb is there twice, and where emoji and word disagree the row is refused.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pipeline.collect.importers.elements import Element, attempt, read_elements
from pipeline.collect.importers.fields import key, member, text
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.spool import Spool
from pipeline.collect.importers.tree import Node, Tree
from pipeline.collect.importers.votes import thumb
from pipeline.records import FeedbackKind, Message

_NO_PARENT = "00000000-0000-0000-0000-000000000000"


def read(source: Source, make: Make) -> Iterator[Item]:
    """Rows of feedback as they come; messages conversation by conversation, because each needs those before it."""
    with Spool() as spool:
        for element in read_elements(source, "feedback_data", "data"):
            if isinstance(element, Refusal):
                yield element
            elif "query" in element.value and "answer" in element.value:
                spool.add(text(element.value, "conversation_id"), element.place, element.value)
            else:
                row = element.value
                yield from attempt(element.place, lambda row=row: _one(row, make))  # type: ignore[misc]
        for conversation, elements in spool.groups():
            yield from _conversation(conversation, elements, make)


def _one(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "message_id" in row and ("feedback_rating_raw" in row or "feedback_rating" in row or "rating" in row):
        return _feedback(row, make)
    if "question" in row and ("answer" in row or "content" in row):
        return _annotation(row, make)
    raise Refused(RefusalReason.WRONG_FORM, "no feedback, no message, no annotation")


def _feedback(row: dict[str, Any], make: Make) -> Iterator[Item]:
    message_id = key(row, "message_id")
    raw, emoji = text(row, "feedback_rating_raw", "rating"), text(row, "feedback_rating")
    withdrawn = "rating" in row and row["rating"] is None
    vote = None if withdrawn else thumb(raw or emoji)
    if raw and emoji and thumb(emoji) != vote:
        raise Refused(RefusalReason.CONTRADICTORY, f"feedback_rating {emoji[:10]!r}, feedback_rating_raw {raw[:20]!r}")
    common: dict[str, Any] = {
        "at": first_moment(make.zone, row.get("feedback_date"), row.get("created_at")),
        "user": text(row, "from_end_user_id", "from_account_name", "user"),
        "source_id": text(row, "feedback_id", "id"),
    }
    yield make.feedback(message_id, FeedbackKind.THUMB, vote, reason=why(text(row, "feedback_source")), **common)
    if comment := text(row, "feedback_comment", "content"):
        yield make.feedback(message_id, FeedbackKind.COMMENT, comment, **common)


def _annotation(row: dict[str, Any], make: Make) -> Iterator[Item]:
    """An answer that an operator wrote or mended, and so approved."""
    annotation = f"annotation/{key(row, 'id')}"
    at = first_moment(make.zone, row.get("created_at"))
    answer = text(row, "answer", "content")
    if not answer:
        raise Refused(RefusalReason.NO_ANSWER, "an annotation without its answer")
    asked: list[Message] = [{"role": "user", "content": key(row, "question")}]
    yield make.interaction(
        annotation, Turn(asked, at, model="annotation"), Answer({"role": "assistant", "content": answer})
    )
    yield make.feedback(annotation, FeedbackKind.OUTCOME, "passed", at, reason="annotation")


def _conversation(conversation: str, elements: list[Element], make: Make) -> Iterator[Item]:
    def when(element: Element) -> tuple[datetime, str]:
        try:
            at = first_moment(make.zone, element.value.get("created_at"))
        except Refused:
            at = None
        return at or datetime.min.replace(tzinfo=UTC), text(element.value, "id")

    nodes: dict[str, Node] = {}
    last: str | None = None
    has_parents = any(text(element.value, "parent_message_id") for element in elements)
    for element in sorted(elements, key=when):
        row = element.value
        message_id = text(row, "id", "message_id") or element.place
        parent = text(row, "parent_message_id") if has_parents else last
        asked = f"{message_id}/query"
        nodes[asked] = Node(asked, None if parent == _NO_PARENT else parent or None, _said("user", row, "query"))
        nodes[message_id] = Node(message_id, asked, _said("assistant", row, "answer"), True, None, row)
        last = message_id
    tree = Tree(nodes)
    for element in elements:
        message_id = text(element.value, "id", "message_id") or element.place
        yield from attempt(element.place, lambda i=message_id: _message(tree.nodes[i], tree, conversation, make))  # type: ignore[misc]


def _said(role: str, row: dict[str, Any], name: str) -> dict[str, Any]:
    return {"role": role, "content": text(row, name)}


def _message(node: Node, tree: Tree, conversation: str, make: Make) -> Iterator[Item]:
    row = node.raw
    assert node.message is not None
    user = text(row, "from_end_user_id", "user")
    at = first_moment(make.zone, row.get("created_at"))
    turn = Turn(tree.prompt(node), at, model=text(row, "model_id"), conversation=conversation, user=user)
    failed = text(row, "status") == "error" or bool(row.get("error"))
    yield make.interaction(node.node_id, turn, Answer(node.message, status=500 if failed else 200))
    rating = member(row, "feedback").get("rating")
    if rating is not None:
        yield make.feedback(node.node_id, FeedbackKind.THUMB, thumb(rating), at, user=user)
