"""What the gateway counts, as Prometheus reads it.

Counters are plain integers that a request adds to; the families are made when someone asks. That keeps the cost of a
request at about a microsecond. Label sets are bounded: businesses come from the configuration, of each business's
models only the latest few are kept.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pipeline.gateway.exchange import Headers
from pipeline.records import StreamEnd

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_BOUNDS_NS = tuple(int(bound * 1e9) for bound in _SECONDS)
_COUNTED_AT_ONCE = 1000
_MODELS_KEPT = 8
TEXT: Headers = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
_LABELS = ("business", "arm", "model_version")


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("_counts", "_total_ns")

    def __init__(self) -> None:
        self._counts = [0] * (len(_SECONDS) + 1)
        self._total_ns = 0

    def add(self, values: list[int]) -> None:
        """Add values in ns, in rising order."""
        start = 0
        for index, bound in enumerate(_BOUNDS_NS):
            if start == len(values):
                break
            end = bisect_right(values, bound, start)
            self._counts[index] += end - start
            start = end
        self._counts[-1] += len(values) - start
        self._total_ns += sum(values)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulated, by upper bound in seconds, as Prometheus wants them."""
        bounds = [*(str(bound) for bound in _SECONDS), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))

    def total(self) -> float:
        """Sum of all values in seconds."""
        return self._total_ns / 1e9


Figures = tuple[StreamEnd, int, int, int, int, int | None, int]
"""What one turn is counted by: its end, status, tokens in and out; ns in the queue, to the first byte, in all."""


class ArmStats:
    """Counters of one business, arm and model. A turn only leaves its figures; a thousand are counted at once."""

    __slots__ = ("_new", "ends", "gap", "in_flight", "queue", "statuses", "tokens_in", "tokens_out", "total", "ttft")

    def __init__(self) -> None:
        self._new: list[Figures] = []
        self.ends: Counter[StreamEnd] = Counter(dict.fromkeys(StreamEnd, 0))
        self.statuses: Counter[int] = Counter()
        self.tokens_in = 0
        self.tokens_out = 0
        self.in_flight = 0
        self.queue = Histogram()
        self.ttft = Histogram()
        self.gap = Histogram()
        self.total = Histogram()

    def add(self, figures: Figures) -> None:
        """Add one turn."""
        self._new.append(figures)
        if len(self._new) >= _COUNTED_AT_ONCE:
            self.count()

    def count(self) -> None:
        """Count the turns that were added since the last time."""
        if not self._new:
            return
        ends, statuses, tokens_in, tokens_out, queue, ttft, total = zip(*self._new, strict=True)
        self._new = []
        self.ends.update(ends)
        self.statuses.update(statuses)
        self.tokens_in += sum(tokens_in)
        self.tokens_out += sum(tokens_out)
        self.queue.add(sorted(queue))
        self.ttft.add(sorted(first for first in ttft if first is not None))
        self.total.add(sorted(total))


