"""tuneloop under measurement: the stack of the chaos test, undisturbed, with the controller's usual five seconds."""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
from mlflow import MlflowClient

from pipeline.config import ControllerConfig, GatewayConfig
from tests.benchmarks.gateway.proc import tree, usage
from tests.benchmarks.rollout.moments import first_after, last_until
from tests.benchmarks.rollout.traffic import Traffic
from tests.chaos.schedule import ENGINES, GATEWAYS
from tests.chaos.stack import ADMIN, BUSINESS, Stack

POLL_S = ControllerConfig().poll_s
_STEPS = ((1.0, 600.0, 5, 1200.0),)
"""Everybody at once and for hours: each user tells whether the candidate serves."""
_BLINK_S = 0.02
_LIMIT_S = 60.0
_AFTER_S = 0.4
"""A rollback is looked at for this long after the gateways have it."""
_DRAWN_S = GatewayConfig().settle_s + 0.4
"""A canary is looked at for this long before its rollback: in its first moments it draws nobody."""


class Stuck(Exception):
    """Something that always comes did not."""


@dataclass(frozen=True)
class Counts:
    """How often each thing is measured."""

    promotions: int
    rollbacks: int
    lost_webhooks: int
    restarts: int


@dataclass
class Samples:
    """Seconds, one for each time it was measured."""

    promote_webhook: list[float]
    promote_polling: list[float]
    rollback_call: list[float]
    rollback_answer: list[float]
    """From the call to the controller's answer that the gateways have it."""
    rollback_cpu: list[float]
    """Of the controller."""
    rollback_webhook: list[float]
    rollback_polling: list[float]
    whole_again: list[float]
    answered: int = 0
    failed: int = 0


def measure(folder: Path, counts: Counts, rate: float, say: Callable[[str], None]) -> Samples:
    """Start the stack, put `rate` new conversations a second on it, and measure everything once for each count."""
    samples = Samples([], [], [], [], [], [], [], [])
    state_dir = folder / "state"
    state_dir.mkdir(parents=True)
    versions = 2 + 2 * counts.promotions
    with Stack(folder, state_dir, steps=_STEPS, poll_s=POLL_S, token_ms=1.0) as stack:
        stack.up(versions)
        bench = _Bench(stack, random.Random(0))
        time.sleep(6.0)  # until then MLflow does not see the controller's new webhook
        urls = [f"{stack.url(name)}/v1/chat/completions" for name in GATEWAYS]
        body = {"model": BUSINESS, "messages": [{"role": "user", "content": "where is my parcel?"}]}
        with Traffic(urls, {"authorization": f"Bearer {stack.key}"}, body, rate) as traffic:
            fresh = iter(range(3, versions + 1))
            say("alias to first candidate request, by webhook")
            asked = [bench.promote_and_return(next(fresh)) for _ in range(counts.promotions)]
            say("rollback by call")
            calls = [bench.call(2) for _ in range(counts.rollbacks)]
            say("rollback by alias, by webhook")
            clicks = [bench.click(2) for _ in range(counts.lost_webhooks)]
            say("an engine is killed and started again")
            samples.whole_again = [bench.restart(number) for number in range(counts.restarts)]
            _forget_webhooks(stack)
            say("alias to first candidate request, webhook lost")
            asked_late = [bench.promote_and_return(next(fresh), at_random=True) for _ in range(counts.promotions)]
            say("rollback by alias, webhook lost")
            clicks_late = [bench.click(2, at_random=True) for _ in range(counts.lost_webhooks)]
        time.sleep(1.0)
        samples.answered, samples.failed = traffic.answered, traffic.failed
        starts = candidate_starts(state_dir)
    samples.promote_webhook = _firsts(starts, asked)
    samples.promote_polling = _firsts(starts, asked_late)
    samples.rollback_call = [last_until(starts, call.asked, call.until) for call in calls]
    samples.rollback_answer = [call.answered - call.asked for call in calls]
    samples.rollback_cpu = [call.cpu_s for call in calls]
    samples.rollback_webhook = [last_until(starts, click.asked, click.until) for click in clicks]
    samples.rollback_polling = [last_until(starts, click.asked, click.until) for click in clicks_late]
    return samples


def candidate_starts(state_dir: Path) -> list[float]:
    """Unix seconds at which gateways took requests that the candidate answered, sorted."""
    starts = []
    for file in (state_dir / "events" / "segments").glob("*.jsonl"):
        for line in file.read_bytes().split(b"\n")[:-1]:
            one = json.loads(line).get("interaction")
            if one and one["arm"] == "candidate":
                starts.append(datetime.fromisoformat(one["started_at"]).timestamp())
    return sorted(starts)


@dataclass(frozen=True)
class _Return:
    """A rollback: when it was asked for, when the controller said it is done, until when candidates were looked for."""

    asked: float
    answered: float
    until: float
    cpu_s: float = 0.0


