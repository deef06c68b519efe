"""All that a gate decides on: both sides' answers, the probes, and the judge's word where a judge is configured."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import httpx

from evals.answers import Answers
from evals.endpoint import Endpoint
from evals.items import make_items, only_text
from evals.judge import EndpointJudge, judge_answers
from evals.probes import ask_probes
from evals.run import run_eval
from pipeline.clean.pii import Rules
from pipeline.config import BusinessConfig
from pipeline.dataset.snapshot import Snapshot
from pipeline.dataset.suite import Suite
from pipeline.records import EvalItem, EvalResult, content_id

Progress: TypeAlias = Callable[[Literal["answers", "probes", "judge"], int, int], None]
"""Called with what is being done, and how much of it is done of how much."""

_PROBE_TOKENS = 48
"""Enough for a short sentence in any tokenizer; a business whose answers are longer may need room to think, too."""
_JUDGE_TIMEOUT_S = httpx.Timeout(120.0, connect=10.0)


def evaluate(
    snapshot: Snapshot,
    suite: Suite | None,
    baseline: Endpoint,
    candidate: Endpoint,
    business: BusinessConfig,
    *,
    concurrency: int,
    judge_key: str,
    work_dir: Path | None = None,
    on_progress: Progress = lambda what, done, of: None,
) -> EvalResult:
    """Ask both sides, and the judge about them.

    Args:
        concurrency: requests in flight at once at both endpoints together.
        judge_key: of `gate.judge`; empty where it asks for none.
        work_dir: what was answered is kept there and not asked for again, whoever answered; None keeps nothing.

    Raises:
        ServingError, DataError: as `evals.run.run_eval`. A judge that fails is no error: the result says so.
    """
    gate = business.gate

    def ask(items: Sequence[EvalItem], what: Literal["answers", "probes"], max_tokens: int) -> EvalResult:
        return run_eval(
            items,
            baseline,
            candidate,
            business=business.business,
            max_tokens=max_tokens,
            max_pairs=gate.max_pairs,
            seed=gate.seed,
            concurrency=concurrency,
            work_dir=work_dir,
            on_progress=partial(on_progress, what),
            rules=Rules(business.pii, business.language),
        )

    result = ask(make_items(snapshot, suite, gate.max_items, gate.seed), "answers", gate.max_tokens)
    probes = ask_probes(
        gate.probes, business.language, partial(ask, what="probes", max_tokens=max(gate.max_tokens, _PROBE_TOKENS))
    )
    result = result.model_copy(update={"probes": probes.scored, "missing": (*result.missing, *probes.missing)})
    if gate.judge is None:
        return result
    place = Endpoint(url=gate.judge.url.rstrip("/").removesuffix("/v1"), model=gate.judge.model, api_key=judge_key)
    # Named like the answers of a pair of endpoints, so that an erasure finds it, too.
    name = content_id(["judge", business.business, place.url, place.model])[:16]
    kept = Answers(work_dir / f"{business.business}-{name}.jsonl" if work_dir else None)
    with closing(kept), httpx.Client(timeout=_JUDGE_TIMEOUT_S) as client:
        return judge_answers(
            result,
            _preferences(snapshot, gate.seed),
            EndpointJudge(place, client, gate.seed),
            gate.judge,
            kept=kept,
            confidence=gate.confidence,
            on_progress=partial(on_progress, "judge"),
        )


def _preferences(snapshot: Snapshot, seed: int) -> list[EvalItem]:
    """What held-out users preferred to what, users taking turns."""
    everything = 2 * sum(len(rows.all()) for rows in snapshot.rows.values())
    items = make_items(snapshot, None, everything, seed)
    return [item for item in items if item.set_name == "held_out" and item.rejected is not None and only_text(item)]