class Metrics(Collector):
    """All counters of one gateway."""

    def __init__(self) -> None:
        self._arms: dict[tuple[str, str, str], ArmStats] = {}
        self.refused: dict[tuple[str, str], int] = {}
        """(business or empty, error code) to requests that the gateway itself refused."""
        self.waiting: dict[str, int] = {}
        """Requests that wait for their turn, by business."""
        self.feedback: dict[tuple[str, str], int] = {}
        """(business, kind) to accepted feedback."""
        self.shadows: dict[tuple[str, str], int] = {}
        """(business, fate) to requests that were drawn to be repeated on a version in shadow."""
        self.shadow_tokens: dict[str, int] = {}
        """Prompt and answer tokens that copies took, by business."""
        self.retries = 0
        self.record_failures = 0
        self.trips = 0
        self.log_gauges: dict[str, float] = {}
        """queued_bytes, lag_seconds, dropped_lines, failing."""
        self.routes_generation = -1
        self.fill_gauges: Callable[[], None] = lambda: None
        """Called just before the metrics are read."""
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def arm(self, business: str, arm: str, model: str) -> ArmStats:
        """The counters of one label set."""
        key = (business, arm, model)
        stats = self._arms.get(key)
        if stats is None:
            same = [known for known in self._arms if known[:2] == key[:2]]
            if len(same) >= _MODELS_KEPT:
                idle = next((known for known in same if self._arms[known].in_flight == 0), None)
                if idle is not None:
                    del self._arms[idle]
            stats = self._arms[key] = ArmStats()
        return stats

    def refuse(self, business: str, code: str) -> None:
        """Count a refusal."""
        self.refused[business, code] = self.refused.get((business, code), 0) + 1

    def exposition(self) -> bytes:
        """Prometheus's text format."""
        self.fill_gauges()
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client."""
        yield from self._arm_families()
        refused = CounterMetricFamily(
            "tuneloop_refused", "Requests that the gateway refused itself", labels=("business", "code")
        )
        for (business, code), count in self.refused.items():
            refused.add_metric((business, code), count)
        yield refused
        waiting = GaugeMetricFamily("tuneloop_waiting", "Requests that wait for their turn", labels=("business",))
        for business, number in self.waiting.items():
            waiting.add_metric((business,), number)
        yield waiting
        feedback = CounterMetricFamily("tuneloop_feedback", "Feedback accepted", labels=("business", "kind"))
        for (business, kind), count in self.feedback.items():
            feedback.add_metric((business, kind), count)
        yield feedback
        yield from self._shadow_families()
        yield CounterMetricFamily("tuneloop_retries", "Requests sent to another replica", value=self.retries)
        yield CounterMetricFamily(
            "tuneloop_record_failures", "Interactions that could not be recorded", value=self.record_failures
        )
        yield CounterMetricFamily("tuneloop_candidate_trips", "Candidates stopped by this gateway", value=self.trips)
        yield GaugeMetricFamily(
            "tuneloop_routes_generation", "Generation of the routes served", value=self.routes_generation
        )
        for name, value in self.log_gauges.items():
            yield GaugeMetricFamily(f"tuneloop_log_{name}", f"Event log: {name.replace('_', ' ')}", value=value)

    def _shadow_families(self) -> Iterator[Metric]:
        copies = CounterMetricFamily(
            "tuneloop_shadow_copies",
            "Requests drawn to be repeated on a version in shadow",
            labels=("business", "fate"),
        )
        for (business, fate), count in self.shadows.items():
            copies.add_metric((business, fate), count)
        tokens = CounterMetricFamily("tuneloop_shadow_tokens", "Tokens that such copies took", labels=("business",))
        for business, count in self.shadow_tokens.items():
            tokens.add_metric((business,), count)
        yield from (copies, tokens)

    def _arm_families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("tuneloop_responses", "Answers by HTTP status", labels=(*_LABELS, "status"))
        ends = CounterMetricFamily("tuneloop_requests", "Answers by how they ended", labels=(*_LABELS, "stream_end"))
        tokens_in = CounterMetricFamily("tuneloop_prompt_tokens", "Prompt tokens", labels=_LABELS)
        tokens_out = CounterMetricFamily("tuneloop_completion_tokens", "Completion tokens", labels=_LABELS)
        in_flight = GaugeMetricFamily("tuneloop_in_flight", "Requests being answered", labels=_LABELS)
        queue = HistogramMetricFamily("tuneloop_queue_seconds", "Arrival to dispatch", labels=_LABELS)
        ttft = HistogramMetricFamily("tuneloop_ttft_seconds", "Arrival to first byte of the answer", labels=_LABELS)
        gap = HistogramMetricFamily("tuneloop_gap_seconds", "Between two pieces of a stream", labels=_LABELS)
        total = HistogramMetricFamily("tuneloop_total_seconds", "Arrival to end of the answer", labels=_LABELS)
        for labels, stats in self._arms.items():
            stats.count()
            for end, count in stats.ends.items():
                ends.add_metric((*labels, end), count)
            for status, count in stats.statuses.items():
                requests.add_metric((*labels, str(status)), count)
            tokens_in.add_metric(labels, stats.tokens_in)
            tokens_out.add_metric(labels, stats.tokens_out)
            in_flight.add_metric(labels, stats.in_flight)
            queue.add_metric(labels, stats.queue.buckets(), stats.queue.total())
            ttft.add_metric(labels, stats.ttft.buckets(), stats.ttft.total())
            gap.add_metric(labels, stats.gap.buckets(), stats.gap.total())
            total.add_metric(labels, stats.total.buckets(), stats.total.total())
        yield from (ends, requests, tokens_in, tokens_out, in_flight, queue, ttft, gap, total)
