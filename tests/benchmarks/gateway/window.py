"""One window: one contestant under one case, once."""

from dataclasses import dataclass

from tests.benchmarks.gateway.cases import Case
from tests.benchmarks.gateway.job import Job, Outcome
from tests.benchmarks.gateway.proc import reset_peak
from tests.benchmarks.gateway.servers import LOAD_CORE, Server, run_load

CONTENDED_CORES = 0.15
"""Above so many cores taken by others a window is marked, and left out where there are clean ones."""
_WRONG_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class Contestant:
    """A gateway under test, or the stub itself as `direct`."""

    name: str
    server: Server
    keys: tuple[str, ...]
    version: str
    load_cores: tuple[int, ...] = (LOAD_CORE,)


@dataclass(frozen=True, slots=True)
class Window:
    """What one window showed; None where it does not apply."""

    contestant: str
    case: str
    round: int
    outcome: Outcome
    others_cores: float
    """CPU taken by neither gateway, stub nor load generator."""

    @property
    def contended(self) -> bool:
        """Others were busy."""
        return self.others_cores > CONTENDED_CORES

    @property
    def wrong(self) -> bool:
        """More than one answer in a thousand was bad: the figures say nothing."""
        bad = self.outcome.errors + self.outcome.broken
        return bad > _WRONG_SHARE * (self.outcome.answers + bad) or not (self.outcome.answers or self.outcome.events)

    @property
    def rps(self) -> float | None:
        """Good answers a second."""
        return self.outcome.answers / self.outcome.seconds if self.outcome.answers else None

    @property
    def cpu_us(self) -> float | None:
        """CPU time of the gateway a request, in µs."""
        return _per(self.outcome.cpu_ns / 1e3, self.outcome.answers)

    @property
    def cpu_us_event(self) -> float | None:
        """CPU time of the gateway a chunk of the streams, in µs."""
        return _per(self.outcome.cpu_ns / 1e3, self.outcome.events)

    @property
    def chunks_a_second(self) -> float | None:
        """Chunks that came to the clients."""
        return self.outcome.events / self.outcome.seconds

    @property
    def p50(self) -> float | None:
        """Of whole answers, in ms."""
        return self.outcome.p50

    @property
    def p99(self) -> float | None:
        """Of whole answers, in ms."""
        return self.outcome.p99

    @property
    def first_p50(self) -> float | None:
        """Time to first token, in ms."""
        return self.outcome.first_p50

    @property
    def first_p99(self) -> float | None:
        """Time to first token, in ms."""
        return self.outcome.first_p99

    @property
    def peak_mb(self) -> float | None:
        """Most memory in the window, over all processes of the gateway."""
        return self.outcome.peak_kb / 1024 if self.outcome.peak_kb else None


def measure(contestant: Contestant, case: Case, number: int, stub: Server) -> Window:
    """Do one window."""
    case = case.for_contestant(contestant.name)
    watch = () if contestant.server is stub else contestant.server.pids
    reset_peak(watch)
    job = Job(
        port=contestant.server.port,
        keys=contestant.keys,
        stream=case.stream,
        pace_us=case.pace_us,
        connections=case.connections,
        rate=case.rate,
        warm_s=case.warm_s,
        window_s=case.window_s,
        watch=watch,
        beside=stub.pids,
    )
    outcome = run_load(job, contestant.load_cores)
    ours = outcome.cpu_ns + outcome.own_cpu_ns + outcome.beside_cpu_ns
    others = max(0.0, (outcome.busy_ns - ours) / 1e9 / outcome.seconds)
    return Window(contestant.name, case.name, number, outcome, others)


def _per(total: float, count: int) -> float | None:
    return total / count if total and count else None
