"""Turns a finished turn into one line of the event log. It never fails and never holds up a chat."""

import hashlib
import json
import logging
from itertools import pairwise

import msgspec
from msgspec import Raw
from pydantic import ValidationError

from pipeline.events.segment import SegmentWriter
from pipeline.gateway.answer import Answer, read_json_answer, read_stream
from pipeline.gateway.metrics import ArmStats, Metrics
from pipeline.gateway.request import replace_surrogates
from pipeline.gateway.turn import Line, TimingsLine, Turn
from pipeline.records import Interaction, StreamEnd

log = logging.getLogger(__name__)

_NOT_LOGGED = ("user", "cache_salt")
"""`user` is personal and stands in the log as `user_key`; the cache salt is ours."""
_PROMPT = ("messages", "prompt", "tools")
_ENCODE = msgspec.json.Encoder().encode
_MANY_BRACKETS = 150


class Recorder:
    """Writes turns to the event log and counts them."""

    def __init__(self, writer: SegmentWriter, metrics: Metrics) -> None:
        self._writer = writer
        self._metrics = metrics

    def record(self, turn: Turn, transport_end: StreamEnd, stats: ArmStats, now: int) -> tuple[StreamEnd, Answer]:
        """Log a turn that has ended; returns how it ended and what the user got.

        Args:
            transport_end: as far as the connections tell; the answer's bytes may tell more.
            now: `perf_counter_ns`.
        """
        end, answer, line = transport_end, Answer(), turn.line
        try:
            body = turn.pieces[0] if len(turn.pieces) == 1 else b"".join(turn.pieces)
            answer = read_stream(body) if turn.is_stream else read_json_answer(body)
            end = judge_end(transport_end, line.status, answer, is_stream=turn.is_stream)
            _complete(turn, end, answer, now, stats)
            self._writer.append(b'{"interaction":%b}' % encode_line(line))
        except Exception as error:  # whatever it is, the chat was served and must stay so
            self._metrics.record_failures += 1
            log.error("interaction %s not recorded: %s", line.interaction_id, type(error).__name__)
        stats.ends[end] += 1
        stats.statuses[line.status] = stats.statuses.get(line.status, 0) + 1
        stats.tokens_in += answer.prompt_tokens or 0
        stats.tokens_out += answer.completion_tokens or 0
        return end, answer


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
    return hashlib.sha256(b"\0".join([fields[name] for name in _PROMPT if name in fields])).hexdigest()


def encode_line(line: Line) -> bytes:
    """The line's JSON, such that every reader of the log can take it."""
    encoded = _encode(line)
    if _count(encoded, b"[") + _count(encoded, b"{") > _MANY_BRACKETS:
        encoded = _checked(encoded, line)
    return encoded


def _count(data: bytes, byte: bytes) -> int:
    """As `data.count(byte)`, which in Python 3.11 looks at each byte by itself instead of searching."""
    return len(data) - len(data.replace(byte, b""))


def _complete(turn: Turn, end: StreamEnd, answer: Answer, now: int, stats: ArmStats) -> None:
    """Fill in what is known at the end."""
    line = turn.line
    fields: dict[str, Raw] = line.request
    line.prompt_hash = prompt_hash(fields)
    line.request = {name: value for name, value in fields.items() if name not in _NOT_LOGGED}
    line.choices = answer.choices
    if answer.prompt_tokens is not None:
        line.usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
    line.timings = _timings(turn, now, stats)
    line.stream_end = end


def _timings(turn: Turn, now: int, stats: ArmStats) -> TimingsLine:
    arrived, times = turn.arrived, turn.piece_times
    queue, total = (turn.sent or now) - arrived, now - arrived
    stats.queue.observe(queue)
    stats.total.observe(total)
    timings = TimingsLine(_ms(queue), _ms(total))
    if times:
        first = times[0] - arrived
        stats.ttft.observe(first)
        timings.ttft_ms = _ms(first)
    if turn.is_stream and len(times) > 1:
        gaps = sorted([later - earlier for earlier, later in pairwise(times)])
        stats.gap.observe_sorted(gaps)
        last = len(gaps) - 1
        timings.gap_p50_ms = _ms(gaps[round(last * 0.5)])
        timings.gap_p99_ms = _ms(gaps[round(last * 0.99)])
        timings.gap_max_ms = _ms(gaps[last])
    return timings


def _ms(ns: int) -> float:
    """In milliseconds, to the microsecond."""
    return ns // 1000 / 1000


def _encode(line: Line) -> bytes:
    try:
        return _ENCODE(line)
    except UnicodeEncodeError:
        values = msgspec.structs.asdict(line) | {"request": json.loads(_ENCODE(line.request))}
        text = json.dumps(values, ensure_ascii=False, default=msgspec.to_builtins)
        return replace_surrogates(text).encode()


def _checked(encoded: bytes, line: Line) -> bytes:
    """A line that is unlike most must not stop a reader: what is no `Interaction` is logged without its contents."""
    try:
        Interaction.model_validate_json(encoded)
        return encoded
    except (ValidationError, RecursionError):
        return _encode(msgspec.structs.replace(line, request={"unreadable": True}, choices=[]))
