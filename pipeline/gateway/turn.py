"""One request while it is served, and the line of the event log that it becomes."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from pipeline.records import Target

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Of an answer's body kept for the log; what comes behind is relayed all the same."""


class TimingsLine(msgspec.Struct, omit_defaults=True):
    """A `Timings` on its way to the log."""

    queue_ms: float
    total_ms: float
    ttft_ms: float | None = None
    gap_p50_ms: float | None = None
    gap_p99_ms: float | None = None
    gap_max_ms: float | None = None


class Line(msgspec.Struct):
    """An `Interaction` on its way to the log, without a pydantic model's validation: what the client and the engine
    wrote goes in as it came. Begun when the request comes; the recorder fills in the end."""

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
    request: Any
    client: str
    regenerates: str | None
    started_at: datetime
    prompt_hash: str = ""
    choices: list[dict[str, Any]] = []
    usage: dict[str, int | None] | None = None
    timings: TimingsLine | None = None
    status: int = 0
    stream_end: str = ""


@dataclass(slots=True)
class Turn:
    """What is known of one request while it is served. Times are `perf_counter_ns`."""

    line: Line
    target: Target
    arrived: int
    sent: int = 0
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
