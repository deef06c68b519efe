"""Figures as Markdown tables: everyone side by side."""

from tests.benchmarks.gateway.cases import CONTESTANTS, DIRECT, JSON, LATENCY, MEMORY, SSE, SSE_DENSE, TUNELOOP
from tests.benchmarks.gateway.results import Results
from tests.benchmarks.gateway.run import Ran
from tests.benchmarks.tables import NONE, number, table


def json_table(ran: Ran) -> str:
    """Throughput, cost and latency without streaming."""
    results = Results(ran.windows)
    lines = []
    for name in _took_part(ran, JSON.metric, LATENCY.metric):
        lines.append(
            (
                _bold(name),
                number(results.median(JSON, name, "rps")),
                number(results.median(JSON, name, "cpu_us")),
                _pair(results.median(JSON, name, "p50"), results.median(JSON, name, "p99")),
                _pair(*(_less_direct(results, name, what) for what in ("p50", "p99"))),
                number(results.median(JSON, name, "peak_mb")),
            )
        )
    headings = (
        "",
        "requests/s",
        "CPU µs/request",
        "p50 / p99 ms at full load",
        "p50 / p99 ms at 200/s, less direct",
        "peak MB",
    )
    return table(headings, lines) if lines else ""


def stream_table(ran: Ran) -> str:
    """Cost of a chunk, time to the first token, memory with many streams open."""
    results = Results(ran.windows)
    lines = []
    for name in _took_part(ran, SSE.metric, MEMORY.metric):
        added = [results.added(SSE, name, DIRECT, what) for what in ("first_p50", "first_p99")]
        absolute = [results.median(SSE, name, what) for what in ("first_p50", "first_p99")]
        lines.append(
            (
                _bold(name),
                number(results.median(SSE, name, "cpu_us_event")),
                number(results.median(SSE_DENSE, name, "cpu_us_event")),
                _pair(*(absolute if name == DIRECT else added)),
                number(results.median(SSE_DENSE, name, "chunks_a_second")),
                number(results.median(MEMORY, name, "peak_mb")),
            )
        )
    headings = (
        "",
        "CPU µs/chunk at 5.3k chunks/s",
        "CPU µs/chunk at 21k chunks/s",
        "first token p50 / p99 ms at 5.3k chunks/s, less direct",
        "chunks/s carried of 21k",
        "peak MB at 1,000 streams",
    )
    return table(headings, lines) if lines else ""


def _less_direct(results: Results, name: str, what: str) -> float | None:
    return results.median(LATENCY, name, what) if name == DIRECT else results.added(LATENCY, name, DIRECT, what)


def _took_part(ran: Ran, *metrics: str) -> list[str]:
    """Who has a window in one of these metrics, in the usual order."""
    seen = {window.contestant for window in ran.windows if window.case.split("-")[0] in metrics}
    return [name for name in CONTESTANTS if name in seen]


def _bold(name: str) -> str:
    return f"**{name}**" if name == TUNELOOP else "direct (absolute)" if name == DIRECT else name


def _pair(one: float | None, other: float | None) -> str:
    return NONE if one is None and other is None else f"{number(one)} / {number(other)}"
