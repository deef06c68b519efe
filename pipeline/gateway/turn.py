"""One request while it is served."""

from datetime import datetime

import msgspec
from msgspec import Raw

from pipeline.gateway.conversation import Conversation
from pipeline.gateway.routing import Assignment
from pipeline.gateway.served import ServedArm

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Of an answer's body kept for the log; what comes behind is relayed all the same."""


class Turn(msgspec.Struct):
    """What is known of one request while it is served. Times are `perf_counter_ns`."""

    interaction_id: str
    business: str
    conversation: Conversation
    assignment: Assignment
    served: ServedArm
    fields: dict[str, Raw]
    """The client's body; the recorder takes out what is not logged."""
    headers: dict[bytes, bytes]
    started_at: datetime
    arrived: int
    sent: int = 0
    status: int = 0
    is_stream: bool = False
    pieces: list[bytes] = []
    piece_times: list[int] = []
    size: int = 0

    def take(self, piece: bytes, now: int) -> None:
        """Note a piece of the answer's body."""
        self.piece_times.append(now)
        self.size += len(piece)
        if self.size <= MAX_ANSWER_BYTES:
            self.pieces.append(piece)
