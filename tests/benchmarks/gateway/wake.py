"""What it costs on this machine to wake a process, on the same core and on the other one.

Every request that a gateway passes on wakes somebody. Between two cores of a virtual machine that takes an interrupt
which its host may have to deliver: 1 µs on bare metal, 40 µs in some nested machines. There the figures of all
gateways are mostly this, and `--cores one` shows what the gateways themselves cost.
"""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from tests.benchmarks.document import ROOT
from tests.benchmarks.gateway.servers import GATEWAY_CORE, LOAD_CORE, BenchError

_TURNS = 5000


@dataclass(frozen=True, slots=True)
class WakeCosts:
    """CPU time of sending 100 bytes over loopback TCP to a process that waits, and waiting for its answer, in µs."""

    same_core_us: float
    other_core_us: float


def measure_wakes() -> WakeCosts:
    """Measure both, in a process of their own.

    Raises:
        BenchError: that process failed.
    """
    command = [sys.executable, "-m", "tests.benchmarks.gateway.wake"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise BenchError(f"wake-ups could not be measured: {done.stderr.strip()[-300:]}")
    return WakeCosts(**json.loads(done.stdout))


def _turn_us(core: int) -> float:
    """One turn between this process on the gateway's core and a child on `core`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    child = os.fork()
    if child == 0:
        near.close()
        os.sched_setaffinity(0, (core,))
        while far.recv(128):
            far.send(b"a" * 100)
        os._exit(0)
    far.close()
    os.sched_setaffinity(0, (GATEWAY_CORE,))
    begin = time.process_time_ns()
    for _ in range(_TURNS):
        near.send(b"q" * 100)
        near.recv(128)
    spent = time.process_time_ns() - begin
    near.close()
    os.waitpid(child, 0)
    return spent / _TURNS / 1e3


def main() -> None:
    """Print both as JSON."""
    costs = {"same_core_us": _turn_us(GATEWAY_CORE), "other_core_us": _turn_us(LOAD_CORE)}
    sys.stdout.write(json.dumps(costs) + "\n")


if __name__ == "__main__":
    main()
