"""A real preference, learned by SmolLM2 over two nights from what simulated users say, and brought to all of them.

Each seed is a stack of its own with the English business of the demo. The truth score is measured on questions that no
user of any night asks: those of the golden suite, which is never trained on, and it is not the suite's own score.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import httpx
import numpy as np

from evals.stats import paired_interval
from evals.worlds.content import Content, load_content, truth
from examples.demo import checks
from examples.demo.stages import Demo, follow_canary, load, run_night, save, talk
from pipeline.clean.text import message_text
from pipeline.dataset.suite import load_suite
from pipeline.records import Night, Verdict
from pipeline.rollout.state import Steady
from pipeline.rollout.store import RolloutStore
from pipeline.services import Services
from tests.proof.real.place import configure, running
from tests.proof.rows import Row

BUSINESS = "support"
NIGHTS = 2
SEEDS = "1 to {seeds}"
"""What the page says of them."""
Tell = Callable[[str], None]


def prove(tell: Tell, seeds: int) -> Iterator[list[Row]]:
    """Two nights of each seed; a run that was stopped goes on where it was."""
    for seed in range(1, seeds + 1):
        with running(configure(f"learning-{seed}", {}), tell) as (first, services):
            scores: list[list[float]] = []
            for number in range(1, NIGHTS + 1):
                demo = Demo(first.config, first.settings, first.api_key, 100 * seed + number)
                yield _night(demo, services, number, scores, partial(_of_seed, tell, seed))


def _of_seed(tell: Tell, seed: int, what: str) -> None:
    tell(f"seed {seed}: {what}")


def _night(demo: Demo, services: Services, number: int, scores: list[list[float]], tell: Tell) -> list[Row]:
    """One night's rows; the truth scores of what serves before and after it are added to `scores`."""
    content = load_content(BUSINESS)
    demo.folder.mkdir(parents=True, exist_ok=True)
    before = _before(demo, services)
    if not scores:
        scores.append(_truth(demo, services, content, before, tell))
    asyncio.run(talk(demo, content, lambda done, of: tell(f"visit {done} of {of}") if done % 50 == 0 else None))
    night = run_night(demo, BUSINESS, tell)
    rows = [] if night.verdict is not Verdict.PROMOTE else _promoted(demo, services, content, night, before, tell)
    serving = services.registry.aliases(BUSINESS).get("champion")
    after = scores[-1] if serving == before else _truth(demo, services, content, serving, tell)
    differences = np.array(after) - np.array(scores[-1])
    told = paired_interval(differences, np.arange(len(differences)), confidence=0.95, samples=2000, seed=0)
    was, scores_now = scores[-1], after
    scores.append(scores_now)
    name = f"night {number} of {NIGHTS}, seed {demo.number // 100}"
    # After the first night there may be nothing left to learn: then what must hold is that nothing got worse.
    right = (told.low or 0.0) > 0 if number == 1 else told.estimate >= -0.05
    return [
        Row(
            f"a real preference, {name}",
            f"真实的偏好，第 {number} 夜，种子 {demo.number // 100}",
            "truth score rises" if number == 1 else "truth score does not fall",
            "真实得分上升" if number == 1 else "真实得分不下降",
            f"{100 * sum(was) / len(was):.0f} → {100 * sum(after) / len(after):.0f} % "
            f"({100 * told.estimate:+.0f} points, {100 * (told.low or 0):+.0f} to {100 * (told.high or 0):+.0f}); "
            f"{night.verdict or night.end}",
            right,
        ),
        *rows,
    ]


def _promoted(
    demo: Demo, services: Services, content: Content, night: Night, before: int | None, tell: Tell
) -> list[Row]:
    """The canary's way to all users, and what a rollback would return to."""
    assert night.version is not None
    name = checks.serving_name(services.registry, night)
    asyncio.run(follow_canary(demo, content, night.version, name, lambda seen: tell(f"canary {seen.shares}")))
    state = RolloutStore(services.control).read(BUSINESS).state
    steady = state if isinstance(state, Steady) else None
    right = steady is not None and steady.stable == night.version and steady.previous == before
    return [
        Row(
            f"version {night.version} passed the gate, seed {demo.number // 100}",
            f"版本 {night.version} 通过把关，种子 {demo.number // 100}",
            "canary finished, predecessor kept for rollback",
            "灰度完成，前一版本留作回滚",
            "no end" if steady is None else f"serves: {steady.stable}, rollback to: {checks.name_of(steady.previous)}",
            right,
        )
    ]


def _before(demo: Demo, services: Services) -> int | None:
    kept = load(demo, "before")
    if not isinstance(kept, dict):
        kept = {BUSINESS: services.registry.aliases(BUSINESS).get("champion")}
        save(demo, "before", kept)
    version: int | None = kept[BUSINESS]
    return version


def _truth(demo: Demo, services: Services, content: Content, version: int | None, tell: Tell) -> list[float]:
    """The truth score of each answer that a version gives to the held-out questions, through its engine."""
    tell(f"asking {checks.name_of(version)}")
    kind = "adapters" if version is None else "base"
    engine = next(engine for engine in demo.config.system.engines if engine.serves != kind)
    model = demo.config.system.base_model.id
    if version is not None:
        model = services.registry.get(BUSINESS, version).serving_name
    headers = {"Authorization": f"Bearer {demo.settings.engine_key.get_secret_value()}"}
    found = []
    with httpx.Client(base_url=engine.url, headers=headers, timeout=120) as client:
        for item in load_suite(demo.config.directory / "suites" / f"{BUSINESS}.yaml").items:
            body = {"model": model, "messages": item.messages, "temperature": 0, "max_tokens": content.max_tokens}
            answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            text = message_text(answer["choices"][0]["message"])
            found.append(truth(text, content, item.id.rsplit("-", 1)[0]))
    return found
