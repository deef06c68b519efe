"""What a completion request asks, and the bytes that are dispatched for it. Pure.

Only the fields that the gateway changes are decoded; the value of every other field is passed on byte for byte. The one
exception is a body with half a surrogate pair (`"\\ud83d"`): that is no Unicode text, engines fail on it, and it
becomes U+FFFD.
"""

import json
import re
from typing import Annotated

import msgspec
from msgspec import Raw

from pipeline.gateway.errors import Refused

_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_STRING = msgspec.json.Decoder(str | None)
_MESSAGES = msgspec.json.Decoder(list[dict[str, Raw]])
_COUNT = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=1)] | None)
_ENCODE = msgspec.json.Encoder().encode
_INCLUDE_USAGE = Raw(b'{"include_usage":true}')
_TRUE = b"true"
_NULL = b"null"
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class Asked(msgspec.Struct):
    """One request as the client wrote it."""

    fields: dict[str, Raw]
    model: str | None
    user: str | None
    stream: bool
    hide_usage: bool
    """The gateway asks for the usage chunk, the client did not."""


def read_request(body: bytes) -> Asked:
    """Read a request body.

    Raises:
        Refused: it is no JSON object in UTF-8, or a field that the gateway needs has the wrong type.
    """
    try:
        if not body.isascii():
            body.decode()
        fields = _decode_fields(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "invalid_json", f"the body must be a JSON object in UTF-8 ({_short(error)})") from error
    stream = "stream" in fields and _is(fields["stream"], _TRUE)
    hide_usage = stream and _adds_usage(fields.get("stream_options"))
    return Asked(fields, _text(fields, "model"), _text(fields, "user"), stream, hide_usage)


def engine_fields(model: str, cache_salt: str) -> dict[str, Raw]:
    """What takes the place of the client's own fields."""
    return {"model": Raw(_ENCODE(model)), "cache_salt": Raw(_ENCODE(cache_salt))}


def dispatch_body(asked: Asked, ours: dict[str, Raw]) -> bytes:
    """The body for the engine: the client's, with our fields and the usage that the log needs.

    Args:
        ours: see `engine_fields`.
    """
    fields = asked.fields | ours
    if asked.hide_usage:
        fields["stream_options"] = _with_usage(fields.get("stream_options"))
    return _ENCODE(fields)


_NOT_COPIED = ("user", "stream", "stream_options", "min_tokens", "max_tokens", "max_completion_tokens")
_DEFAULT_COMPLETION_TOKENS = 16
"""Of `/v1/completions`, where a client says nothing."""


def copy_body(fields: dict[str, Raw], ours: dict[str, Raw], most_tokens: int, *, chat: bool) -> tuple[bytes, int]:
    """A request once more, not streamed and with a limit to its answer; and that limit, in tokens.

    Args:
        fields: the client's.
        ours: see `engine_fields`.
        most_tokens: above it the client's own limit is lowered.
        chat: whether it is a chat request.
    """
    asked = [_count(fields.get(name)) for name in ("max_completion_tokens", "max_tokens")]
    default = most_tokens if chat else _DEFAULT_COMPLETION_TOKENS
    most = min(next((count for count in asked if count is not None), default), most_tokens)
    kept = {name: value for name, value in fields.items() if name not in _NOT_COPIED}
    return _ENCODE(kept | ours | {"max_tokens": Raw(_ENCODE(most))}), most


def _count(raw: Raw | None) -> int | None:
    """A positive number of tokens; None for everything else."""
    try:
        return None if raw is None else _COUNT.decode(raw)
    except msgspec.DecodeError:
        return None


def conversation_start(asked: Asked) -> tuple[str, str]:
    """The system prompt and the first user message as JSON text: what a conversation without a session id is
    recognised by. For `/v1/completions` it is the prompt."""
    messages = asked.fields.get("messages")
    if messages is None:
        return "", _json(asked.fields.get("prompt"))
    system = user = ""
    try:
        for message in _MESSAGES.decode(messages):
            role = message.get("role")
            if (_is(role, b'"system"') or _is(role, b'"developer"')) and not system:
                system = _json(message.get("content"))
            elif _is(role, b'"user"'):
                return system, _json(message.get("content"))
    except (msgspec.DecodeError, RecursionError):
        return "", _json(messages)  # not what a chat request should be; the engine will say so
    return system, user


def replace_surrogates(text: str) -> str:
    """Half surrogate pairs become U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def _decode_fields(body: bytes) -> dict[str, Raw]:
    try:
        return _FIELDS.decode(body)
    except msgspec.DecodeError:
        if not _SURROGATE_ESCAPE.search(body):
            raise
    value = json.loads(body, parse_constant=_no_constant)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return _FIELDS.decode(replace_surrogates(json.dumps(value, ensure_ascii=False)).encode())


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _is(raw: Raw | None, text: bytes) -> bool:
    return raw is not None and bytes(raw) == text


def _text(fields: dict[str, Raw], name: str) -> str | None:
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return _STRING.decode(raw)
    except msgspec.DecodeError as error:
        raise Refused(400, "invalid_type", f"'{name}' must be a string", param=name) from error


def _adds_usage(options: Raw | None) -> bool:
    if options is None or _is(options, _NULL):
        return True
    try:
        return not _is(_FIELDS.decode(options).get("include_usage"), _TRUE)
    except msgspec.DecodeError:
        return False  # not an object: the engine will say so


def _with_usage(options: Raw | None) -> Raw:
    if options is None or _is(options, _NULL):
        return _INCLUDE_USAGE
    fields = _FIELDS.decode(options)
    fields["include_usage"] = Raw(_TRUE)
    return Raw(_ENCODE(fields))


def _json(raw: Raw | None) -> str:
    return "" if raw is None else bytes(raw).decode()


def _short(error: Exception) -> str:
    return "too deeply nested" if isinstance(error, RecursionError) else str(error).split(" - at")[0][:100]
