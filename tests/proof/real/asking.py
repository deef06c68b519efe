"""What serves a business, asked on its engine about questions that no user of any night asks."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from evals.worlds.content import Content
from examples.demo.stages import Demo
from pipeline.clean.text import message_text
from pipeline.dataset.suite import load_suite
from pipeline.records import Record
from pipeline.rollout.state import stable_of
from pipeline.rollout.store import RolloutStore
from pipeline.services import Services

_AT_ONCE = 8


class Asked(Record):
    """Held-out questions' topics and a model's answers, each list in the same order."""

    topics: tuple[str, ...]
    whole: tuple[str, ...]
    ends: tuple[str, ...] = ()
    """Where the right answer is begun for the model up to its closing phrase: what it goes on with."""


def ask_all(demo: Demo, services: Services, content: Content) -> Asked:
    """Ask what serves the business all questions of its suite.

    Raises:
        httpx.HTTPError: the engine does not answer.
    """
    version = stable_of(RolloutStore(services.control).read(content.business).state)
    system, key = demo.config.system, demo.settings.engine_key.get_secret_value()
    kind, model = "adapters", system.base_model.id
    if version is not None:
        kind, model = "base", services.registry.get(content.business, version).serving_name
    url = next(engine.url for engine in system.engines if engine.serves != kind)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with (
        httpx.Client(base_url=url, headers=headers, timeout=300) as client,
        ThreadPoolExecutor(_AT_ONCE) as pool,
    ):

        def ask(messages: list[Any], options: dict[str, Any]) -> str:
            body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": content.max_tokens}
            answer = client.post("/v1/chat/completions", json={**body, **options}).raise_for_status().json()
            return message_text(answer["choices"][0]["message"])

        items = load_suite(demo.config.directory / "suites" / f"{content.business}.yaml").items
        topics = [item.id.rsplit("-", 1)[0] for item in items]
        begun = [
            [*item.messages, {"role": "assistant", "content": _without_closing(content, topic)}]
            for item, topic in zip(items, topics, strict=True)
        ]
        go_on = {"add_generation_prompt": False, "continue_final_message": True}
        return Asked(
            topics=tuple(topics),
            whole=tuple(pool.map(lambda item: ask(list(item.messages), {}), items)),
            ends=tuple(pool.map(lambda messages: ask(messages, go_on), begun)),
        )


def _without_closing(content: Content, topic: str) -> str:
    return content.ideal(topic).removesuffix(content.style.closing).rstrip()
