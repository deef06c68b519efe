"""The stages of one demo night: traffic, the nightly flow, the canary. Each goes on from where a killed run left it."""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import openai

from evals.worlds.content import Content
from examples.demo.users import (
    CanaryReply,
    Reaction,
    Tally,
    VisitResult,
    canary_traffic,
    count,
    plan_visits,
    rate_every_fifth,
    run_visits,
)
from pipeline.config import Config, Settings, child_environment
from pipeline.errors import PipelineError
from pipeline.records import Night, Route, Routes

CANARY_LIMIT_S = 900.0


class DemoError(PipelineError):
    """Something that the demo promises did not happen."""


@dataclass(frozen=True)
class Demo:
    """What every stage needs."""

    config: Config
    settings: Settings
    api_key: str
    number: int
    """Which night this is; the first is 1."""

    @property
    def folder(self) -> Path:
        """Where this night's journal is kept."""
        return self.config.state_dir / "demo" / f"night-{self.number}"

    @property
    def gateway_url(self) -> str:
        gateway = self.config.system.gateway
        return f"http://{gateway.host}:{gateway.port}"

    @property
    def controller_url(self) -> str:
        controller = self.config.system.controller
        return f"http://{controller.host}:{controller.port}"

    @property
    def admin(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.settings.admin_key.get_secret_value()}"}

    def clients(self) -> tuple[openai.AsyncOpenAI, httpx.AsyncClient]:
        """What the simulated users talk through; retries would be interactions of their own."""
        bearer = {"Authorization": f"Bearer {self.api_key}"}
        return (
            openai.AsyncOpenAI(base_url=f"{self.gateway_url}/v1", api_key=self.api_key, max_retries=0, timeout=120),
            httpx.AsyncClient(base_url=self.gateway_url, headers=bearer, timeout=60),
        )


async def talk(demo: Demo, content: Content, tell: Callable[[int, int], None], n_visits: int = 200) -> Tally:
    """Let the night's users ask and react; visits that a killed run had finished are not repeated."""
    demo.folder.mkdir(parents=True, exist_ok=True)
    journal = demo.folder / f"visits-{content.business}.jsonl"
    plan = plan_visits(content, seed=demo.number, n_visits=n_visits)
    results = _finished(journal)
    done = {result.visit_id for result in results}
    client, feedback = demo.clients()
    with journal.open("a", encoding="utf-8") as lines:

        def finished(result: VisitResult) -> None:
            results.append(result)
            if result.error is None:
                lines.write(result.model_dump_json() + "\n")
                lines.flush()
            tell(len(results), len(plan))

        todo = [visit for visit in plan if visit.visit_id not in done]
        attempt = f"{datetime.now(UTC):%H%M%S}"
        async with client, feedback:
            await run_visits(client, feedback, todo, content, attempt, concurrency=6, on_done=finished)
    errors = [result.error for result in results if result.error]
    if len(errors) > len(plan) // 20:
        raise DemoError(f"{content.business}: {len(errors)} of {len(plan)} visits failed, the first with: {errors[0]}")
    return count(content, plan, results)


def _finished(journal: Path) -> list[VisitResult]:
    if not journal.exists():
        return []
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    return [VisitResult.model_validate_json(line) for line in lines if line.endswith("\n")]


def when_due(demo: Demo, business: str) -> str:
    """The night's name: the time at which it was first started."""
    path = demo.folder / f"due-{business}"
    if not path.exists():
        path.write_text(datetime.now(UTC).replace(microsecond=0).isoformat())
    return path.read_text()


