"""The texts inside a message, and the message with those texts changed, with every structure still in one piece.

`map_message` walks whatever a client or an engine wrote: content, tool-call arguments (JSON in a string), tool
results, code fences. JSON is changed literal by literal, so its other bytes, its order and its spacing stay. What is
structure by contract (roles, types, ids, function names) is never looked at.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from pydantic import JsonValue

from pipeline.records import Message


class Place(Enum):
    """Where a piece of text stands; it decides what is looked for and how a placeholder is written."""

    PROSE = auto()
    FIXED = auto()  # a business's own text: a shared system prompt, a tool's description. Names in it are nobody's
    CODE = auto()
    STRING = auto()  # inside a JSON string literal
    KEY = auto()  # a key of a JSON object
    NUMBER = auto()  # a JSON number


@dataclass(frozen=True)
class Piece:
    """A text to look at, after the words that stood before it (`phone: ` for the value of the key `phone`)."""

    text: str
    place: Place
    lead: str = ""

    @property
    def scanned(self) -> str:
        """What a detector is shown."""
        return self.lead + self.text


Visit: TypeAlias = Callable[[Piece], str]
"""Takes a piece, gives the text to stand in its place."""

_STRUCTURAL = frozenset({"role", "type", "id", "tool_call_id", "index"})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
_FENCE = re.compile(r"```([^\n`]*)(.*?)(```|\Z)", re.DOTALL)
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL)
PLAIN_NUMBER = re.compile(r"[1-9]\d*")
"""What may stand as a number where a number was."""
_AFTER_KEY = re.compile(r"\s*:")


class Unscrubbable(ValueError):
    """A message holds something that cannot be looked into, such as an image."""


def map_message(message: Message, visit: Visit, place: Place = Place.PROSE) -> Message:
    """The message with every text replaced by what `visit` gives.

    The participant's `name` of a user or assistant goes: it is a person's name and no template prints it.

    Raises:
        Unscrubbable: a content part is no text.
    """
    mapped: Message = {}
    for key, value in message.items():
        if key in _STRUCTURAL or (key == "name" and message.get("role") in ("tool", "function")):
            mapped[key] = value
        elif key == "content":
            mapped[key] = _map_content(value, visit, place)
        elif key in ("tool_calls", "function_call"):
            mapped[key] = _map_calls(value, visit)
        elif key != "name":
            mapped[key] = map_json(value, visit, place)
    return mapped


def map_json(value: JsonValue, visit: Visit, place: Place, key: str = "") -> JsonValue:
    """A JSON value with its strings, keys and numbers visited."""
    if isinstance(value, str):
        return map_text(value, visit, place, key)
    if isinstance(value, list):
        return [map_json(item, visit, place, key) for item in value]
    if isinstance(value, dict):
        return {visit(Piece(k, Place.KEY)): map_json(v, visit, place, k) for k, v in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = visit(Piece(str(value), Place.NUMBER, _lead(key)))
        if shown == str(value):
            return value
        return int(shown) if PLAIN_NUMBER.fullmatch(shown) else shown
    return value


def map_text(text: str, visit: Visit, place: Place, key: str = "") -> str:
    """A text with its prose, code fences and JSON visited, each in its own way."""
    if _is_json(text):
        return _map_literals(text, visit, Place.FIXED if place is Place.FIXED else Place.STRING)
    parts: list[str] = []
    at = 0
    for fence in _FENCE.finditer(text):
        language, body = _visited(fence[1], visit, Place.CODE), fence[2]
        parts += [_visited(text[at : fence.start()], visit, place, key), "```", language]
        parts += [_map_literals(body, visit, Place.STRING) if _is_json(body) else _visited(body, visit, Place.CODE)]
        parts += [fence[3]]
        at = fence.end()
    parts.append(_visited(text[at:], visit, place, key))
    return "".join(parts)


def _map_content(content: JsonValue, visit: Visit, place: Place) -> JsonValue:
    if not isinstance(content, list):
        return map_json(content, visit, place)
    parts: list[JsonValue] = []
    for part in content:
        if isinstance(part, dict) and part.get("type", "text") not in _TEXT_PARTS:
            raise Unscrubbable(f"content part of type {part.get('type')!r}")
        parts.append(_map_fields(part, visit, place))
    return parts


def _map_calls(calls: JsonValue, visit: Visit) -> JsonValue:
    if isinstance(calls, list):
        return [_map_calls(call, visit) for call in calls]
    if not isinstance(calls, dict):
        return map_json(calls, visit, Place.STRING)
    mapped: dict[str, JsonValue] = {}
    for key, value in calls.items():
        if key in _STRUCTURAL or key == "name":
            mapped[key] = value
        else:
            mapped[key] = _map_calls(value, visit) if key == "function" else map_json(value, visit, Place.STRING)
    return mapped


def _map_fields(part: JsonValue, visit: Visit, place: Place) -> JsonValue:
    if not isinstance(part, dict):
        return map_json(part, visit, place)
    return {k: v if k in _STRUCTURAL else map_json(v, visit, place) for k, v in part.items()}


def _map_literals(source: str, visit: Visit, place: Place) -> str:
    parts: list[str] = []
    at, key = 0, ""
    for literal in _LITERAL.finditer(source):
        token = literal.group()
        value = json.loads(token) if token.startswith('"') else token
        if not token.startswith('"'):
            shown = visit(Piece(value, Place.NUMBER, _lead(key)))
            new = shown if shown == value or PLAIN_NUMBER.fullmatch(shown) else json.dumps(shown)
        else:
            is_key = bool(_AFTER_KEY.match(source, literal.end()))
            shown = visit(Piece(value, Place.KEY)) if is_key else map_text(value, visit, place, key)
            key = value if is_key else key
            new = token if shown == value else json.dumps(shown, ensure_ascii=token.isascii())
        parts += [source[at : literal.start()], new]
        at = literal.end()
    return "".join([*parts, source[at:]])


def _visited(text: str, visit: Visit, place: Place, key: str = "") -> str:
    return visit(Piece(text, place, _lead(key))) if text.strip() else text


def _lead(key: str) -> str:
    return f"{key}: " if key else ""


def _is_json(text: str) -> bool:
    stripped = text.strip()
    if stripped[:1] + stripped[-1:] not in ("{}", "[]"):
        return False
    try:
        json.loads(stripped)
    except ValueError:
        return False
    return True
