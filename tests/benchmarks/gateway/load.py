"""The load generator, a process of its own: does one `Job`, prints one `Outcome`.

It reads the CPU time of the processes under test itself, at both edges of its window, so that nothing outside the
window is charged to them.
"""

import asyncio
import gc
import os
import sys
from dataclasses import dataclass
from time import perf_counter_ns

import uvloop

from tests.benchmarks.figures import percentile
from tests.benchmarks.gateway.drive import ClosedLoop, OpenLoop, Seen
from tests.benchmarks.gateway.job import Job, Outcome
from tests.benchmarks.gateway.proc import Usage, machine_busy_ns, usage
from tests.benchmarks.gateway.requests import build_requests

_CONNECTING = 64
_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class _Edge:
    """The state of the world at one edge of the window."""

    at_ns: int
    tested: Usage
    own_ns: int
    beside_ns: int
    busy_ns: int

    @classmethod
    def now(cls, job: Job) -> "_Edge":
        own, beside = usage((os.getpid(),)).cpu_ns, usage(job.beside).cpu_ns
        return cls(perf_counter_ns(), usage(job.watch), own, beside, machine_busy_ns())


async def run(job: Job) -> Outcome:
    """Connect, warm up, measure."""
    requests = build_requests(f"127.0.0.1:{job.port}", job.keys, stream=job.stream, pace_us=job.pace_us)
    seen = Seen(streams=job.stream)
    loop = OpenLoop(job.port, requests, seen, job.rate) if job.rate else ClosedLoop(job.port, requests, seen)
    for start in range(0, job.connections, _CONNECTING):
        await asyncio.gather(*(loop.connect() for _ in range(start, min(job.connections, start + _CONNECTING))))
    gc.freeze()
    gc.disable()  # a collection in the middle of a window would be taken for the gateway's latency
    loop.start()
    await asyncio.sleep(job.warm_s)
    begin = _Edge.now(job)
    seen.open_window()
    await asyncio.sleep(job.window_s)
    seen.close_window()
    end = _Edge.now(job)
    await loop.finish(_DRAIN_S)
    return _outcome(seen, begin, end)


def _outcome(seen: Seen, begin: _Edge, end: _Edge) -> Outcome:
    whole, first = sorted(seen.whole_ns), sorted(seen.first_ns)
    return Outcome(
        seconds=(end.at_ns - begin.at_ns) / 1e9,
        answers=seen.answers,
        events=seen.events,
        errors=seen.errors,
        broken=seen.broken,
        p50=percentile(whole, 0.5) / 1e6,
        p99=percentile(whole, 0.99) / 1e6,
        first_p50=percentile(first, 0.5) / 1e6,
        first_p99=percentile(first, 0.99) / 1e6,
        cpu_ns=end.tested.cpu_ns - begin.tested.cpu_ns,
        own_cpu_ns=end.own_ns - begin.own_ns,
        beside_cpu_ns=end.beside_ns - begin.beside_ns,
        busy_ns=end.busy_ns - begin.busy_ns,
        rss_kb=end.tested.rss_kb,
        peak_kb=end.tested.peak_kb,
    )


def main() -> None:
    """One job, given as JSON on the command line."""
    outcome = uvloop.run(run(Job.from_json(sys.argv[1])))
    sys.stdout.write(outcome.to_json() + "\n")


if __name__ == "__main__":
    main()
