"""Several gateway processes on one port: one parent that binds, forks, and starts again what died.

Each worker has a listening socket of its own (SO_REUSEPORT: the kernel deals out connections). The parent keeps them
all open, so that a connection which comes while a worker is started again waits instead of failing.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

CANNOT_START = 2
"""Exit status of a worker that would fail again; all are stopped then."""
_RESTART_PAUSE_S = 0.5
_PARENT_CHECK_S = 1.0


def supervise(workers: int, serve: Callable[[int], int]) -> int:
    """Run `serve(0)` to `serve(workers - 1)`, each in a process of its own, until SIGTERM or SIGINT.

    Args:
        serve: what a worker does; returns its exit status.

    Returns:
        0 when all stopped because they were told to, `CANNOT_START` when one could not start.
    """
    running = {_fork(number, serve): number for number in range(workers)}
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        for pid in running:
            os.kill(pid, signal.SIGTERM)

    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, stop)
    status = 0
    while running:
        pid, ended = os.wait()
        number = running.pop(pid)
        code = os.waitstatus_to_exitcode(ended)
        if stopping:
            continue
        if code == CANNOT_START:
            status = CANNOT_START
            stop()
            continue
        log.error("worker %d ended (%s) and is started again", number, code)
        time.sleep(_RESTART_PAUSE_S)
        if not stopping:
            running[_fork(number, serve)] = number
    return status


def _fork(number: int, serve: Callable[[int], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, signal.SIG_DFL)  # until the worker has handlers of its own
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    status = 1
    try:
        status = serve(number)
    finally:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # nothing of the parent's may be cleaned up a second time


def _end_with(parent: int) -> None:
    """A worker whose parent was killed would hold the port for ever: stop as if told to."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGTERM)