def run_night(demo: Demo, business: str, tell: Callable[[str], None]) -> Night:
    """Run the nightly flow in a process of its own; a night that was killed is run again under the same name."""
    due = when_due(demo, business)
    done = demo.config.state_dir / "nights" / business / f"{datetime.fromisoformat(due):%Y%m%dT%H%M%S}.json"
    if done.exists():
        return Night.model_validate_json(done.read_text())
    command = [sys.executable, "-m", "flows.nightly", "--business", business, "--night", due]
    with (demo.config.state_dir / "logs" / f"nightly-{business}.log").open("a", buffering=1) as log:
        process = subprocess.Popen(
            [*command, "--configs", str(demo.config.directory)],
            env=child_environment(demo.config, demo.settings),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        last = ""
        for line in process.stderr:
            log.write(line)
            if line.strip():
                last = line.strip()
                tell(last)
    if process.wait() != 0 or not done.exists():
        raise DemoError(f"the nightly run of '{business}' failed: {last} (log: {log.name})")
    return Night.model_validate_json(done.read_text())


@dataclass
class Canary:
    """What was seen of one canary from outside."""

    business: str
    version: int
    shares: list[float] = field(default_factory=list)
    arms: Counter[str] = field(default_factory=Counter)
    obeyed: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    ended: str = ""

    def saw(self, outcome: CanaryReply) -> None:
        if outcome.reply is None:
            self.errors.append(outcome.error or "")
            return
        self.arms[outcome.reply.arm] += 1
        self.obeyed[outcome.reply.arm] += outcome.reply.obeyed


async def follow_canary(
    demo: Demo,
    content: Content,
    version: int,
    serving_name: str,
    tell: Callable[[Canary], None],
    react: Reaction = rate_every_fifth,
) -> Canary:
    """Keep fresh users coming until the controller has brought the version to everybody, or back."""
    seen = Canary(content.business, version)
    stop = asyncio.Event()
    client, feedback = demo.clients()
    attempt = f"n{demo.number}-{datetime.now(UTC):%H%M%S}"

    controller = httpx.AsyncClient(base_url=demo.controller_url, headers=demo.admin, timeout=5)

    async def watch() -> None:
        deadline = time.monotonic() + CANARY_LIMIT_S
        try:
            while time.monotonic() < deadline:
                route = await _route(controller, content.business)
                if route is not None:
                    _note(seen, route, serving_name)
                if seen.ended:
                    return
                tell(seen)
                await asyncio.sleep(0.5)
            seen.ended = f"no end within {CANARY_LIMIT_S:.0f} s"
        finally:
            stop.set()

    async with client, feedback, controller, asyncio.TaskGroup() as group:
        group.create_task(watch())
        traffic = canary_traffic(
            client, feedback, content, stop, attempt, concurrency=4, react=react, on_reply=seen.saw
        )
        group.create_task(traffic)
    return seen


def _note(seen: Canary, route: Route, serving_name: str) -> None:
    if route.candidate is not None and route.candidate.model == serving_name:
        if not seen.shares or seen.shares[-1] != route.share:
            seen.shares.append(route.share)
    elif route.stable.model == serving_name:
        seen.ended = "stable"
    elif seen.shares:
        seen.ended = "rolled back"


async def _route(controller: httpx.AsyncClient, business: str) -> Route | None:
    try:
        answer = await controller.get("/routes")
        answer.raise_for_status()
    except httpx.HTTPError:
        return None  # the next look, half a second later, tells
    routes = Routes.model_validate_json(answer.content).routes
    return next((route for route in routes if route.business == business), None)


def save(demo: Demo, name: str, value: object) -> None:
    """Keep a fact of this night for the summary of a run that goes on later."""
    (demo.folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def load(demo: Demo, name: str) -> object | None:
    """A fact kept by `save`, or None."""
    path = demo.folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def unloaded(demo: Demo, wanted: Sequence[str]) -> list[str]:
    """Which of the serving names the running engine does not list."""
    engine = next(engine for engine in demo.config.system.engines if engine.serves != "base")
    key = demo.settings.engine_key.get_secret_value()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    listed = {model["id"] for model in httpx.get(f"{engine.url}/v1/models", headers=headers).json()["data"]}
    return [name for name in wanted if name not in listed]
