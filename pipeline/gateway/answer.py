"""What an engine answered, read from the bytes that were relayed. Pure; done once, after the client has everything.

Robust before all: whatever the bytes are, the result is an `Answer`, never an exception.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from pipeline.gateway.request import replace_surrogates

_LINE_END = re.compile(rb"\r\n|\n|\r")
_DONE = b"data: [DONE]\n\n"
_BOM = b"\xef\xbb\xbf"
_JOINED = ("content", "refusal", "reasoning_content", "reasoning", "arguments", "name")
"""Strings that a stream sends in pieces."""


_LONG = ("content", "reasoning_content")
"""Those with so many pieces that joining each to the text so far would take the square of the answer's length."""


class Answer(msgspec.Struct):
    """An answer as it goes into the log."""

    choices: list[dict[str, Any]] = []
    """`index`, `message`, `finish_reason`; by index."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: bool = False
    """It holds an error instead of, or behind, an answer."""
    done: bool = False
    """It has a proper end: `[DONE]`, or the end of a JSON document."""

    @property
    def tokens(self) -> int:
        """Of prompt and answer; 0 when the engine did not count them."""
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    @property
    def finished(self) -> bool:
        """At least one choice says why it ended, and none was given up by the engine."""
        finished = False
        for choice in self.choices:
            reason = choice["finish_reason"]
            if reason in ("abort", "error"):
                return False
            finished = finished or reason is not None
        return finished

    @property
    def has_token(self) -> bool:
        """Anything that a user could see or a program could use."""
        return any(_says_something(choice["message"]) for choice in self.choices)


class _Choice(msgspec.Struct):
    index: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    message: dict[str, Any]
    finish_reason: str | None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Completion(msgspec.Struct):
    """What a sound engine answers; every other form is read piece by piece."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1, max_length=1)]
    usage: _Usage
    error: None = None


_COMPLETION = msgspec.json.Decoder(_Completion)


def read_json_answer(data: bytes) -> Answer:
    """Read the body of an answer that was not streamed."""
    try:
        sound = _COMPLETION.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_any_answer(data)
    choice = sound.choices[0]
    choices = [{"index": choice.index, "message": choice.message, "finish_reason": choice.finish_reason}]
    return Answer(choices, sound.usage.prompt_tokens, sound.usage.completion_tokens, done=True)


def _read_any_answer(data: bytes) -> Answer:
    answer = Answer()
    value = _loads(data)
    if not isinstance(value, dict) or value.get("error"):
        answer.error = True
        return answer
    answer.done = True
    _take_usage(answer, value)
    for position, choice in enumerate(_dicts(value.get("choices"))):
        message = choice.get("message")
        if not isinstance(message, dict):
            text = choice.get("text")
            message = {"role": "assistant", "content": text if isinstance(text, str) else None}
        answer.choices.append(
            {
                "index": _index(choice, position),
                "message": message,
                "finish_reason": _string(choice.get("finish_reason")),
            }
        )
    answer.choices.sort(key=lambda choice: choice["index"])
    return answer


class _Part(msgspec.Struct):
    index: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
    delta: dict[str, Any]
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Part]
    usage: _Usage | None = None
    error: None = None
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


_CHUNKS = msgspec.json.Decoder(list[_Chunk])


def read_stream(data: bytes) -> Answer:
    """Put an event stream together again: deltas by choice index, tool calls by their index."""
    answer = Answer()
    by_index: dict[int, dict[str, Any]] = {}
    chunks = _sound_chunks(data)
    if chunks is None:
        _read_any_stream(data, answer, by_index)
    else:
        answer.done = data.endswith(_DONE)
        texts: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for chunk in chunks:
            if chunk.usage is not None:
                answer.prompt_tokens, answer.completion_tokens = (
                    chunk.usage.prompt_tokens,
                    chunk.usage.completion_tokens,
                )
            for part in chunk.choices:
                choice = _choice(by_index, part.index)
                for key in _LONG:
                    if isinstance(text := part.delta.get(key), str):
                        texts[part.index, key].append(text)
                        del part.delta[key]
                _merge(choice["message"], part.delta)
                if part.finish_reason is not None:
                    choice["finish_reason"] = part.finish_reason
        for (index, key), pieces in texts.items():
            by_index[index]["message"][key] = "".join(pieces)
    answer.choices = [by_index[index] for index in sorted(by_index)]
    return answer


