"""The comparison on real engines: a model is no better than itself, and log-probabilities are the model's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evals.endpoint import Endpoint, reference_logprobs
from evals.gate import decide
from evals.run import run_eval
from flows.cli import main
from pipeline.config import GateConfig
from pipeline.records import EvalItem, Verdict
from tests.builders import an_eval_item
from tests.conftest import an_engine, running

pytestmark = pytest.mark.engine

PROMPT = ({"role": "user", "content": "What is the capital of France?"},)


def items(count: int) -> list[EvalItem]:
    rule = {"kind": "regex", "pattern": r"\w"}
    return [
        an_eval_item(
            f"q{n}",
            f"u{n}",
            messages=({"role": "user", "content": f"Say something about the number {n}."},),
            reference="It is a number.",
            rejected="No idea.",
            checks=(rule,),
        )
        for n in range(count)
    ]


# The two engines round differently, so now and then a word differs; the scores must not care.
def test_a_model_is_not_better_and_not_worse_than_itself(engines: Any, tmp_path: Path) -> None:
    base = Endpoint(url=engines.base_url, model=engines.model_id)
    other = Endpoint(url=engines.adapters_url, model=engines.model_id)
    seen: list[tuple[int, int]] = []
    result = run_eval(
        items(6),
        base,
        other,
        business="support",
        max_tokens=12,
        seed=0,
        concurrency=2,
        work_dir=tmp_path,
        max_pairs=2,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (16, 16)
    assert all(scored.baseline_answer for scored in result.items)
    assert all(scored.candidate_answer for scored in result.items)
    assert sum("preference_margin" in scored.candidate for scored in result.items) == 2
    assert sum("accepted_likelihood" in scored.candidate for scored in result.items) == 2
    config = GateConfig(bootstrap_samples=200, min_users=6, guardrails={"refusal": 0.02, "unanswered": 0.01})
    assert decide(result, config).verdict is Verdict.INCONCLUSIVE
    assert decide(result, config.model_copy(update={"goal": "not_worse"})).verdict is Verdict.PROMOTE


SYSTEM = """
base_model: {id: smollm2-135m, revision: main, path: var/models/base}
engines: [{name: e, url: "http://127.0.0.1:1"}]
"""
BUSINESS = """
business: support
title: Support
language: en
report_language: en
timezone: UTC
nightly: "0 2 * * *"
gate:
  bootstrap_samples: 200
  min_users: 8
  max_tokens: 8
  guardrails: {empty: 0.05}
  probes: {sycophancy: 0, general: 0}
"""
SHORT = [f"Say something about the number {n}." for n in range(8)]
LONG = [f"{question} {'Begin with what everybody knows about it. ' * 20}" for question in SHORT]


def test_a_serving_change_passes_or_fails_like_an_adapter(engines: Any, base_model_path: Path, tmp_path: Path) -> None:
    for name, text in (("tuneloop.yaml", SYSTEM), ("businesses/support.yaml", BUSINESS)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shorter = an_engine("base", base_model_path, tmp_path, "--max-model-len", "128")
    page = tmp_path / "compare.html"

    def compare(questions: list[str]) -> Result:
        suite = {
            "rules": [{"kind": "min_chars", "limit": 1}],
            "items": [{"id": str(n), "prompt": question} for n, question in enumerate(questions)],
        }
        (tmp_path / "suite.yaml").write_text(json.dumps(suite))
        options = {
            "--baseline": engines.base_url,
            "--candidate": shorter.url,
            "--suite": str(tmp_path / "suite.yaml"),
            "--configs": str(tmp_path),
            "--business": "support",
            "--out": str(page),
        }
        return CliRunner().invoke(main, ["compare", *(word for pair in options.items() for word in pair)])

    with running(shorter):
        same = compare(SHORT)
        assert same.exit_code == 0, same.output
        assert f"{engines.model_id} at {shorter.url}" in page.read_text(encoding="utf-8")
        worse = compare([*SHORT[:2], *LONG[2:]])
        assert worse.exit_code == 1, worse.output
        assert "No answer to 6 of 8 items: too long for the engine (the candidate alone) 6" in worse.output


def test_log_probabilities_are_those_of_the_model(engines: Any, base_model_path: Path) -> None:
    chosen, rejected = "The capital of France is Paris.", "The capital of France is a big red bus."
    endpoint = Endpoint(url=engines.base_url, model=engines.model_id)
    with _client() as client:
        found = reference_logprobs(client, endpoint, PROMPT, chosen, rejected)
    own_good, own_bad, own_per_token = _with_transformers(base_model_path, chosen, rejected)
    assert found.chosen > found.rejected
    # bf16 on the engine against float32 here: about 0.1 nats a token.
    assert found.chosen == pytest.approx(own_good, abs=1.5)
    assert found.rejected == pytest.approx(own_bad, abs=3.0)
    assert found.per_token == pytest.approx(own_per_token, abs=0.2)


def _client() -> Any:
    import httpx

    return httpx.Client(timeout=120)


def _with_transformers(path: Path, chosen: str, rejected: str) -> tuple[float, float, float]:
    """Sums over the tokens in which both differ, and the mean over all tokens of the chosen answer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    sides = []
    for answer in (chosen, rejected):
        text = tokenizer.apply_chat_template([*PROMPT, {"role": "assistant", "content": answer}], tokenize=False)
        sides.append(tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids)
    shared = next(at for at in range(sides[0].shape[1]) if sides[0][0, at] != sides[1][0, at])
    scored = []
    for ids in sides:
        with torch.no_grad():
            scored.append(model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0])
    good, bad = (float(logprobs[shared - 1 :].sum()) for logprobs in scored)
    begins = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, tokenize=False)
    answer = scored[0][len(tokenizer(begins, add_special_tokens=False).input_ids) - 1 :]
    return good, bad, float(answer.mean())
