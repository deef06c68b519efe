"""The query of a night on a lake, in a process of its own: `python -m tests.benchmarks.clean.query`.

All that `read_events` asks of DuckDB for one window, to the last text; its records are made of the texts afterwards. It
prints what it found and took, as one line of JSON.
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

from pipeline.events.lake import database_in_memory
from pipeline.events.read import select
from tests.benchmarks.clean.interactions import DUE
from tests.benchmarks.gateway.proc import parse_status

WINDOW = timedelta(days=3)


def main() -> None:
    """Arguments: the event log, the business."""
    began, cpu = time.monotonic(), time.process_time()
    with database_in_memory() as database:
        selected = select(database, Path(sys.argv[1]), sys.argv[2], DUE - WINDOW, DUE)
        interactions = sum(1 for _ in selected.interactions())
        feedback = sum(1 for _ in selected.feedback())
        unmatched = selected.unmatched_feedback()
    print(
        json.dumps(
            {
                "seconds": round(time.monotonic() - began, 3),
                "cpu_seconds": round(time.process_time() - cpu, 3),
                "peak_mb": parse_status(Path("/proc/self/status").read_text())["VmHWM"] // 1024,
                "interactions": interactions,
                "feedback": feedback,
                "unmatched": unmatched,
            }
        )
    )


if __name__ == "__main__":
    main()
