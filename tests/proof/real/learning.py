"""A real preference, learned by SmolLM2 over two nights from what simulated users say, and brought to all of them.

All seeds are businesses of one stack, each with users, visits and chances of its own and with a closing phrase that its
users alone want: so they also show that no business learns another's. In a last night the users of one want the wrong
thing. The truth score is measured on questions that no user of any night asks: those of the golden suite, which is
never trained on, and it is not the suite's own score.
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
from tests.proof.real.asking import Asked, ask_all
from tests.proof.real.businesses import make_world, spoiled, write_businesses
from tests.proof.real.learned import apart_row, refused_row, service_row, truth_row, truth_scores
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
        answers = [_all_answers(replace(first, number=0), services, worlds)]
        yield Stage((), _means(worlds, answers[0]))
        for number in range(1, NIGHTS + 1):
            demo = replace(first, number=number)
            demo.folder.mkdir(parents=True, exist_ok=True)
            before = _before(demo, services, worlds)
            asyncio.run(_talk(demo, worlds, tell))
            for key, content in worlds.items():
                asked = (answers[0][key], answers[-1][key])
                yield once(
                    demo.folder,
                    key,
                    partial(_night, demo, services, content, before[key], asked, partial(_of, tell, key)),
                )
            answers.append(_all_answers(demo, services, worlds))
            yield Stage((), _means(worlds, answers[-1]))
        yield once(demo.folder, "apart", lambda: [apart_row(worlds, answers[-1])])
        last = replace(first, number=NIGHTS + 1)
        last.folder.mkdir(parents=True, exist_ok=True)
        key, content = next(iter(worlds.items()))
        before = _before(last, services, worlds)
        yield once(last.folder, key, lambda: [_spoiled(last, services, content, before[key], partial(_of, tell, key))])


def _night(
    demo: Demo, services: Services, content: Content, before: int | None, asked: tuple[Asked, Asked], tell: Tell
) -> list[Row]:
    """The night of one seed, and its version's way to all users.

    Args:
        before: the version that serves when the night begins.
        asked: answers of the base model, and of what serves when the night begins.
    """
    night = run_night(demo, content.business, tell)
    if night.verdict is Verdict.PROMOTE:
        asyncio.run(_bring_to_all(demo, services, content, night, tell))
    seed = content.business.rsplit("-", 1)[1]
    name = (f"night {demo.number} of {NIGHTS}, seed {seed}", f"第 {demo.number} 夜，种子 {seed}")
    base, last, now = (truth_scores(content, each) for each in (*asked, _answers(demo, services, content)))
    facts = checks.service_facts(demo, services.registry, RolloutStore(services.control), night, before)
    return [truth_row(name, base, last, now), service_row(name, night, facts)]


def _spoiled(demo: Demo, services: Services, content: Content, before: int | None, tell: Tell) -> Row:
    """A night whose users want what the business's suite does not."""
    asyncio.run(talk(demo, spoiled(content), lambda *_: None, _VISITS))
    night = run_night(demo, content.business, tell)
    facts = checks.service_facts(demo, services.registry, RolloutStore(services.control), night, before)
    return refused_row(night, facts)


def _of(tell: Tell, key: str, what: str) -> None:
    tell(f"{key}: {what.split('  ', 1)[-1]}")  # the night tells the time, too


async def _talk(demo: Demo, worlds: Mapping[str, Content], tell: Tell) -> None:
    def tell_of(key: str) -> Callable[[int, int], None]:
        return lambda done, of: tell(f"{key}: visit {done} of {of}") if done % 40 == 0 else None

    await asyncio.gather(*(talk(demo, content, tell_of(key), _VISITS) for key, content in worlds.items()))


async def _bring_to_all(demo: Demo, services: Services, content: Content, night: Night, tell: Tell) -> None:
    """Users keep asking until the canary has reached all of them or was taken back, and the registry says so too.

    Raises:
        DemoError: the registry's aliases do not follow the routes, as the controller makes them a moment later.
    """
    shown: list[float] = []

    def tell_steps(seen: Canary) -> None:
        if shown != seen.shares:
            shown[:] = seen.shares
            tell(f"canary at {shown[-1]:.0%}")

    name = checks.serving_name(services.registry, night)
    await follow_canary(demo, content, night.version or 0, name, tell_steps)
    deadline = time.monotonic() + _SETTLED_WITHIN_S
    while time.monotonic() < deadline:
        state = RolloutStore(services.control).read(content.business).state
        if services.registry.aliases(content.business).get("champion") == stable_of(state):
            return
        await asyncio.sleep(0.5)
    raise DemoError(f"{content.business}: alias champion is not what serves after {_SETTLED_WITHIN_S:.0f} s")


def _before(demo: Demo, services: Services, worlds: Mapping[str, Content]) -> dict[str, int | None]:
    """What serves each business when the night begins."""
    kept = load(demo, "before")
    if not isinstance(kept, dict):
        kept = {key: services.registry.aliases(key).get("champion") for key in worlds}
        save(demo, "before", kept)
    return kept


def _answers(demo: Demo, services: Services, content: Content) -> Asked:
    """What serves the business after a night, asked on its engine; asked once."""
    name = f"answers-{content.business}"
    kept = load(demo, name)
    if kept is not None:
        return Asked.model_validate(kept)
    asked = ask_all(demo, services, content)
    save(demo, name, asked.model_dump(mode="json"))
    return asked


def _all_answers(demo: Demo, services: Services, worlds: Mapping[str, Content]) -> dict[str, Asked]:
    demo.folder.mkdir(parents=True, exist_ok=True)
    return {key: _answers(demo, services, content) for key, content in worlds.items()}


def _means(worlds: Mapping[str, Content], answers: Mapping[str, Asked]) -> tuple[float, ...]:
    scores = (truth_scores(content, answers[key]) for key, content in worlds.items())
    return tuple(sum(each) / len(each) for each in scores)
