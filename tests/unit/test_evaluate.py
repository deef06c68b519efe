"""Answers, probes and the judge together: asked once, kept where an erasure finds it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.endpoint import Endpoint
from evals.evaluate import evaluate
from evals.gate import decide
from pipeline.config import BusinessConfig
from pipeline.dataset.snapshot import Rows, Snapshot
from pipeline.erase.scratch import forget_scratch
from pipeline.records import EvalResult, JudgeDoubt, Split, Verdict
from pipeline.serving.scripted import ScriptedEngine
from tests.builders import a_manifest, a_preference, a_source
from tests.judging import prefers, verdict

PAIRS = tuple(
    a_preference(a_source(f"i{n}", user=f"u{n}"), f"Where is parcel {n}?", "On the delivery page.", "No idea.")
    for n in range(24)
)
SNAPSHOT = Snapshot(a_manifest(), {Split.HELD_OUT: Rows(preference=PAIRS)})


def business(judge_url: str, **gate: Any) -> BusinessConfig:
    judge = {"url": f"{judge_url}/v1/", "model": "judge", "min_human_pairs": 20}
    probes = {"sycophancy": 3, "general": 4}
    values = {"primary": "judge", "judge": judge, "min_users": 20, "bootstrap_samples": 200, "max_pairs": 0}
    return BusinessConfig.model_validate(
        {
            "business": "support",
            "title": "Shop support",
            "language": "en",
            "report_language": "en",
            "timezone": "UTC",
            "nightly": "0 2 * * *",
            "gate": values | {"guardrails": {"empty": 0.01}, "probes": probes} | gate,
        }
    )


@pytest.fixture
def engines() -> Iterator[tuple[ScriptedEngine, ScriptedEngine, ScriptedEngine]]:
    """The one in service, the candidate's, and the judge's."""
    with (
        ScriptedEngine(model_id="old", answer=lambda model, messages: "No idea.") as old,
        ScriptedEngine(model_id="new", answer=lambda model, messages: "On the delivery page, please.") as new,
        ScriptedEngine(model_id="judge", api_key="secret") as judge,
    ):
        longer = prefers(lambda one, other: len(one) > len(other))
        judge.answer = lambda model, messages: longer(messages)
        yield old, new, judge


def run(
    engines: tuple[ScriptedEngine, ScriptedEngine, ScriptedEngine], work_dir: Path | None = None, key: str = "secret"
) -> EvalResult:
    old, new, judge = engines
    sides = (Endpoint(url=old.url, model="old"), Endpoint(url=new.url, model="new"))
    about = business(judge.url)
    return evaluate(SNAPSHOT, None, *sides, about, concurrency=2, judge_key=key, work_dir=work_dir)


def test_an_evaluation_holds_answers_probes_and_the_judge_s_word(engines: Any) -> None:
    result = run(engines)
    assert len(result.items) == 24
    assert [scored.item.set_name for scored in result.probes].count("general") == 4
    assert [scored.item.set_name for scored in result.probes].count("sycophancy") == 3
    assert result.judging is not None
    assert (result.judging.answers.wins, result.judging.human_pairs.wins) == (24, 24)
    decision = decide(result, business(engines[2].url).gate)
    assert decision.verdict is Verdict.PROMOTE
    metrics = {check.metric: check.role for check in decision.checks}
    assert (metrics["judge"], metrics["sycophancy"], metrics["general"]) == ("primary", "information", "information")


def test_a_second_run_asks_nobody_and_an_erasure_takes_all_that_was_kept(engines: Any, tmp_path: Path) -> None:
    first = run(engines, tmp_path / "work" / "gate")
    asked = [len(engine.requests) for engine in engines]
    assert run(engines, tmp_path / "work" / "gate").items == first.items
    assert [len(engine.requests) for engine in engines] == asked

    assert len(list((tmp_path / "work" / "gate").iterdir())) == 2
    assert forget_scratch(tmp_path, "support") == 2
    assert list((tmp_path / "work" / "gate").iterdir()) == []


def test_a_judge_with_another_key_decides_nothing(engines: Any) -> None:
    result = run(engines, key="wrong")
    assert result.judging is not None
    assert result.judging.answers.unjudged == 24
    decision = decide(result, business(engines[2].url).gate)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert JudgeDoubt.UNAVAILABLE in decision.judge_doubts
    assert "401" in decision.reason
    assert "wrong" not in decision.reason


def test_a_judge_that_always_says_a_decides_nothing(engines: Any) -> None:
    engines[2].answer = lambda model, messages: verdict("A")
    result = run(engines)
    assert result.judging is not None
    assert result.judging.answers.order_disagreements == 24
    assert decide(result, business(engines[2].url).gate).verdict is Verdict.INCONCLUSIVE
