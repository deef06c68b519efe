"""The run itself: starts the contestants, lets their windows alternate, stops them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.benchmarks.gateway import tuneloop
from tests.benchmarks.gateway.cases import (
    CASES,
    CONTESTANTS,
    DIRECT,
    ENVOY,
    LITELLM,
    NGINX,
    TUNELOOP,
    TUNELOOP_TWO,
    WORKERS,
    Case,
)
from tests.benchmarks.gateway.peers import start_envoy, start_litellm, start_nginx
from tests.benchmarks.gateway.servers import GATEWAY_CORE, LOAD_CORE, BenchError, Server, start_stub, wait_ready
from tests.benchmarks.gateway.wake import WakeCosts, measure_wakes
from tests.benchmarks.gateway.window import Contestant, Window, measure

_BOTH_CORES = (GATEWAY_CORE, LOAD_CORE)
_PEERS = {NGINX: start_nginx, ENVOY: start_envoy, LITELLM: start_litellm}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for."""

    only: tuple[str, ...] = CONTESTANTS
    metrics: tuple[str, ...] = ()
    rounds: int = 3
    quick: bool = False
    one_core: bool = False
    """Stub and load generator share the gateway's core."""

    @property
    def load_core(self) -> int:
        """Of stub and load generator."""
        return GATEWAY_CORE if self.one_core else LOAD_CORE

    @property
    def cases(self) -> tuple[Case, ...]:
        """Cases in their order, shortened for a quick look."""
        chosen = [case for case in CASES if case.metric in self.metrics]
        return tuple(case.shortened() for case in chosen) if self.quick else tuple(chosen)

    @property
    def windows(self) -> int:
        """So many windows, if nobody is skipped."""
        return self.rounds * sum(len(self.taking_part(case)) for case in self.cases)

    def taking_part(self, case: Case) -> list[str]:
        """Who is asked for, in a case; our own workers are not chosen by name."""
        return [name for name in case.contestants if name in self.only or case.metric == WORKERS.metric]


@dataclass
class Ran:
    """What came of it."""

    windows: list[Window] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    """A line for each contestant or case that did not take part."""
    wakes: WakeCosts = field(default_factory=lambda: WakeCosts(0.0, 0.0))
    dropped_lines: int = 0
    """Of our event log, over the run."""


def run(plan: Plan, folder: Path, say: Say, saw: Callable[[Window], None]) -> Ran:
    """Do all windows.

    Args:
        folder: temporary, for state and logs.
        say: takes a line for the reader.
        saw: is told of each window when it is done.
    """
    ran = Ran()
    with ExitStack() as stack:
        ran.wakes = measure_wakes()
        say(f"a wake-up costs {ran.wakes.same_core_us:.1f} µs on one core, {ran.wakes.other_core_us:.1f} µs on two")
        stub = start_stub(folder, plan.load_core)
        stack.callback(stub.stop)
        contestants = _start_all(plan, folder, stub, ran, say, stack)
        for case in plan.cases:
            say(case.title)
            if case.metric == WORKERS.metric:
                with _both_worker_counts(folder, stub, ran, say) as pair:
                    _alternate(plan, case, pair, stub, folder, ran, saw)
            else:
                _alternate(plan, case, contestants, stub, folder, ran, saw)
        ran.dropped_lines = sum(tuneloop.dropped_lines(one.server) for one in contestants if one.name == TUNELOOP)
    return ran


def _alternate(
    plan: Plan,
    case: Case,
    contestants: Sequence[Contestant],
    stub: Server,
    folder: Path,
    ran: Ran,
    saw: Callable[[Window], None],
) -> None:
    """The rounds of one case; every second one runs backwards."""
    taking_part = [one for one in contestants if one.name in case.contestants]
    for number in range(plan.rounds):
        for contestant in taking_part if number % 2 == 0 else reversed(taking_part):
            window = measure(contestant, case, number, stub)
            tuneloop.empty_event_log(folder)
            ran.windows.append(window)
            saw(window)


def _start_all(plan: Plan, folder: Path, stub: Server, ran: Ran, say: Say, stack: ExitStack) -> list[Contestant]:
    """Everyone who is asked for and can be had; idle ones cost the others next to nothing."""
    contestants = []
    for name in CONTESTANTS:
        if name not in plan.only:
            continue
        try:
            contestant = _start(name, folder, stub, say)
            if name != DIRECT:
                stack.callback(contestant.server.stop)
        except BenchError as error:
            if name == TUNELOOP:
                raise
            ran.skipped.append(f"{name}: {error}")
            say(f"skipped {name}: {error}")
            continue
        contestants.append(replace(contestant, load_cores=(plan.load_core,)))
        ran.versions[name] = contestant.version
    return contestants


def _start(name: str, folder: Path, stub: Server, say: Say) -> Contestant:
    if name == DIRECT:
        return Contestant(DIRECT, stub, ("-",), "the stub engine itself")
    if name == TUNELOOP:
        server, keys = tuneloop.start_tuneloop(folder, stub.port, (GATEWAY_CORE,))
        contestant = Contestant(TUNELOOP, server, keys, tuneloop.version())
    else:
        contestant = _PEERS[name](folder, stub.port, say)
    try:
        wait_ready(contestant.server, contestant.keys)
    except BaseException:
        contestant.server.stop()
        raise
    return contestant


@contextmanager
def _both_worker_counts(folder: Path, stub: Server, ran: Ran, say: Say) -> Iterator[list[Contestant]]:
    """Gateways of one and of two workers, on any core, as is the load generator."""
    if not tuneloop.has_workers():
        line = "workers: this gateway has no setting gateway.workers"
        ran.skipped.append(line)
        say(f"skipped {line}")
        yield []
        return
    with ExitStack() as stack:
        pair = []
        for name, workers in ((TUNELOOP, 1), (TUNELOOP_TWO, 2)):
            server, keys = tuneloop.start_tuneloop(folder, stub.port, _BOTH_CORES, workers, f"workers-{workers}")
            stack.callback(server.stop)
            wait_ready(server, keys)
            pair.append(Contestant(name, server, keys, "", load_cores=_BOTH_CORES))
        yield pair
