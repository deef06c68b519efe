"""What was promised, and whether it holds: one row a promise. Pure."""

from tests.benchmarks.gateway.cases import (
    DIRECT,
    ENVOY,
    JSON,
    LATENCY,
    LITELLM,
    MEMORY,
    SSE,
    SSE_DENSE,
    TUNELOOP,
    TUNELOOP_TWO,
    WORKERS,
    Case,
)
from tests.benchmarks.gateway.results import Results
from tests.benchmarks.rows import Row


def rows(results: Results) -> list[Row]:
    """Every promise that the run could check."""
    made = [
        _at_most(results, "CPU µs per JSON request, against Envoy", JSON, "cpu_us", ENVOY, 1.4),
        _times_less(results, "CPU µs per JSON request, against LiteLLM", JSON, "cpu_us", LITELLM, 150),
        _at_most(results, "CPU µs per SSE chunk at 5.3k chunks/s, against Envoy", SSE, "cpu_us_event", ENVOY, 1.3),
        _at_most(results, "CPU µs per SSE chunk at 21k chunks/s, against Envoy", SSE_DENSE, "cpu_us_event", ENVOY, 1.3),
        _times_less(
            results,
            "CPU µs per SSE chunk, against LiteLLM at what it carries",
            SSE,
            "cpu_us_event",
            LITELLM,
            25,
        ),
        _added(results, "p50 ms added to the direct path at 200 JSON requests/s", LATENCY, "p50", 0.4),
        _added(results, "p99 ms added to the direct path at 200 JSON requests/s", LATENCY, "p99", 1.5),
        _added(results, "p50 ms added to the direct path's first token at 5.3k chunks/s", SSE, "first_p50", 0.5),
        _added(results, "p99 ms added to the direct path's first token at 5.3k chunks/s", SSE, "first_p99", 2.0),
        _memory(results),
        _workers(results),
    ]
    return [row for row in made if row is not None]


def _at_most(results: Results, metric: str, case: Case, what: str, peer: str, most: float) -> Row | None:
    """Ours costs at most so many times the peer's."""
    ours, theirs = results.median(case, TUNELOOP, what), results.median(case, peer, what)
    ratio = results.ratio(case, TUNELOOP, peer, what)
    if ours is None or ratio is None:
        return None
    busy = results.contended(case, TUNELOOP, peer)
    return Row(metric, ours, theirs, ratio, f"at most {most:g} times", ratio <= most, busy)


def _times_less(results: Results, metric: str, case: Case, what: str, peer: str, least: float) -> Row | None:
    """Ours costs at least so many times less than the peer's."""
    ours, theirs = results.median(case, TUNELOOP, what), results.median(case, peer, what)
    ratio = results.ratio(case, peer, TUNELOOP, what)
    if ours is None or ratio is None:
        return None
    busy = results.contended(case, TUNELOOP, peer)
    return Row(metric, ours, theirs, ratio, f"at least {least:g} times less", ratio >= least, busy)


def _added(results: Results, metric: str, case: Case, what: str, most: float) -> Row | None:
    """Ours less the direct path's, in ms."""
    ours = results.added(case, TUNELOOP, DIRECT, what)
    if ours is None:
        return None
    busy = results.contended(case, TUNELOOP, DIRECT)
    return Row(metric, ours, results.median(case, DIRECT, what), None, f"at most {most:g}", ours <= most, busy)


def _memory(results: Results) -> Row | None:
    ours, most = results.median(MEMORY, TUNELOOP, "peak_mb"), 80
    if ours is None:
        return None
    busy = results.contended(MEMORY, TUNELOOP)
    return Row("peak MB of a worker at 1,000 open streams", ours, None, None, f"at most {most}", ours <= most, busy)


def _workers(results: Results) -> Row | None:
    one, two = results.median(WORKERS, TUNELOOP, "rps"), results.median(WORKERS, TUNELOOP_TWO, "rps")
    ratio = results.ratio(WORKERS, TUNELOOP_TWO, TUNELOOP, "rps")
    if two is None or ratio is None:
        return None
    busy = results.contended(WORKERS, TUNELOOP, TUNELOOP_TWO)
    return Row("JSON requests/s of two workers, against one worker", two, one, ratio, "none", None, busy)
