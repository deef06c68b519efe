"""The content blocks of a message, as half a dozen frameworks write them, as OpenAI's messages."""

import json
from collections.abc import Iterable
from typing import Any

from pipeline.collect.importers.fields import member, text
from pipeline.records import Message

_SILENT = frozenset({"reasoning", "thinking", "thought", "redacted_thinking", "refusal", "step-start"})
"""Not part of what is said, and no model is sent its own of earlier turns."""
_CALLS = frozenset({"tool_call", "tool-call", "tool_use", "function_call", "function"})
_RESULTS = frozenset({"tool_call_response", "tool_result", "tool-result", "function_call_output"})


def blocks_to_messages(role: str, blocks: Iterable[Any]) -> list[Message]:
    """A message's blocks: its words and its tool calls are one message, each tool's result is one of its own."""
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    for block in blocks:
        if isinstance(block, str):
            parts.append({"type": "text", "text": block})
        elif isinstance(block, dict):
            kind = text(block, "type")
            if kind in _RESULTS or (role == "tool" and ("toolCallId" in block or "tool_call_id" in block)):
                results.append(_result(block))
            elif kind in _CALLS:
                calls.append(_call(block))
            elif kind not in _SILENT and (part := _part(block)):
                parts.append(part)
    message: Message = {"role": role, "content": _content(parts)}
    if calls:
        message = {**message, "role": "assistant", "tool_calls": calls}  # type: ignore[dict-item]
    return [*([message] if parts or calls or not results else []), *results]


def _content(parts: list[dict[str, Any]]) -> Any:
    if all(part["type"] == "text" for part in parts):
        return "\n".join(str(part["text"]) for part in parts)
    return parts


def _part(block: dict[str, Any]) -> dict[str, Any] | None:
    """Words as text; pictures and files by where they lie; a template by its arguments, which is all that is known."""
    for name in ("text", "content", "value"):
        if isinstance(block.get(name), str):
            return {"type": "text", "text": block[name]} if block[name] else None
    if isinstance(inner := block.get("text"), dict) and isinstance(inner.get("content"), str):  # FastGPT
        return {"type": "text", "text": inner["content"]}
    picture = block.get("image_url") or block.get("image") or block.get("file")
    if isinstance(picture, str):
        picture = {"url": picture}
    if isinstance(picture, dict):
        return {"type": "image_url", "image_url": {"url": text(picture, "url", "uri") or json.dumps(picture)}}
    if uri := text(block, "uri", "url", "asset_pointer"):
        return {"type": "image_url", "image_url": {"url": uri}}
    if isinstance(block.get("arguments"), dict):
        return {"type": "text", "text": json.dumps(block["arguments"], ensure_ascii=False)}
    return None


def _call(block: dict[str, Any]) -> dict[str, Any]:
    function = member(block, "function")
    name = text(function, "name") or text(block, "name", "toolName", "raw_name")
    arguments: Any = None
    for holder in (function, block):
        for field in ("arguments", "input", "args", "raw_arguments"):
            if arguments is None and holder.get(field) is not None:
                arguments = holder[field]
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    call_id = text(block, "call_id", "toolCallId", "tool_call_id", "id")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(block: dict[str, Any]) -> Message:
    found: Any = None
    for field in ("result", "response", "output", "content"):
        if found is None:
            found = block.get(field)
    if isinstance(found, dict) and set(found) == {"type", "value"}:  # Vercel
        found = found["value"]
    content = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    call_id = text(block, "tool_call_id", "toolCallId", "tool_use_id", "call_id", "id")
    message: Message = {"role": "tool", "tool_call_id": call_id, "content": content}
    name = text(block, "name", "toolName")
    return {**message, "name": name} if name else message
