"""Turns a finished turn into one line of the event log. It never fails and never holds up a chat."""

import hashlib
import logging
from itertools import pairwise

from msgspec import Raw

from pipeline.events.segment import SegmentWriter
from pipeline.gateway.answer import Answer, read_json_answer, read_stream
from pipeline.gateway.exchange import header_text
from pipeline.gateway.line import Line, TimingsLine, encode_line
from pipeline.gateway.metrics import Metrics
from pipeline.gateway.turn import Turn
from pipeline.records import StreamEnd

log = logging.getLogger(__name__)

_NOT_LOGGED = ("user", "cache_salt")
"""`user` is personal and stands in the log as `user_key`; the cache salt is ours."""
_PROMPT = ("messages", "prompt", "tools")


class Recorder:
    """Writes turns to the event log and counts them."""

    def __init__(self, writer: SegmentWriter, metrics: Metrics, base_model: str) -> None:
        self._writer = writer
        self._metrics = metrics
        self._base_model = base_model

    def record(self, turn: Turn, transport_end: StreamEnd, now: int) -> tuple[StreamEnd, Answer]:
        """Log and count a turn that has ended; returns how it ended and what the user got.

        Args:
            transport_end: as far as the connections tell; the answer's bytes may tell more.
            now: `perf_counter_ns`.
        """
        end, answer, times = transport_end, Answer(), turn.piece_times
        queue, total = (turn.sent or now) - turn.arrived, now - turn.arrived
        ttft = times[0] - turn.arrived if times else None
        try:
            body = turn.pieces[0] if len(turn.pieces) == 1 else b"".join(turn.pieces)
            answer = read_stream(body) if turn.is_stream else read_json_answer(body)
            end = judge_end(transport_end, turn.status, answer, is_stream=turn.is_stream)
            timings = TimingsLine(_ms(queue), _ms(total), None if ttft is None else _ms(ttft))
            if turn.is_stream and len(times) > 1:
                self._add_gaps(turn, timings)
            self._writer.append(encode_line(self._line(turn, end, answer, timings)))
        except Exception as error:  # whatever it is, the chat was served and must stay so
            self._metrics.record_failures += 1
            log.error("interaction %s not recorded: %s", turn.interaction_id, type(error).__name__)
        tokens_in, tokens_out = answer.prompt_tokens or 0, answer.completion_tokens or 0
        turn.served.stats.add((end, turn.status, tokens_in, tokens_out, queue, ttft, total))
        return end, answer

    def _line(self, turn: Turn, end: StreamEnd, answer: Answer, timings: TimingsLine) -> Line:
        conversation, assignment, served, headers = turn.conversation, turn.assignment, turn.served, turn.headers
        request, usage = turn.fields, None
        for name in _NOT_LOGGED:
            request.pop(name, None)
        if answer.prompt_tokens is not None:
            usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
        return Line(
            interaction_id=turn.interaction_id,
            business=turn.business,
            session=conversation.session,
            session_known=conversation.session_known,
            user_key=conversation.user_key,
            user_group=conversation.user_group,
            arm=served.name,
            share=assignment.share,
            rollout_salt=assignment.salt,
            model_version=served.model,
            adapter=served.adapter,
            base_model=self._base_model,
            prompt_hash=prompt_hash(request),
            request=request,
            choices=answer.choices,
            usage=usage,
            timings=timings,
            status=turn.status,
            stream_end=end,
            client=header_text(headers, b"user-agent")[:200],
            regenerates=header_text(headers, b"x-regenerates")[:64] or None,
            started_at=turn.started_at,
        )

    def _add_gaps(self, turn: Turn, timings: TimingsLine) -> None:
        gaps = sorted([later - earlier for earlier, later in pairwise(turn.piece_times)])
        turn.served.stats.gap.add(gaps)
        last = len(gaps) - 1
        timings.gap_p50_ms = _ms(gaps[round(last * 0.5)])
        timings.gap_p99_ms = _ms(gaps[round(last * 0.99)])
        timings.gap_max_ms = _ms(gaps[last])


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


def _ms(ns: int) -> float:
    """In milliseconds, to the microsecond."""
    return ns // 1000 / 1000
