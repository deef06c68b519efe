"""A conversation as a tree of turns: regenerated answers and edited questions are siblings.

Parents decide what belongs together, never the order in a file. A question that was edited at the very beginning gives
a second root.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipeline.collect.importers.refusal import RefusalReason, Refused
from pipeline.records import Message


@dataclass(frozen=True)
class Node:
    """One turn."""

    node_id: str
    parent: str | None
    message: Message | None
    """None for a node without words, such as a root."""
    is_answer: bool = False
    """Whether a user could rate it."""
    at: datetime | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


class Tree:
    """Turns by their ids."""

    def __init__(self, nodes: Mapping[str, Node], system: str = "") -> None:
        self.nodes = nodes
        self._system = system

    def prompt(self, node: Node) -> list[Message]:
        """All that was said on the way to a node, from its root, without itself.

        Raises:
            Refused: a turn on the way is missing, or the way is a circle.
        """
        way: list[Message] = []
        seen = {node.node_id}
        parent = node.parent
        while parent is not None:
            before = self.nodes.get(parent)
            if before is None or parent in seen:
                what = "names itself as its parent" if parent in seen else "names a parent that is not there"
                raise Refused(RefusalReason.BAD_MESSAGES, f"a turn {what}")
            seen.add(parent)
            if before.message is not None:
                way.append(before.message)
            parent = before.parent
        if self._system.strip():
            way.append({"role": "system", "content": self._system})
        return way[::-1]

    def answers(self) -> Iterator[Node]:
        """All turns that a user could rate."""
        return (node for node in self.nodes.values() if node.is_answer)

    def siblings(self, node: Node, belongs: Callable[[Node], bool] = lambda _: True) -> list[Node]:
        """Other answers to the same turn."""
        return [
            other
            for other in self.answers()
            if other.parent == node.parent and other.node_id != node.node_id and belongs(other)
        ]
