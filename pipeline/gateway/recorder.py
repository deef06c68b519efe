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
_MANY_BRACKETS = 150
_PROMPT = ("messages", "prompt", "tools")


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

    def _line(self, turn: Turn, end: StreamEnd, answer: Answer, timings: "_Timings") -> bytes:
        logged = {name: value for name, value in turn.fields.items() if name not in _NOT_LOGGED}
        usage = None
        if answer.prompt_tokens is not None:
            usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
        model = turn.target.model
        line = _Line(
            interaction_id=turn.interaction_id,
            business=turn.business,
            session=turn.session,
            session_known=turn.session_known,
            user_key=turn.user_key,
            user_group=turn.user_group,
            arm=turn.arm,
            share=turn.assignment.share,
            rollout_salt=turn.assignment.salt,
            model_version=model,
            adapter=None if turn.target.version is None else model,
            base_model=self._base_model,
            prompt_hash=prompt_hash(turn.fields),
            request=logged,
            choices=answer.choices,
            usage=usage,
            timings=timings,
            status=turn.status,
            stream_end=end,
            client=turn.client,
            regenerates=turn.regenerates,
            started_at=datetime.fromtimestamp(turn.started_at, UTC),
        )
        encoded = _encode(line)
        if encoded.count(b"[") + encoded.count(b"{") > _MANY_BRACKETS:
            encoded = _checked(encoded, line)
        return encoded


class _Timings(msgspec.Struct, omit_defaults=True):
    """A `Timings` on its way to the log."""

    queue_ms: float
    total_ms: float
    ttft_ms: float | None = None
    gap_p50_ms: float | None = None
    gap_p99_ms: float | None = None
    gap_max_ms: float | None = None


class _Line(msgspec.Struct):
    """An `Interaction` on its way to the log: a pydantic model costs ten times as much, and what the client and the
    engine wrote goes in as it came."""

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
    request: Any
    choices: list[dict[str, Any]]
    usage: dict[str, int | None] | None
    timings: _Timings
    status: int
    stream_end: str
    client: str
    regenerates: str | None
    started_at: datetime


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
    """SHA-256 over the JSON text of messages and tools (of prompt and tools, for `/v1/completions`) as it was sent:
    the same client writes the same question in the same bytes."""
    digest = hashlib.sha256()
    for name in _PROMPT:
        value = fields.get(name)
        if value is not None:
            digest.update(b"%b:%d:" % (name.encode(), len(bytes(value))))
            digest.update(value)
    return digest.hexdigest()


def _timings(turn: Turn, now: int, stats: ArmStats) -> _Timings:
    times = turn.piece_times
    sent = turn.sent or now
    timings = _Timings(_ms(sent - turn.arrived), _ms(now - turn.arrived))
    stats.queue.observe((sent - turn.arrived) / 1e9)
    stats.total.observe((now - turn.arrived) / 1e9)
    if times:
        timings.ttft_ms = _ms(times[0] - turn.arrived)
        stats.ttft.observe((times[0] - turn.arrived) / 1e9)
    if turn.is_stream and len(times) > 1:
        gaps = sorted([later - earlier for earlier, later in pairwise(times)])
        stats.gap.observe_all(gaps)
        last = len(gaps) - 1
        timings.gap_p50_ms = _ms(gaps[round(last * 0.5)])
        timings.gap_p99_ms = _ms(gaps[round(last * 0.99)])
        timings.gap_max_ms = _ms(gaps[last])
    return timings


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


def _encode(line: _Line) -> bytes:
    try:
        return _ENCODE(line)
    except UnicodeEncodeError:
        values = msgspec.structs.asdict(line) | {"request": json.loads(_ENCODE(line.request))}
        text = json.dumps(values, ensure_ascii=False, default=msgspec.to_builtins)
        return replace_surrogates(text).encode()


def _checked(encoded: bytes, line: _Line) -> bytes:
    """A line that is unlike most must not stop a reader: what is no `Interaction` is logged without its contents."""
    try:
        Interaction.model_validate_json(encoded)
        return encoded
    except (ValidationError, RecursionError):
        return _encode(msgspec.structs.replace(line, request={"unreadable": True}, choices=[]))
