"""Chat messages of any framework as OpenAI's: LangChain, Vercel AI, Pydantic AI, Responses, Anthropic, GenAI parts.

Trace tools keep what a framework gave them, so one file may hold several shapes. Words stay as they are; only names of
roles and the frames around tool calls change.
"""

import json
from typing import Any

from pipeline.collect.importers.blocks import blocks_to_messages
from pipeline.collect.importers.fields import Row, member, members, parsed, text
from pipeline.records import Message

_ROLES = {
    "human": "user",
    "prompter": "user",
    "ai": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatbot": "assistant",
    "observation": "tool",
    "developer": "developer",
    "function": "tool",
}
_KNOWN = frozenset({"system", "user", "assistant", "tool", "developer"})
_TOOLS = ("tools", "functions", "function_tools", "output_tools", "toolDefinitions")
_LISTS = ("messages", "input", "prompt", "contents", "query", "question")


def chat_messages(value: Any) -> list[Message]:
    """The messages of a request; [] where there are none."""
    if isinstance(value, str):
        inner = parsed(value)
        found = [] if isinstance(inner, str) else chat_messages(inner)
        words = inner if isinstance(inner, str) else value
        return found or ([{"role": "user", "content": words}] if words.strip() else [])
    if isinstance(value, dict):
        return _of_object(value)
    if not isinstance(value, list):
        return []
    if len(value) == 1 and isinstance(value[0], list):  # LangChain: a batch of one
        value = value[0]
    return [message for one in value for message in _messages(one) if not _is_tool_definition(one)]


def answer_message(value: Any) -> Message | None:
    """What the model said; None where it said nothing."""
    if isinstance(value, str):
        inner = parsed(value)
        found = None if isinstance(inner, str) else answer_message(inner)
        words = inner if isinstance(inner, str) else value  # JSON may be the answer itself
        return found or ({"role": "assistant", "content": words} if words.strip() else None)
    if isinstance(value, dict):
        found = _answer_inside(value)
        return found if found is None else {**found, "role": "assistant"}
    if isinstance(value, list):
        if value and all(isinstance(one, dict) and "role" not in one and "type" not in one for one in value):
            made = blocks_to_messages("assistant", [{"type": "tool-call", **one} for one in value])
        elif any(isinstance(one, dict) and "role" in one for one in value):
            made = [one for one in chat_messages(value) if one.get("role") == "assistant"]
        else:
            made = _of_items(value) or blocks_to_messages("assistant", value)
        return made[-1] if made else None
    return None


def tool_definitions(*values: Any) -> list[dict[str, Any]]:
    """Tools as OpenAI describes them, from wherever a request keeps them."""
    for value in map(parsed, values):
        lists = [parsed(value.get(name)) for name in _TOOLS] if isinstance(value, dict) else [value]
        found = [parsed(one) for listed in lists if isinstance(listed, list) for one in listed]
        definitions = [made for one in found if (made := _definition(one))]
        if definitions:
            return definitions
    return []


def role_of(row: Row) -> str:
    """The role of a message, in OpenAI's word; "" for an unknown one."""
    name = text(row, "role", "from", "type", "obj").lower()
    if not name and isinstance(row.get("id"), list) and row["id"]:  # LangChain, serialised
        name = str(row["id"][-1]).lower()
    name = name.removesuffix("message").removesuffix("messagechunk")
    return name if name in _KNOWN else _ROLES.get(name, "")


def _of_object(value: dict[str, Any]) -> list[Message]:
    if role_of(value) and ("content" in value or "parts" in value or "kwargs" in value):
        return _messages(value)
    system = value.get("system") or value.get("instructions") or value.get("systemInstruction")
    head: list[Message] = [{"role": "system", "content": system}] if isinstance(system, str) and system.strip() else []
    for name in _LISTS:
        found = chat_messages(value.get(name))
        if found:
            return head + found
    return []


