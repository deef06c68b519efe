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
    contestants: tuple[str, ...]
    """Who takes part."""
    connections: int
    title: str
    slow_connections: int = 0
    """LiteLLM's: a closed loop, because no fixed rate is right for what serves 30 requests a second on one machine and
    130 on another. Its windows are longer too, so that they hold enough answers."""
    rate: float = 0.0
    """Requests a second; 0 for a closed loop."""
    pace_us: int = 0
    """Between the pieces of a stream; 0 for a JSON document."""
    warm_s: float = 1.5
    window_s: float = 5.0

    @property
    def stream(self) -> bool:
        """Answers are event streams."""
        return self.pace_us > 0

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


JSON = Case("json", "json", CONTESTANTS, 64, "JSON, closed loop over 64 connections", slow_connections=8)
LATENCY = Case("latency", "latency", CONTESTANTS, 64, "JSON at 200 requests a second", slow_connections=1, rate=200.0)

_SSE = "100 streams started a second, a chunk every 10 ms: 5.3k chunks/s"
SSE = Case("sse", "sse", CONTESTANTS, 256, _SSE, slow_connections=16, rate=100.0, pace_us=10_000)
_DENSE = "400 streams started a second, a chunk every 10 ms: 21k chunks/s"
SSE_DENSE = Case("sse-dense", "sse", (DIRECT, *_GATEWAYS), 512, _DENSE, rate=400.0, pace_us=10_000)

_OPEN = "1,000 open streams, a chunk every 100 ms"
MEMORY = Case("memory", "memory", _GATEWAYS, 1000, _OPEN, pace_us=100_000, warm_s=6.0, window_s=3.0)
_SHARED = "JSON, closed loop over 64 connections; workers, stub and load generator share both cores"
WORKERS = Case("workers", "workers", (TUNELOOP, TUNELOOP_TWO), 64, _SHARED)
CASES = (JSON, SSE, SSE_DENSE, LATENCY, MEMORY, WORKERS)
