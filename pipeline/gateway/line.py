"""The line of the event log that a turn becomes: an `Interaction` (its copy: a `ShadowAnswer`) without a pydantic
model's validation, so that what the client and the engine wrote goes in as it came."""

import json
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw
from pydantic import ValidationError

from pipeline.gateway.request import replace_surrogates
from pipeline.records import Interaction, Record, ShadowAnswer

_ENCODE = msgspec.json.Encoder().encode
_MANY_BRACKETS = 150


class TimingsLine(msgspec.Struct, omit_defaults=True):
    """A `Timings` on its way to the log."""

    queue_ms: float
    total_ms: float
    ttft_ms: float | None = None
    gap_p50_ms: float | None = None
    gap_p99_ms: float | None = None
    gap_max_ms: float | None = None


class Line(msgspec.Struct):
    """An `Interaction` on its way to the log."""

    interaction_id: str
    business: str
    session: str
    session_known: bool
    user_key: str | None
    user_group: str
    arm: str
    share: float
    rollout_salt: str
    model_version: str
    adapter: str | None
    base_model: str
    prompt_hash: str
    request: dict[str, Raw] | dict[str, bool]
    choices: list[dict[str, Any]]
    usage: dict[str, int | None] | None
    timings: TimingsLine
    status: int
    stream_end: str
    client: str
    regenerates: str | None
    started_at: datetime


class ShadowLine(msgspec.Struct):
    """A `ShadowAnswer` on its way to the log."""

    interaction_id: str
    business: str
    session: str
    user_key: str | None
    rollout_salt: str
    model_version: str
    choices: list[dict[str, Any]]
    usage: dict[str, int | None] | None
    total_ms: float
    status: int | None
    stream_end: str
    started_at: datetime


def encode_line(line: Line) -> bytes:
    """The line's JSON, such that every reader of the log can take it."""
    return b'{"interaction":%b}' % _readable(line, Interaction, request={"unreadable": True}, choices=[])


def encode_shadow(line: ShadowLine) -> bytes:
    """Likewise."""
    return b'{"shadow":%b}' % _readable(line, ShadowAnswer, choices=[])


def _readable(line: Line | ShadowLine, kind: type[Record], **without: Any) -> bytes:
    """A line that is unlike most must not stop a reader: what is no such record is logged without its contents."""
    encoded = _encode(line)
    without_brackets = encoded.replace(b"[", b"").replace(b"{", b"")  # four times as fast as to count them
    if len(encoded) - len(without_brackets) > _MANY_BRACKETS:
        try:
            kind.model_validate_json(encoded)
        except (ValidationError, RecursionError):
            return _encode(msgspec.structs.replace(line, **without))
    return encoded


def _encode(line: Line | ShadowLine) -> bytes:
    try:
        return _ENCODE(line)
    except UnicodeEncodeError:
        values = msgspec.structs.asdict(line)
        if isinstance(line, Line):
            values["request"] = json.loads(_ENCODE(line.request))
        text = json.dumps(values, ensure_ascii=False, default=msgspec.to_builtins)
        return replace_surrogates(text).encode()
