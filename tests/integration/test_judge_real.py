"""The judge on a real engine, which holds even a very small model to the verdict's schema."""

from typing import Any

import httpx
import pytest

from evals.endpoint import Endpoint
from evals.judge import EndpointJudge, Matchup

pytestmark = pytest.mark.engine

CUT_AT = 256


def test_the_engine_takes_the_schema_and_what_it_says_is_a_verdict_or_was_cut(engines: Any) -> None:
    statuses: list[int] = []
    hooks = {"response": [lambda response: statuses.append(response.status_code)]}
    with httpx.Client(timeout=120, event_hooks=hooks) as client:
        judge = EndpointJudge(Endpoint(url=engines.base_url, model=engines.model_id), client, seed=0)
        for question, good, bad in (
            ("What is the capital of France?", "Paris.", "A red bus."),
            ("天空是什么颜色？", "蓝色。", "七。"),
        ):
            ruling = judge.compare(Matchup(({"role": "user", "content": question},), good, bad))
            assert ruling.prompt_tokens > 100
            assert (ruling.better is None) == (ruling.completion_tokens == CUT_AT)
    assert statuses == [200, 200]
