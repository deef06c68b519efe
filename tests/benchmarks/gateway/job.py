"""What the load generator is told, and what it answers: one JSON document each way."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One window of load on one gateway."""

    port: int
    keys: tuple[str, ...]
    """API keys, one a business, or one for all."""
    stream: bool
    pace_us: int
    """Between the pieces of the stub's stream."""
    connections: int
    rate: float
    """Requests a second, sent when they are due whatever the answers do; 0: each connection asks again when it has
    its answer."""
    warm_s: float
    window_s: float
    watch: tuple[int, ...] = ()
    """Processes under test."""
    beside: tuple[int, ...] = ()
    """The stub: busy because of the benchmark, not beside it."""

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """What `to_json` wrote."""
        fields = json.loads(text)
        return cls(**(fields | {name: tuple(fields[name]) for name in ("keys", "watch", "beside")}))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen in the window. Times in ms; 0 where nothing was seen."""

    seconds: float
    answers: int
    """Good answers that ended in the window, also those that began before it."""
    events: int
    """`data:` events that came in the window."""
    errors: int
    """Answers with another status than 200, connections lost under a request, requests never answered."""
    broken: int
    """Streams that ended without [DONE]."""
    p50: float
    p99: float
    """Of whole answers: from when the request was due to the last byte."""
    first_p50: float
    first_p99: float
    """To the first byte of the body: a stream's time to first token."""
    cpu_ns: int
    """Of the processes under test."""
    own_cpu_ns: int
    """Of the load generator."""
    beside_cpu_ns: int
    """Of the stub."""
    busy_ns: int
    """Of the whole machine."""
    rss_kb: int
    peak_kb: int

    def to_json(self) -> str:
        """For standard output."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        """What `to_json` wrote."""
        return cls(**json.loads(text))
