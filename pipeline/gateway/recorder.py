"""Turns a finished turn into one line of the event log. It never fails and never holds up a chat."""

import hashlib
import json
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Raw
from pydantic import ValidationError

from pipeline.events.segment import SegmentWriter
from pipeline.gateway.answer import Answer, read_json_answer, read_stream
from pipeline.gateway.metrics import ArmStats, Metrics
from pipeline.gateway.request import replace_surrogates
from pipeline.gateway.routing import Assignment
from pipeline.records import Arm, Interaction, StreamEnd, Target

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Of an answer's body kept for the log; what comes behind is relayed all the same."""
_NOT_LOGGED = ("user", "cache_salt")
"""`user` is personal and stands in the log as `user_key`; the cache salt is ours."""
_ENCODE = msgspec.json.Encoder().encode
_SORTED = msgspec.json.Encoder(order="sorted").encode
_MANY_BRACKETS = 150


@dataclass(slots=True)
class Turn:
    """What is known of one request while it is served. Times are `perf_counter_ns`."""

    interaction_id: str
    business: str
    session: str
    session_known: bool
    user_key: str | None
    user_group: str
    assignment: Assignment
    arm: Arm
    target: Target
    fields: dict[str, Raw]
    client: str
    regenerates: str | None
    started_at: float
    """Seconds since the epoch."""
    arrived: int
    sent: int = 0
    status: int = 0
    is_stream: bool = False
    pieces: list[bytes] = field(default_factory=list)
    piece_times: list[int] = field(default_factory=list)
    size: int = 0

    def take(self, piece: bytes, now: int) -> None:
        """Note a piece of the answer's body."""
        self.piece_times.append(now)
        self.size += len(piece)
        if self.size <= MAX_ANSWER_BYTES:
            self.pieces.append(piece)


class Recorder:
    """Writes turns to the event log and counts them."""

    def __init__(self, writer: SegmentWriter, metrics: Metrics, base_model: str) -> None:
        self._writer = writer
        self._metrics = metrics
        self._base_model = base_model

    def record(self, turn: Turn, transport_end: StreamEnd, stats: ArmStats, now: int) -> tuple[StreamEnd, Answer]:
        """Log a turn that has ended; returns how it ended and what the user got.

        Args:
            transport_end: as far as the connections tell; the answer's bytes may tell more.
            now: `perf_counter_ns`.
        """
        end, answer = transport_end, Answer()
        try:
            body = turn.pieces[0] if len(turn.pieces) == 1 else b"".join(turn.pieces)
            answer = read_stream(body) if turn.is_stream else read_json_answer(body)
            end = judge_end(transport_end, turn.status, answer, is_stream=turn.is_stream)
            timings = _timings(turn, now, stats)
            self._writer.append(b'{"interaction":%b}' % self._line(turn, end, answer, timings))
        except Exception as error:  # whatever it is, the chat was served and must stay so
            self._metrics.record_failures += 1
            log.error("interaction %s not recorded: %s", turn.interaction_id, type(error).__name__)
        stats.ends[end] += 1
        stats.statuses[turn.status] = stats.statuses.get(turn.status, 0) + 1
        stats.tokens_in += answer.prompt_tokens or 0
        stats.tokens_out += answer.completion_tokens or 0
        return end, answer

    def _line(self, turn: Turn, end: StreamEnd, answer: Answer, timings: dict[str, float | None]) -> bytes:
        usage = None
        if answer.prompt_tokens is not None:
            usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
        logged = {name: value for name, value in turn.fields.items() if name not in _NOT_LOGGED}
        request = _ENCODE(logged)
        values = {
            "interaction_id": turn.interaction_id,
            "business": turn.business,
            "session": turn.session,
            "session_known": turn.session_known,
            "user_key": turn.user_key,
            "user_group": turn.user_group,
            "arm": turn.arm,
            "share": turn.assignment.share,
            "rollout_salt": turn.assignment.salt,
            "model_version": turn.target.model,
            "adapter": None if turn.target.version is None else turn.target.model,
            "base_model": self._base_model,
            "prompt_hash": prompt_hash(turn.fields),
            "request": Raw(request),
            "choices": answer.choices,
            "usage": usage,
            "timings": timings,
            "status": turn.status,
            "stream_end": end,
            "client": turn.client,
            "regenerates": turn.regenerates,
            "started_at": datetime.fromtimestamp(turn.started_at, UTC).isoformat(),
        }
        line = _encode(values)
        if line.count(b"[") + line.count(b"{") > _MANY_BRACKETS:
            line = _checked(line, values)
        return line


def judge_end(transport: StreamEnd, status: int, answer: Answer, *, is_stream: bool) -> StreamEnd:
    """How an answer ended, from what the connections told and what the bytes say."""
    if transport is StreamEnd.CLIENT_ABORT:
        return StreamEnd.CLIENT_ABORT if answer.has_token else StreamEnd.CLIENT_ABORT_BEFORE_FIRST_TOKEN
    if transport is not StreamEnd.COMPLETE:
        return transport
    if status >= 400 or answer.error:
        return StreamEnd.UPSTREAM_ERROR
    if answer.finished:
        return StreamEnd.COMPLETE
    return StreamEnd.ENGINE_ABORT if answer.done or not is_stream else StreamEnd.UPSTREAM_CUT


def prompt_hash(fields: dict[str, Raw]) -> str:
    """SHA-256 over the canonical JSON of messages and tools (of the prompt, for `/v1/completions`)."""
    messages = fields.get("messages")
    prompt: dict[str, Any] = {}
    if messages is not None:
        prompt["messages"] = msgspec.json.decode(messages)
    elif "prompt" in fields:
        prompt["prompt"] = msgspec.json.decode(fields["prompt"])
    tools = fields.get("tools")
    prompt["tools"] = None if tools is None else msgspec.json.decode(tools)
    return hashlib.sha256(_SORTED(prompt)).hexdigest()


def _timings(turn: Turn, now: int, stats: ArmStats) -> dict[str, float | None]:
    times = turn.piece_times
    first = times[0] if times else None
    timings: dict[str, float | None] = {
        "queue_ms": _ms(turn.sent - turn.arrived) if turn.sent else _ms(now - turn.arrived),
        "ttft_ms": None if first is None else _ms(first - turn.arrived),
        "total_ms": _ms(now - turn.arrived),
    }
    stats.total.observe((now - turn.arrived) / 1e9)
    if first is not None:
        stats.ttft.observe((first - turn.arrived) / 1e9)
    if turn.is_stream and len(times) > 1:
        gaps = sorted(later - earlier for earlier, later in pairwise(times))
        for gap in gaps:
            stats.gap.observe(gap / 1e9)
        last = len(gaps) - 1
        timings["gap_p50_ms"] = _ms(gaps[round(last * 0.5)])
        timings["gap_p99_ms"] = _ms(gaps[round(last * 0.99)])
        timings["gap_max_ms"] = _ms(gaps[last])
    return timings


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


def _encode(values: dict[str, Any]) -> bytes:
    try:
        return _ENCODE(values)
    except UnicodeEncodeError:
        text = json.dumps(values | {"request": json.loads(bytes(values["request"]))}, ensure_ascii=False)
        return replace_surrogates(text).encode()


def _checked(line: bytes, values: dict[str, Any]) -> bytes:
    """A line that is unlike most must not stop a reader: what is no `Interaction` is logged without its contents."""
    try:
        Interaction.model_validate_json(line)
        return line
    except (ValidationError, RecursionError):
        return _encode(values | {"request": {"unreadable": True}, "choices": []})
