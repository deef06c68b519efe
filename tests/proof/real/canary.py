"""A version that a person let pass, and whose users ask again more often: its canary must take it back."""

import asyncio
import random
import time
from collections.abc import Callable

from mlflow import MlflowClient

from evals.worlds.content import Question, load_content
from examples.demo.stages import Canary, Demo, follow_canary
from examples.demo.tally import Reply
from examples.demo.users import User
from pipeline.records import Arm
from pipeline.rollout.state import Outcome, Steady
from pipeline.rollout.store import RolloutStore
from pipeline.services import Services
from tests.proof.rows import Row

_AGAIN, _USUALLY = 0.6, 0.05
"""Shares of the candidate's and of all other users who ask again."""
_KNOWN_WITHIN_S = 30.0


def taken_back(demo: Demo, services: Services, business: str, tell: Callable[[str], None]) -> Row:
    """Let the newest version pass by hand, send it users, and look at what the controller made of them."""
    version = max(each.version for each in services.registry.versions(business))
    name = services.registry.get(business, version).serving_name
    before = services.registry.aliases(business).get("champion")
    if _last(services, business, version) is None:
        client = MlflowClient(demo.config.system.mlflow.url, demo.config.system.mlflow.url)
        client.set_model_version_tag(business, str(version), "override", "Ada: to see its canary")
        client.set_registered_model_alias(business, "promote", str(version))
        asyncio.run(follow_canary(demo, load_content(business), version, name, _told(tell), _ask_again))
    deadline = time.monotonic() + _KNOWN_WITHIN_S
    while (last := _last(services, business, version)) is None and time.monotonic() < deadline:
        time.sleep(0.5)
    after = services.registry.aliases(business).get("champion")
    back = last is not None and last.result == "rolled_back" and "regeneration" in last.reason and after == before
    return Row(
        f"version {version}, let pass by hand, {_AGAIN:.0%} of whose users ask again ({_USUALLY:.0%} do)",
        f"版本 {version} 由人放行，{_AGAIN:.0%} 的用户重新提问（平常 {_USUALLY:.0%}）",
        "rolled back in its canary for regenerations; what served goes on",
        "灰度中因重新生成而回滚；原来的继续服务",
        f"{last.result}: {last.reason}" if last else "no end",
        back,
    )


def _last(services: Services, business: str, version: int) -> Outcome | None:
    """How the version's rollout ended, if it has."""
    state = RolloutStore(services.control).read(business).state
    last = state.last if isinstance(state, Steady) else None
    return last if last and last.version == version else None


async def _ask_again(user: User, number: int, question: Question, reply: Reply) -> None:
    share = _AGAIN if reply.arm == Arm.CANDIDATE else _USUALLY
    if random.Random(number).random() < share:
        await user.ask(question, seed=number + 1, temperature=0.8, regenerates=reply.interaction_id)


def _told(tell: Callable[[str], None]) -> Callable[[Canary], None]:
    told: list[int] = []

    def show(seen: Canary) -> None:
        requests = sum(seen.arms.values())
        if requests // 100 not in told:
            told.append(requests // 100)
            tell(f"canary: {dict(seen.arms)}")

    return show
