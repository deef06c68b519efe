"""Turns of a ChatGPT conversation as chat messages, tool calls and pictures included."""

import json
from typing import Any

from pydantic import JsonValue

from pipeline.collect.importers.fields import member, number, text
from pipeline.collect.importers.make import Answer
from pipeline.collect.importers.tree import Node, Tree
from pipeline.records import Message, StreamEnd

_WORDS = frozenset({"text", "multimodal_text"})
_ENDS = {"max_tokens": "length", "length": "length"}


def tree_of(row: dict[str, Any]) -> Tree:
    """A conversation's `mapping`."""
    nodes: dict[str, Node] = {}
    for node_id, entry in member(row, "mapping").items():
        if isinstance(entry, dict):
            raw = member(entry, "message")
            message = _message(node_id, text(entry, "parent"), raw)
            is_answer = message is not None and _could_be_rated(raw)
            nodes[node_id] = Node(node_id, text(entry, "parent") or None, message, is_answer, None, raw)
    return Tree(nodes)


def answer_of(node: Node) -> Answer:
    """A node's words, and how they ended."""
    assert node.message is not None
    finish = text(member(member(node.raw, "metadata"), "finish_details"), "type")
    if finish == "interrupted" or text(node.raw, "status") == "in_progress":
        return Answer(node.message, None, StreamEnd.CLIENT_ABORT)
    return Answer(node.message, _ENDS.get(finish, "stop"))


def _could_be_rated(raw: dict[str, Any]) -> bool:
    return (
        text(member(raw, "author"), "role") == "assistant"
        and text(raw, "recipient") in ("", "all")
        and text(member(raw, "content"), "content_type") in ("", *_WORDS)
        and number(raw.get("weight")) != 0
    )


def _message(node_id: str, parent: str, raw: dict[str, Any]) -> Message | None:
    """None where there are no words: roots, empty system messages, thoughts."""
    content = _content(member(raw, "content"))
    author = member(raw, "author")
    role, recipient = text(author, "role"), text(raw, "recipient")
    if not content or role not in ("system", "user", "assistant", "tool"):
        return None
    if role == "assistant" and recipient not in ("", "all"):
        arguments = content if isinstance(content, str) and _is_object(content) else json.dumps({"input": content})
        call: dict[str, JsonValue] = {
            "id": node_id,
            "type": "function",
            "function": {"name": recipient, "arguments": arguments},
        }
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if role == "tool":
        return {"role": "tool", "tool_call_id": parent, "name": text(author, "name") or "tool", "content": content}
    return {"role": role, "content": content}


def _content(content: dict[str, Any]) -> Any:
    kind = text(content, "content_type")
    if kind not in ("", *_WORDS):
        return text(content, "text") if kind in ("code", "execution_output") else ""
    raw = content.get("parts")
    parts = raw if isinstance(raw, list) else [raw]
    words = [part for part in parts if isinstance(part, str)]
    if len(words) == len(parts):
        return "\n".join(part for part in words if part.strip())
    return [made for part in parts if (made := _part(part))]


def _part(part: Any) -> dict[str, Any] | None:
    if isinstance(part, str):
        return {"type": "text", "text": part} if part.strip() else None
    if isinstance(part, dict) and (pointer := text(part, "asset_pointer")):
        return {"type": "image_url", "image_url": {"url": pointer}}
    if isinstance(part, dict) and (words := text(part, "text")):
        return {"type": "text", "text": words}
    return None


def _is_object(words: str) -> bool:
    try:
        return isinstance(json.loads(words), dict)
    except (ValueError, RecursionError):
        return False