def _messages(value: Any) -> list[Message]:
    """One entry of a list of messages: mostly one message, sometimes a few, sometimes none."""
    value = parsed(value)
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value):  # ("user", "hi")
        return _messages({"role": value[0], "content": value[1]})
    if not isinstance(value, dict):
        return []
    if "kwargs" in value and isinstance(value.get("id"), list):  # LangChain, serialised
        return _messages({**member(value, "kwargs"), "role": role_of(value)})
    if value.get("type") in ("function_call", "function_call_output", "reasoning"):
        return blocks_to_messages("assistant", [value])
    role = role_of(value)
    content = value.get("parts", value.get("content", value.get("value", value.get("text"))))
    if not role:
        return []
    if isinstance(content, list):
        made = blocks_to_messages(role, content)
    else:
        made = [{"role": role, "content": content if isinstance(content, str) else _as_text(content)}]
    calls = members(value, "tool_calls") or members(member(value, "additional_kwargs"), "tool_calls")
    if calls and role == "assistant":
        called = blocks_to_messages("assistant", [{"type": "tool_call", **call} for call in calls])
        words = made[-1].get("content") if made else ""
        made = [*made[:-1], {**called[-1], "content": words or ""}]
    if role == "tool" and made and "tool_call_id" not in made[-1] and (call_id := text(value, "tool_call_id", "id")):
        made = [*made[:-1], {**made[-1], "tool_call_id": call_id}]
    return made


def _answer_inside(value: dict[str, Any]) -> Message | None:
    for choice in members(value, "choices"):
        made = _messages({"role": "assistant", **(member(choice, "message") or {"content": choice.get("text")})})
        return made[-1] if made else None
    generations = parsed(value.get("generations"))
    while isinstance(generations, list) and generations:
        generations = generations[0]
    if isinstance(generations, dict):
        return answer_message(generations.get("message") or generations.get("text"))
    if isinstance(value.get("output"), list):  # OpenAI's Responses
        made = _of_items(value["output"])
        return made[-1] if made else None
    if "role" in value or "kwargs" in value or role_of(value) == "assistant":
        made = _messages({"role": "assistant", **value})
        return made[-1] if made else None
    if isinstance(value.get("messages"), list):
        said = [one for one in chat_messages(value["messages"]) if one.get("role") == "assistant"]
        return said[-1] if said else None
    if value.get("toolCalls"):
        calls = [{"type": "tool-call", **call} for call in members(value, "toolCalls")]
        called = blocks_to_messages("assistant", calls)
        return {**called[-1], "content": text(value, "text")} if called else None
    for name in ("content", "text", "answer", "response", "output", "completion", "message"):
        if value.get(name):
            return answer_message(value[name])
    return None


def _of_items(items: list[Any]) -> list[Message]:
    """OpenAI's Responses: messages and tool calls lie side by side; together they are one answer."""
    words: list[str] = []
    calls: list[Any] = []
    for item in items:
        if isinstance(item, dict) and item.get("type") in ("message", "function_call"):
            for made in _messages({"role": "assistant", **item}):
                content, called = made.get("content"), made.get("tool_calls")
                words += [content] if isinstance(content, str) and content else []
                calls += called if isinstance(called, list) else []
    if not words and not calls:
        return []
    message: Message = {"role": "assistant", "content": "\n".join(words)}
    return [{**message, "tool_calls": calls} if calls else message]


def _is_tool_definition(value: Any) -> bool:
    """Langfuse's LangChain handler puts the tools among the messages."""
    return isinstance(value, dict) and value.get("role") == "tool" and _definition(value.get("content")) is not None


def _definition(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    if value.get("role") == "tool":
        value = parsed(value.get("content"))
        if not isinstance(value, dict):
            return None
    inner = member(value, "function") or value
    schemas = ("parameters", "inputSchema", "input_schema", "parameters_json_schema")
    parameters = next((inner[name] for name in schemas if isinstance(inner.get(name), dict)), None)
    if not text(inner, "name") or parameters is None:
        return None
    described = {"name": inner["name"], "description": text(inner, "description"), "parameters": parameters}
    return {"type": "function", "function": described}


def _as_text(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
