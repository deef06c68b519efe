"""Run the benchmark: `python -m tests.benchmarks.rollout`."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from tests.benchmarks.document import DOCUMENT, RESULTS, wrapped, write_json, write_section
from tests.benchmarks.figures import middle, percentile
from tests.benchmarks.gateway.proc import machine_busy_ns
from tests.benchmarks.machine import Machine
from tests.benchmarks.rollout import engine, nginx, ours
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import number, rows_table, shown, table

_RATE = 50.0
_COUNTS = ours.Counts(promotions=6, rollbacks=50, lost_webhooks=10, restarts=4)
_QUICK = ours.Counts(promotions=2, rollbacks=5, lost_webhooks=2, restarts=2)
_ADAPTERS, _RESTARTS = 5, 1
_CONTENDED_CORES = 0.15
_METHOD = """\
Two gateways, the controller, MLflow and two engines run as processes of their own; the controller looks every two
seconds, as it does by default. Each second 50 new users begin a conversation, at both gateways in turn, and the canary
takes all of them. When a request started is what the gateways' own event log says. Engines are scripted, so that what
is timed is tuneloop; what a real engine adds before a version's first canary is in the last rows. An alias is set by
MLflow's API, and the clock runs from the beginning of that call; each canary brings a version that no engine held. "By
polling" is with MLflow's webhooks deleted, the alias set at a random moment between two looks. The peer of a rollback
is a `split_clients` of nginx that is rewritten and reloaded, under the same load: the field's usual way, by hand on
each host, with no conversation that keeps its arm. A killed engine is timed from its first sign of life, at a random
moment between two looks. Adapters are loaded into vLLM on the CPU (SmolLM2-135M, rank 8): validated from their files,
loaded, and proven over four texts; the peer stops vLLM and starts it with `--lora-modules`, until the adapter's first
token, and serves nobody meanwhile.\
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.rollout", description="Click to traffic and back."
    )
    parser.add_argument("--quick", action="store_true", help="a few of each; nothing is published")
    parser.add_argument("--no-engine", action="store_true", help="without vLLM; nothing is published")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no process of the stack outlives the run
    counts = _QUICK if given.quick else _COUNTS
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    busy, began = machine_busy_ns(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="bench-rollout-"))

    def say(what: str) -> None:
        console.print(f"{time.monotonic() - began:5.0f} s  {what}")

    say(f"starting; logs in {folder}")
    samples = ours.measure(folder / "ours", counts, _RATE, say)
    peer: list[float] = []
    if nginx.version():
        say("rollback by nginx")
        peer = nginx.rollbacks(folder / "nginx", counts.rollbacks, _RATE)
    loads = None if given.no_engine else engine.measure(folder, _ADAPTERS, _RESTARTS, say)
    own = sum(os.times()[:4])  # and of what it started; all of that has ended
    others = ((machine_busy_ns() - busy) / 1e9 - own) / (time.monotonic() - began)
    rows = _rows(samples, peer, loads, others > _CONTENDED_CORES)
    console.print(shown(rows))
    machine, now = Machine.this(), datetime.now(UTC)
    results = RESULTS / ("rollout.json" if loads and not given.quick else "rollout-quick.json")
    kept = {"ours": asdict(samples), "nginx": peer, "engine": asdict(loads) if loads else None}
    write_json(results, rows, machine, now, kept)
    if loads and not given.quick:
        write_section("rollout", _section(rows, samples, peer, loads, machine, now))
        console.print(f"written: {results}, {DOCUMENT}", soft_wrap=True)
    shutil.rmtree(folder)
    return 0


def _rows(samples: ours.Samples, peer: Sequence[float], loads: engine.Samples | None, contended: bool) -> list[Row]:
    def row(metric: str, figure: float, most: float | None, peer: float | None = None) -> Row:
        ratio = figure / peer if peer else None
        goal, met = ("none", None) if most is None else (f"at most {most:g}", figure <= most)
        return Row(metric, figure, peer, ratio, goal, met, contended)

    promote, back = "alias `promote` to first candidate request", "alias `rollback` to last candidate request started"
    call, nginx_too = "rollback call to last candidate request started", "nginx reloaded as peer"
    p50, p99 = (_share(peer, share) if peer else None for share in (0.5, 0.99))
    rows = [
        row(f"{promote}, by webhook: p50 s", _share(samples.promote_webhook, 0.5), None),
        row(f"{promote}, by webhook: longest s", max(samples.promote_webhook), 5),
        row(f"{promote}, by polling: longest s", max(samples.promote_polling), 5),
        row(f"{call}, {nginx_too}: p50 s", _share(samples.rollback_call, 0.5), 1, p50),
        row(f"{call}, {nginx_too}: p99 s", _share(samples.rollback_call, 0.99), 1, p99),
        row("rollback call to the answer that all gateways have it: p99 s", _share(samples.rollback_answer, 0.99), 1),
        row("CPU ms of the controller a rollback: p50", 1000 * _share(samples.rollback_cpu, 0.5), None),
        row(f"{back}, by webhook: longest s", max(samples.rollback_webhook), 1),
        row(f"{back}, by polling: longest s", max(samples.rollback_polling), 5),
        row("restarted engine answers to engine in the routes: p50 s", _share(samples.whole_again, 0.5), None),
        row("restarted engine answers to engine in the routes: longest s", max(samples.whole_again), None),
    ]
    if loads:
        restart, restart_cpu = middle(loads.restart), middle(loads.restart_cpu)
        metric = "adapter validated, loaded into vLLM and proven, restart with it as peer"
        rows += [
            row(f"{metric}: p50 s", middle(loads.ready) or 0.0, None, restart),
            row(f"{metric}: CPU s of the engine", middle(loads.cpu) or 0.0, None, restart_cpu),
        ]
    return rows


def _share(values: Sequence[float], share: float) -> float:
    return percentile(sorted(values), share)


def _section(
    rows: Sequence[Row],
    samples: ours.Samples,
    peer: Sequence[float],
    loads: engine.Samples,
    machine: Machine,
    now: datetime,
) -> str:
    done = (
        f"{_COUNTS.rollbacks} rollbacks by call, {_COUNTS.promotions} promotions and {_COUNTS.lost_webhooks} rollbacks"
    )
    about = f"{done} by alias each way, {_COUNTS.restarts} restarts. {machine}, nginx {nginx.version() or 'absent'}."
    spread = table(
        ("seconds", "fewest", "p50", "p90", "p99", "most"),
        [
            (name, *(number(_share(values, share)) for share in (0.0, 0.5, 0.9, 0.99, 1.0)))
            for name, values in (
                ("promotion by webhook", samples.promote_webhook),
                ("promotion by polling", samples.promote_polling),
                ("rollback by call", samples.rollback_call),
                ("rollback by nginx", peer),
                ("rollback by webhook", samples.rollback_webhook),
                ("rollback by polling", samples.rollback_polling),
                ("engine whole again", samples.whole_again),
                ("adapter validated", loads.validate),
                ("adapter loaded", loads.load),
                ("adapter proven", loads.prove),
            )
        ],
    )
    told = f"{samples.answered:,} requests were answered meanwhile, {samples.failed:,} were not."
    parts = ["## Rollout", wrapped(f"`make bench-rollout`, {now:%Y-%m-%d}: {about}"), _METHOD, rows_table(rows)]
    parts += [spread, told]
    if any(row.contended for row in rows):
        parts.append("\\* Others took more than 0.15 cores meanwhile.")
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
