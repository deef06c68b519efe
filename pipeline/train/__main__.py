"""`python -m pipeline.train JOB`: run one training; started by `pipeline.train.process`.

Standard output carries one JSON line for each optimiser step and, last, the reason if training failed. The process
ends when its standard input does: whoever started it is gone then, and nobody would take the result.
"""

import os
import sys
import threading
from pathlib import Path

from pipeline.errors import PipelineError
from pipeline.records import Record
from pipeline.train.job import Failure, Job


def main() -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = Job.model_validate_json(Path(sys.argv[1]).read_bytes())
    from pipeline.train.run import run  # late: seconds of imports, in which the parent may already go away

    try:
        outcome = run(job, _say)
    except PipelineError as error:
        _say(Failure(reason=str(error)))
        return 1
    if outcome is not None:
        (job.output.parent / "outcome.json").write_text(outcome.model_dump_json(indent=1), encoding="utf-8")
    return 0


def _say(line: Record) -> None:
    sys.stdout.write(line.model_dump_json() + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    while os.read(0, 4096):  # not sys.stdin: its lock would be held when the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
