"""What is measured: each case is one kind of load, the same for every contestant but LiteLLM."""

from dataclasses import dataclass, replace

METRICS = ("json", "sse", "latency", "memory", "workers")
DIRECT = "direct"
TUNELOOP = "tuneloop"
TUNELOOP_TWO = "tuneloop-2"
NGINX = "nginx"
ENVOY = "envoy"
LITELLM = "litellm"
CONTESTANTS = (DIRECT, TUNELOOP, NGINX, ENVOY, LITELLM)
_GATEWAYS = (TUNELOOP, NGINX, ENVOY)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load."""

    name: str
    metric: str
    title: str
    stream: bool
    connections: int
    rate: float = 0.0
    """Requests a second; 0 for a closed loop."""
    pace_us: int = 0
    warm_s: float = 1.5
    window_s: float = 5.0
    contestants: tuple[str, ...] = CONTESTANTS
    """Who takes part."""
    slow_connections: int = 0
    """LiteLLM's: a closed loop, because no fixed rate is right for what serves 30 requests a second on one machine and
    130 on another. Its windows are longer too, so that they hold enough answers."""

    def for_contestant(self, name: str) -> "Case":
        """The load that this contestant gets."""
        if name != LITELLM:
            return self
        return replace(
            self, connections=self.slow_connections, rate=0.0, warm_s=2 * self.warm_s, window_s=3 * self.window_s
        )

    def shortened(self) -> "Case":
        """For a developer's quick look."""
        return replace(self, warm_s=max(1.0, self.warm_s / 2), window_s=max(2.0, self.window_s / 2.5))


JSON = Case(
    name="json",
    metric="json",
    title="JSON, closed loop over 64 connections",
    stream=False,
    connections=64,
    slow_connections=8,
)
SSE = Case(
    name="sse",
    metric="sse",
    title="100 streams started a second, a chunk every 10 ms: 5.3k chunks/s",
    stream=True,
    connections=256,
    rate=100.0,
    pace_us=10_000,
    slow_connections=16,
)
SSE_DENSE = Case(
    name="sse-dense",
    metric="sse",
    title="400 streams started a second, a chunk every 10 ms: 21k chunks/s",
    stream=True,
    connections=512,
    rate=400.0,
    pace_us=10_000,
    contestants=(DIRECT, *_GATEWAYS),
)
LATENCY = Case(
    name="latency",
    metric="latency",
    title="JSON at 200 requests a second",
    stream=False,
    connections=64,
    rate=200.0,
    slow_connections=1,
)
MEMORY = Case(
    name="memory",
    metric="memory",
    title="1,000 open streams, a chunk every 100 ms",
    stream=True,
    connections=1000,
    pace_us=100_000,
    warm_s=6.0,
    window_s=3.0,
    contestants=_GATEWAYS,
)
WORKERS = Case(
    name="workers",
    metric="workers",
    title="JSON, closed loop over 64 connections; workers, stub and load generator share both cores",
    stream=False,
    connections=64,
    contestants=(TUNELOOP, TUNELOOP_TWO),
)
CASES = (JSON, SSE, SSE_DENSE, LATENCY, MEMORY, WORKERS)
