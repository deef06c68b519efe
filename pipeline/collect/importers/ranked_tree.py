"""Trees of messages whose answers people have ranked, as OpenAssistant publishes them: whole trees or single messages.

Of siblings each is better than the next one in rank: that is as many pairs as the ranking holds. They are no
regenerations, so no session is named.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.collect.importers.fields import key, member, members, number, text
from pipeline.collect.importers.make import Answer, Make, Turn
from pipeline.collect.importers.messages import role_of
from pipeline.collect.importers.moments import first_moment
from pipeline.collect.importers.refusal import Item, Refusal, RefusalReason, Refused
from pipeline.collect.importers.tree import Node, Tree
from pipeline.records import FeedbackKind

_DEEPEST = 500


def is_tree(row: dict[str, Any]) -> bool:
    """Whether a row is such a tree, or a message with its replies."""
    return isinstance(member(row, "prompt").get("replies"), list) or (
        isinstance(row.get("replies"), list) and "message_id" in row
    )


def read_tree(row: dict[str, Any], make: Make) -> Iterator[Item]:
    """All answers of a tree, and which is better than which."""
    nodes: dict[str, Node] = {}
    _collect(member(row, "prompt") or row, None, nodes, 0)
    tree = Tree(nodes)
    for node in tree.answers():
        try:
            if node.raw.get("deleted") is True:
                raise Refused(RefusalReason.DELETED, "the message was deleted")
            at = first_moment(make.zone, node.raw.get("created_date"))
            turn = Turn(tree.prompt(node), at, model=text(node.raw, "model_name"), user=text(node.raw, "user_id"))
            assert node.message is not None
            yield make.interaction(node.node_id, turn, Answer(node.message))
            if (worse := _next_in_rank(node, tree)) is not None:
                yield make.feedback(node.node_id, FeedbackKind.CHOICE, make.over(worse.node_id), at)
        except Refused as refused:
            yield Refusal("", refused.reason, refused.detail)


def _collect(row: dict[str, Any], parent: str | None, nodes: dict[str, Node], depth: int) -> None:
    if depth > _DEEPEST:
        raise Refused(RefusalReason.WRONG_FORM, "nested too deeply")
    node_id = key(row, "message_id")
    role = role_of(row)
    message: dict[str, Any] = {"role": role, "content": text(row, "text")}
    nodes[node_id] = Node(node_id, parent, message, role == "assistant", None, row)
    for reply in members(row, "replies"):
        _collect(reply, node_id, nodes, depth + 1)


def _next_in_rank(node: Node, tree: Tree) -> Node | None:
    rank = number(node.raw.get("rank"))
    if rank is None:
        return None
    behind = [
        (found, other.node_id, other)
        for other in tree.siblings(node, lambda other: other.raw.get("deleted") is not True)
        if (found := number(other.raw.get("rank"))) is not None and found > rank
    ]
    return min(behind)[2] if behind else None
