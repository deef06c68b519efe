"""Open WebUI: the feedback history that an administrator exports (Admin → Evaluations → Export), or exported chats.

Each record of the history carries the whole chat as it was just before the click, so `data.rating` is the vote and the
snapshot's own annotation is one click old. All answers of the tree are taken, rated or not: only then can it be told
which answer a regeneration replaced. The CSV flavour names no message, so it joins nothing and is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.collect.importers.elements import read_each, read_elements
from pipeline.collect.importers.fields import key, member, number, text, texts
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.tree import Node, Tree
from pipeline.collect.importers.votes import thumb
from pipeline.records import FeedbackKind, StreamEnd


def read(source: Source, make: Make) -> Iterator[Item]:
    """Feedback records, or chats with their thumbs."""
    return read_each(read_elements(source, "data", "items"), lambda row: _one(row, make))


def _one(row: dict[str, Any], make: Make) -> Iterator[Item]:
    if "data" not in row and ("chat" in row or "history" in row):
        yield from _chat(row, make, text(row, "user_id"), annotated=True)
        return
    if not isinstance(row.get("data"), dict):
        if "chat_id" in row and "rating" in row:
            raise Refused(RefusalReason.NO_KEY, "the CSV flavour names no message; export as JSON")
        raise Refused(RefusalReason.WRONG_FORM, "no feedback record: no `data`")
    yield from _record(row, make)


def _record(row: dict[str, Any], make: Make) -> Iterator[Item]:
    data, meta = member(row, "data"), member(row, "meta")
    user = text(row, "user_id")
    chat = member(member(row, "snapshot"), "chat")
    message_id = text(meta, "message_id")
    if chat:
        yield from _chat(chat, make, user or text(chat, "user_id"), annotated=False)
    if not message_id:
        yield Refusal("", RefusalReason.NO_KEY, "no meta.message_id")
        return
    at = first_moment(make.zone, row.get("updated_at"), row.get("created_at"))
    common: dict[str, Any] = {"at": at, "user": user, "source_id": text(row, "id")}
    answer = _key(text(meta, "chat_id") or text(chat, "id"), message_id)
    try:
        vote = thumb(data.get("rating"))
    except Refused as refused:
        yield Refusal("", refused.reason, refused.detail)
    else:
        reason = why(text(data, "reason"), *texts(data, "tags"), _fine(data))
        yield make.feedback(answer, FeedbackKind.THUMB, vote, reason=reason, **common)
        if vote == "up":
            yield from _over_siblings(chat, message_id, texts(data, "sibling_model_ids"), answer, make, common)
    if comment := text(data, "comment"):
        yield make.feedback(answer, FeedbackKind.COMMENT, comment, **common)


def _fine(data: Mapping[str, Any]) -> str:
    fine = number(member(data, "details").get("rating"))
    return f"{fine:g}/10" if fine is not None else ""


def _over_siblings(
    chat: dict[str, Any], message_id: str, models: list[str], answer: str, make: Make, common: dict[str, Any]
) -> Iterator[Item]:
    """A thumb up in a comparison says that this answer is better than the one other."""
    tree = _tree(chat, make)
    rated = tree.nodes.get(message_id)
    others = tree.siblings(rated, lambda node: text(node.raw, "model") in models) if rated else []
    if len(others) == 1:
        over = make.over(_key(text(chat, "id"), others[0].node_id))
        yield make.feedback(answer, FeedbackKind.CHOICE, over, **common)


def _chat(row: dict[str, Any], make: Make, user: str, *, annotated: bool) -> Iterator[Item]:
    """All answers of a chat, and its own thumbs where no better record of them is at hand."""
    tree = _tree(row, make)
    chat_id = key(row, "id")
    if annotated and not tree.nodes:
        raise Refused(RefusalReason.BAD_MESSAGES, "no messages in history")
    for node in tree.answers():
        try:
            yield _interaction(node, tree, chat_id, user, make)
            if annotated:
                yield from _annotation(node, chat_id, user, make)
        except Refused as refused:
            yield Refusal("", refused.reason, refused.detail)


def _tree(row: dict[str, Any], make: Make) -> Tree:
    chat = member(row, "chat") or row
    nodes = {
        node_id: _node(node_id, message, make)
        for node_id, message in member(member(chat, "history"), "messages").items()
        if isinstance(message, dict)
    }
    return Tree(nodes, text(member(chat, "params"), "system"))


def _node(node_id: str, raw: dict[str, Any], make: Make) -> Node:
    content = raw.get("content")
    message: dict[str, Any] = {"role": raw.get("role"), "content": content if isinstance(content, str | list) else ""}
    return Node(node_id, text(raw, "parentId") or None, message, raw.get("role") == "assistant", None, raw)


def _interaction(node: Node, tree: Tree, chat_id: str, user: str, make: Make) -> Item:
    assert node.message is not None
    raw = node.raw
    asked = tree.nodes.get(node.parent or "")
    side_by_side = asked is not None and len(texts(asked.raw, "models")) > 1
    turn = Turn(
        messages=tree.prompt(node),
        at=first_moment(make.zone, raw.get("timestamp"), asked and asked.raw.get("timestamp")),
        model=text(raw, "model", "modelName"),
        # Several models that answer at once replace none of the others.
        conversation=f"{chat_id}/{text(raw, 'modelIdx', 'model')}" if side_by_side else chat_id,
        user=user,
    )
    answer = Answer(node.message)
    if raw.get("error"):
        answer = Answer(node.message, None, StreamEnd.UPSTREAM_ERROR, 500)
    elif raw.get("done") is False:
        answer = Answer(node.message, None, StreamEnd.CLIENT_ABORT)
    return make.interaction(_key(chat_id, node.node_id), turn, answer)


def _annotation(node: Node, chat_id: str, user: str, make: Make) -> Iterator[Item]:
    found = member(node.raw, "annotation")
    if found.get("rating") is None:
        return
    at = first_moment(make.zone, node.raw.get("timestamp"))
    answer = _key(chat_id, node.node_id)
    source_id = text(node.raw, "feedbackId")
    reason = why(text(found, "reason"), *texts(found, "tags"), _fine(found))
    common: dict[str, Any] = {"at": at, "user": user, "source_id": source_id}
    yield make.feedback(answer, FeedbackKind.THUMB, thumb(found["rating"]), reason=reason, **common)
    if comment := text(found, "comment"):
        yield make.feedback(answer, FeedbackKind.COMMENT, comment, **common)


def _key(chat_id: str, message_id: str) -> str:
    return f"{chat_id}/{message_id}"
