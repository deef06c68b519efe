"""A real preference, learned by SmolLM2 over two nights from what simulated users say, and brought to all of them.

All seeds are businesses of one stack, each with users, visits and chances of its own and with a closing phrase that its
users alone want: so they also show that no business learns another's. The truth score is measured on questions that no
user of any night asks: those of the golden suite, which is never trained on, and it is not the suite's own score.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from evals.worlds.content import Content
from examples.demo import checks
from examples.demo.stages import Canary, Demo, DemoError, follow_canary, load, run_night, save, talk
from pipeline.records import Night, Verdict
from pipeline.rollout.state import stable_of
from pipeline.rollout.store import RolloutStore
from pipeline.services import Services
from tests.proof.real.asking import ask_all
from tests.proof.real.businesses import make_world, write_businesses
from tests.proof.real.learned import Answers, apart_row, service_row, truth_row, truth_scores
from tests.proof.real.place import configure, running
from tests.proof.real.stage import Stage, once
from tests.proof.rows import FOLDER, Row

NIGHTS = 2
SEEDS = "1 to {seeds}"
"""What the page says of them."""
_VISITS = 120
_SETTLED_WITHIN_S = 60.0
Tell = Callable[[str], None]


def prove(tell: Tell, seeds: int) -> Iterator[Stage]:
    """Two nights of all seeds; a run that was stopped goes on where it was."""
    worlds = {content.business: content for content in map(make_world, range(1, seeds + 1))}
    configs = configure(FOLDER / "stacks" / f"learning-{seeds}", lambda folder: write_businesses(folder, worlds))
    with running(configs, tell) as (first, services):
        answers = [_answers(replace(first, number=0), services, worlds, tell)]
        yield Stage((), _means(worlds, answers[0]))
        for number in range(1, NIGHTS + 1):
            demo = replace(first, number=number)
            demo.folder.mkdir(parents=True, exist_ok=True)
            stage = once(demo.folder, "night", partial(_night, demo, services, worlds, answers, tell))
            answers.append(_answers(demo, services, worlds, tell))
            yield replace(stage, scores=_means(worlds, answers[-1]))
        yield once(demo.folder, "apart", lambda: [apart_row(worlds, answers[-1])])


def _night(
    demo: Demo, services: Services, worlds: Mapping[str, Content], answers: list[Answers], tell: Tell
) -> list[Row]:
    """Traffic, night and canary of every seed; the answers of what serves afterwards are kept by `_answers`."""
    before = _before(demo, services, worlds)
    asyncio.run(_talk(demo, worlds, tell))
    nights = {key: run_night(demo, key, partial(_of, tell, key)) for key in worlds}
    asyncio.run(_canaries(demo, services, worlds, nights, tell))
    now = _answers(demo, services, worlds, tell)
    store, rows = RolloutStore(services.control), []
    for key, content in worlds.items():
        name = f"night {demo.number} of {NIGHTS}, seed {key.rsplit('-', 1)[1]}"
        name_zh = f"第 {demo.number} 夜，种子 {key.rsplit('-', 1)[1]}"
        scores = [truth_scores(content, each[key]) for each in (answers[0], answers[demo.number - 1], now)]
        facts = checks.service_facts(demo, services.registry, store, nights[key], before[key])
        rows += [truth_row((name, name_zh), *scores), service_row((name, name_zh), nights[key], facts)]
    return rows


def _of(tell: Tell, key: str, what: str) -> None:
    tell(f"{key}: {what}")


async def _talk(demo: Demo, worlds: Mapping[str, Content], tell: Tell) -> None:
    def tell_of(key: str) -> Callable[[int, int], None]:
        return lambda done, of: tell(f"{key}: visit {done} of {of}") if done % 40 == 0 else None

    await asyncio.gather(*(talk(demo, content, tell_of(key), _VISITS) for key, content in worlds.items()))


async def _canaries(
    demo: Demo, services: Services, worlds: Mapping[str, Content], nights: Mapping[str, Night], tell: Tell
) -> None:
    """All at once, each until it has reached all users or was taken back."""
    shown: dict[str, int] = {}

    def tell_steps(seen: Canary) -> None:
        if shown.get(seen.business) != len(seen.shares):
            shown[seen.business] = len(seen.shares)
            tell(f"{seen.business}: canary at {seen.shares[-1] if seen.shares else 0:.0%}")

    promoted = [night for night in nights.values() if night.verdict is Verdict.PROMOTE]
    await asyncio.gather(
        *(
            follow_canary(
                demo,
                worlds[night.business],
                night.version or 0,
                checks.serving_name(services.registry, night),
                tell_steps,
            )
            for night in promoted
        )
    )
    for night in promoted:
        await _settled(services, night.business)


async def _settled(services: Services, business: str) -> None:
    """Wait until the registry's aliases say what the routes do: the controller tells it a moment later.

    Raises:
        DemoError: it does not.
    """
    deadline = time.monotonic() + _SETTLED_WITHIN_S
    while time.monotonic() < deadline:
        state = RolloutStore(services.control).read(business).state
        if services.registry.aliases(business).get("champion") == stable_of(state):
            return
        await asyncio.sleep(0.5)
    raise DemoError(f"{business}: alias champion is not what serves after {_SETTLED_WITHIN_S:.0f} s")


def _before(demo: Demo, services: Services, worlds: Mapping[str, Content]) -> dict[str, int | None]:
    """What serves each business when the night begins."""
    kept = load(demo, "before")
    if not isinstance(kept, dict):
        kept = {key: services.registry.aliases(key).get("champion") for key in worlds}
        save(demo, "before", kept)
    return kept


def _answers(demo: Demo, services: Services, worlds: Mapping[str, Content], tell: Tell) -> Answers:
    """What serves each business after a night, asked on its engine; asked once."""
    demo.folder.mkdir(parents=True, exist_ok=True)
    kept = load(demo, "answers")
    if not isinstance(kept, dict):
        tell(f"asking what serves after night {demo.number}")
        kept = {key: ask_all(demo, services, content) for key, content in worlds.items()}
        save(demo, "answers", kept)
    return kept


def _means(worlds: Mapping[str, Content], answers: Answers) -> tuple[float, ...]:
    scores = (truth_scores(content, answers[key]) for key, content in worlds.items())
    return tuple(sum(each) / len(each) for each in scores)
