"""LibreChat: messages of its database (mongoexport), or an exported conversation, flat or as a tree.

Turns lie in any order and belong together by conversation and parent. A message has one thumb, overwritten and without
a time of its own. `unfinished` was stopped by the user; with `error` the text is an error message.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.clean.text import message_text
from pipeline.collect.importers.blocks import blocks_to_messages
from pipeline.collect.importers.elements import Element, attempt, read_elements
from pipeline.collect.importers.fields import member, members, text
from pipeline.collect.importers.make import Answer, Make, Turn, why
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.spool import Spool
from pipeline.collect.importers.tree import Node, Tree
from pipeline.collect.importers.votes import thumb
from pipeline.records import FeedbackKind, Message, StreamEnd

_NO_PARENT = "00000000-0000-0000-0000-000000000000"
_DEEPEST = 500


def read(source: Source, make: Make) -> Iterator[Item]:
    """Conversation by conversation, wherever their messages stood."""
    with Spool() as spool:
        for element in read_elements(source):
            if isinstance(element, Refusal):
                yield element
            elif isinstance(element.value.get("messages"), list):
                row = element.value
                yield from attempt(element.place, lambda p=element.place, row=row: _unfold(spool, p, row))  # type: ignore[misc]
            elif "messageId" in element.value:
                spool.add(text(element.value, "conversationId"), element.place, element.value)
            else:
                yield Refusal(element.place, RefusalReason.WRONG_FORM, "no message, no conversation")
        for conversation, elements in spool.groups():
            yield from _conversation(conversation, elements, make)


def _unfold(spool: Spool, place: str, row: dict[str, Any]) -> list[Item]:
    """The messages of an exported conversation, children behind their parents."""
    conversation = text(row, "conversationId", "id") or place
    waiting = [(message, "", 0) for message in members(row, "messages")]
    while waiting:
        message, parent, depth = waiting.pop(0)
        if depth > _DEEPEST:
            raise Refused(RefusalReason.WRONG_FORM, "nested too deeply")
        children = members(message, "children")
        waiting += [(child, text(message, "messageId"), depth + 1) for child in children]
        kept = {name: value for name, value in message.items() if name != "children"}
        if parent and not text(kept, "parentMessageId"):
            kept["parentMessageId"] = parent
        spool.add(conversation, place, {"model": row.get("model"), "user": row.get("user"), **kept})
    return []


def _conversation(conversation: str, elements: list[Element], make: Make) -> Iterator[Item]:
    nodes: dict[str, Node] = {}
    places: dict[str, str] = {}
    for element in elements:
        row = element.value
        message_id = text(row, "messageId")
        if not message_id:
            yield Refusal(element.place, RefusalReason.WRONG_FORM, "a message without messageId")
            continue
        parent = text(row, "parentMessageId")
        role = "user" if row.get("isCreatedByUser") is True else "assistant"
        message = _message(row, role)
        nodes[message_id] = Node(
            message_id, None if parent in ("", _NO_PARENT) else parent, message, role == "assistant", None, row
        )
        places[message_id] = element.place
    tree = Tree(nodes)
    for node in tree.answers():
        yield from attempt(places[node.node_id], lambda node=node: _answer(node, tree, conversation, make))  # type: ignore[misc]


def _message(row: dict[str, Any], role: str) -> Message:
    """`text`, or the words of its content parts; a tool's call and result are inside one part and stay out."""
    if words := text(row, "text"):
        return {"role": role, "content": words}
    parts = [
        {**part, "text": text(member(part, "text"), "value")} if isinstance(part.get("text"), dict) else part
        for part in members(row, "content")
        if text(part, "type") != "tool_call"
    ]
    made = blocks_to_messages(role, parts)
    return {"role": role, "content": message_text(made[0]) if made else ""}


def _answer(node: Node, tree: Tree, conversation: str, make: Make) -> Iterator[Item]:
    row = node.raw
    assert node.message is not None
    user = text(row, "user")
    at = first_moment(make.zone, row.get("createdAt"), row.get("updatedAt"))
    model = text(row, "model", "sender", "endpoint")
    answer = Answer(node.message, text(row, "finish_reason") or "stop")
    if row.get("error") is True:
        answer = Answer(node.message, None, StreamEnd.UPSTREAM_ERROR, 500)
    elif row.get("unfinished") is True:
        answer = Answer(node.message, None, StreamEnd.CLIENT_ABORT)
    turn = Turn(tree.prompt(node), at, model=model, conversation=conversation, user=user)
    yield make.interaction(node.node_id, turn, answer)
    said = member(row, "feedback")
    if not said:
        return
    common: dict[str, Any] = {"at": first_moment(make.zone, row.get("updatedAt"), row.get("createdAt")), "user": user}
    tag = text(said, "tag") or text(member(said, "tag"), "key", "label", "value")
    yield make.feedback(node.node_id, FeedbackKind.THUMB, thumb(said.get("rating")), reason=why(tag), **common)
    if comment := text(said, "text"):
        yield make.feedback(node.node_id, FeedbackKind.COMMENT, comment, **common)