class _Bench:
    """Drives a stack as people do."""

    def __init__(self, stack: Stack, draw: random.Random) -> None:
        self._stack = stack
        self._draw = draw
        self._client = httpx.Client(timeout=20.0, headers=ADMIN)

    def until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not happened():
            if time.monotonic() > deadline:
                raise Stuck(f"never came: {what}; the controller says {self._stack.status().get('problems')}")
            time.sleep(_BLINK_S)

    def serves_candidate(self, wanted: bool) -> bool:
        """Whether all gateways have a table of the controller's, with or without a candidate."""
        tables = [self._stack.routes(name) for name in GATEWAYS]
        return all(table["generation"] > 0 and bool(table["route"]["candidate"]) is wanted for table in tables)

    def promote_and_return(self, version: int, at_random: bool = False) -> float:
        """A canary of a version that no engine holds, and its rollback; returns when the alias was asked for."""
        asked = self._click("promote", version, at_random)
        self.until(lambda: self.serves_candidate(True), "a canary")
        time.sleep(_DRAWN_S)
        self._roll_back()
        return asked

    def call(self, version: int) -> _Return:
        """A canary, and its rollback at the controller's port."""
        self._begin(version)
        pids = tree(self._stack.parts["controller"].pid)
        before, asked = usage(pids).cpu_ns, time.time()
        self._post("rollback")
        answered, after = time.time(), usage(pids).cpu_ns
        time.sleep(_AFTER_S)
        until = time.time()
        self.until(self._is_settled, "aliases")
        return _Return(asked, answered, until, (after - before) / 1e9)

    def click(self, version: int, at_random: bool = False) -> _Return:
        """A canary, and alias `rollback` on the version in service."""
        self._begin(version)
        asked = self._click("rollback", 1, at_random)
        self.until(lambda: self.serves_candidate(False), "a rollback")
        answered = time.time()
        time.sleep(_AFTER_S)
        until = time.time()
        self.until(self._is_settled, "aliases")
        return _Return(asked, answered, until)

    def restart(self, number: int) -> float:
        """Seconds from an engine's first sign of life until gateways send it the stable adapter's requests again."""
        engine = ENGINES[number % len(ENGINES)]
        part, url = self._stack.parts[engine], self._stack.url(engine)
        self._begin(2)
        self._roll_back()
        part.kill()
        self.until(lambda: not self._is_in_routes(url), "an engine out of the routes")
        time.sleep(self._draw.uniform(0.0, POLL_S))
        part.start()
        self.until(part.is_ready, "an engine")
        alive = time.time()
        self.until(lambda: self._is_in_routes(url), "an engine back in the routes")
        return time.time() - alive

    def _is_in_routes(self, url: str) -> bool:
        return all(url in self._stack.routes(name)["route"]["stable"]["replicas"] for name in GATEWAYS)

    def _begin(self, version: int) -> None:
        """A canary, without waiting for the controller's next look."""
        self._set("promote", version)
        self._post("resume")  # there is nothing to resume: it only wakes
        self.until(lambda: self.serves_candidate(True), "a canary")
        time.sleep(_DRAWN_S)

    def _roll_back(self) -> None:
        self._post("rollback")
        self.until(self._is_settled, "aliases")

    def _is_settled(self) -> bool:
        """A wish of the same kind may be made again: an alias that is dealt with is taken away a moment later."""
        left = {"promote", "rollback"} & self._stack.registry.aliases(BUSINESS).keys()
        return not left and self.serves_candidate(False)

    def _click(self, alias: str, version: int, at_random: bool) -> float:
        """Unix seconds at which somebody began to set an alias; at a random moment between two of the looks."""
        if at_random:
            self._post("resume")
            time.sleep(self._draw.uniform(0.0, POLL_S))
        asked = time.time()
        self._set(alias, version)
        return asked

    def _set(self, alias: str, version: int) -> None:
        if not self._stack.set_alias(alias, version):
            raise Stuck(f"MLflow does not take alias {alias}; see {self._stack.parts['mlflow'].log}")

    def _post(self, command: str) -> None:
        body = {"business": BUSINESS, "actor": "bench", "reason": "measured"}
        self._client.post(f"{self._stack.url('controller')}/{command}", json=body).raise_for_status()


def _firsts(starts: Sequence[float], asked: Sequence[float]) -> list[float]:
    found = [first_after(starts, at) for at in asked]
    return [seconds for seconds in found if seconds is not None]


def _forget_webhooks(stack: Stack) -> None:
    """From now on MLflow tells nobody: as if each delivery was lost."""
    client = MlflowClient(stack.url("mlflow"), stack.url("mlflow"))
    for hook in client.list_webhooks():
        client.delete_webhook(hook.webhook_id)
    time.sleep(6.0)  # MLflow remembers them for five seconds