def _sound_chunks(data: bytes) -> list[_Chunk] | None:
    """The chunks of a stream as a sound engine writes it, decoded in one call; None for every other stream.

    No JSON text holds a bare line end, so what stands between two events can be nothing but that.
    """
    if not data.startswith(b"data: "):
        return None
    events = data.removesuffix(_DONE)[6:].removesuffix(b"\n\n")
    try:
        return _CHUNKS.decode(b"[%b]" % events.replace(b"\n\ndata: ", b","))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _read_any_stream(data: bytes, answer: Answer, by_index: dict[int, dict[str, Any]]) -> None:
    for event, payload in _events(data):
        if payload.strip() == b"[DONE]":
            answer.done = True
            continue
        chunk = _loads(payload)
        if not isinstance(chunk, dict):
            continue
        if chunk.get("error") or event == b"error" or chunk.get("object") == "error":
            answer.error = True
            continue
        _take_usage(answer, chunk)
        for position, part in enumerate(_dicts(chunk.get("choices"))):
            _take_part(_choice(by_index, _index(part, position)), part)


def _choice(by_index: dict[int, dict[str, Any]], index: int) -> dict[str, Any]:
    choice = by_index.get(index)
    if choice is None:
        message = {"role": "assistant", "content": None}
        choice = by_index[index] = {"index": index, "message": message, "finish_reason": None}
    return choice


def _take_part(choice: dict[str, Any], part: dict[str, Any]) -> None:
    message = choice["message"]
    delta = part.get("delta")
    if isinstance(delta, dict):
        _merge(message, delta)
    elif isinstance(part.get("text"), str):
        message["content"] = (message["content"] or "") + part["text"]
    elif isinstance(part.get("message"), dict):  # some engines end a stream with the whole message
        message.update(part["message"])
    reason = _string(part.get("finish_reason"))
    if reason is not None:
        choice["finish_reason"] = reason


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        known = into.get(key)
        if value is None:
            continue
        if key == "tool_calls":
            if not isinstance(known, list):  # absent, or null in a whole message
                known = into[key] = []
            _merge_calls(known, _dicts(value))
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif isinstance(value, list) and isinstance(known, list):
            known.extend(value)
        elif key in _JOINED and isinstance(value, str) and isinstance(known, str):
            if key != "name" or known != value:  # some engines repeat the whole name in every chunk
                into[key] = known + value
        else:
            into[key] = value


def _merge_calls(calls: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    for part in parts:
        call = _find_call(calls, part)
        if call is None:
            call = {"index": part.get("index", len(calls)), "type": "function", "function": {}}
            calls.append(call)
        _merge(call, {key: value for key, value in part.items() if key != "index"})


def _find_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> dict[str, Any] | None:
    known = _dicts(calls)  # a whole message brings them as the engine wrote them
    if "index" in part:
        return next((call for call in known if call.get("index") == part["index"]), None)
    if part.get("id"):
        return next((call for call in known if call.get("id") == part["id"]), None)
    return known[-1] if known else None


def _events(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Event name and data of every event that has data (WHATWG, "Interpreting an event stream")."""
    name = b""
    parts: list[bytes] = []
    for line in _LINE_END.split(data.removeprefix(_BOM)):
        if not line:
            if parts:
                yield name, b"\n".join(parts)
            name, parts = b"", []
        elif line.startswith(b"data:"):
            parts.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"event:"):
            name = line[6:].strip()
    if parts:  # a last event without its blank line: whole if its JSON is
        yield name, b"\n".join(parts)


def _loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(
            replace_surrogates(json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False))
        )
    except (ValueError, RecursionError):
        return None


def _take_usage(answer: Answer, value: dict[str, Any]) -> None:
    usage = value.get("usage")
    if isinstance(usage, dict):
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens", 0)
        if type(prompt) is int and type(completion) is int:
            answer.prompt_tokens, answer.completion_tokens = prompt, completion


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _index(choice: dict[str, Any], position: int) -> int:
    index = choice.get("index")
    return index if type(index) is int and 0 <= index < 1 << 31 else position


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _says_something(message: dict[str, Any]) -> bool:
    return any(value for key, value in message.items() if key != "role")
