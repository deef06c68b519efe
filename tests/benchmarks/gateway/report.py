"""What a run says in `build/bench/gateway.json` and in its section of `docs/benchmarks.md`."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from tests.benchmarks.document import wrapped
from tests.benchmarks.gateway.cases import DIRECT
from tests.benchmarks.gateway.run import Plan, Ran
from tests.benchmarks.gateway.tables import json_table, stream_table
from tests.benchmarks.gateway.window import CONTENDED_CORES
from tests.benchmarks.machine import Machine
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import rows_table

_METHOD = """\
The gateway under test is pinned to core 0; a stub engine and the load generator (asyncio on uvloop, answers and
requests made beforehand) to core 1; everything on loopback, HTTP/1.1, keep-alive, no TLS. All contestants run all the
time and their windows alternate within a round; every second round runs backwards. Figures are medians over rounds;
ratios and differences are taken within a round, then their median. CPU time is the scheduler's count
(`/proc/<pid>/task/*/schedstat`) over all processes and threads of a gateway inside the window, and is the figure to
quote: requests a second on a shared machine follow whoever else is running. Requests: 2,048 distinct ones of 1.25 KB
over 16 businesses with a key each; answers: 1.4 KB, or streams of 53 chunks and 11 KB; half of the stream requests ask
for usage.\
"""
_CAVEATS = """\
- tuneloop checks the API key, chooses model and arm, rewrites the body, measures, and logs the whole interaction
  (2.5 KB a request) to disk; the answer does not wait for the disk. nginx and Envoy only pass bytes on: no key, no
  rewriting, no log. LiteLLM does more in other places (router, cost, callbacks); it has one master key and no database,
  which production would add, and its better settings: `hosted_vllm/`, no cost, production mode, httptools, one worker.
- LiteLLM gets a load that it can carry, in a closed loop: 8 connections for JSON, 1 for its latency, 16 for streams.
- Added p99 is p99 with the gateway less p99 without it, not the p99 of the difference. Paced chunks leave the stub on
  ticks of 1 ms, many at a time, for all alike.
- The rows with workers share two cores with stub and load generator: they show that a second worker is used, not how
  far workers scale.
- Not measured: TLS, HTTP/2, very long prompts, more than two cores.\
"""


def details(plan: Plan, ran: Ran) -> dict[str, object]:
    """All that the rows come from, for the JSON file."""
    return {
        "versions": ran.versions,
        "wakes": asdict(ran.wakes),
        "skipped": ran.skipped,
        "plan": asdict(plan),
        "event_log_lines_dropped": ran.dropped_lines,
        "windows": [{"contended": window.contended, "wrong": window.wrong, **asdict(window)} for window in ran.windows],
    }


def section(plan: Plan, ran: Ran, rows: Sequence[Row], machine: Machine, now: datetime) -> str:
    """Our section of the documentation, as Markdown."""
    parts = [
        "## Gateway",
        _heading(plan, ran, machine, now),
        _METHOD,
        "### Goals",
        rows_table(rows),
        "### JSON",
        json_table(ran),
        "### Streams",
        stream_table(ran),
        "### What to know before quoting",
        "\n".join((_CAVEATS, *_notes(ran))),
    ]
    return "\n\n".join(part for part in parts if part)


def _heading(plan: Plan, ran: Ran, machine: Machine, now: datetime) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in ran.versions.items() if name != DIRECT)
    return wrapped(f"`make bench-gateway`, {now:%Y-%m-%d}, {plan.rounds} rounds. {machine}. {versions}.")


def _notes(ran: Ran) -> list[str]:
    busy = sum(window.contended for window in ran.windows)
    notes = [
        f"On this machine sending to a waiting process and getting its answer costs {ran.wakes.same_core_us:.1f} µs of "
        f"CPU when it is on the same core and {ran.wakes.other_core_us:.1f} µs when it is on the other one. A gateway "
        "pays it up to twice a request or chunk, the less the busier the other core is; where it is large (nested "
        "virtual machines), it hides differences between gateways. `make bench-gateway ARGS='--cores one'` measures "
        "without it.",
        f"In {busy} of {len(ran.windows)} windows other processes took more than {CONTENDED_CORES:g} cores. Such "
        "windows count only where a contestant has no others, and their rows are marked *.",
    ]
    if ran.dropped_lines:
        notes.append(f"tuneloop's event log could not take {ran.dropped_lines:,} lines at full load.")
    notes += [f"Skipped: {line}." for line in ran.skipped]
    return [wrapped(note, "- ", "  ") for note in notes]
