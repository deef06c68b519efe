"""Two endpoints answer the same items: same prompts, same seed, same decoding, side by side in time.

Answers are kept as they come, so that an evaluation that was killed goes on where it was. Such a file holds answers to
one business's scrubbed prompts; it is safe to delete at any time.
"""

from collections.abc import Sequence
from pathlib import Path

import httpx
from pydantic import JsonValue

from evals.answers import Answers
from evals.endpoint import PAUSES_S, Endpoint, ReferenceLogprobs
from evals.jobs import Job, Progress, plan_jobs, run_jobs
from evals.scoring import Replies, score_items
from pipeline.clean.pii import PatternDetector, Rules
from pipeline.records import EvalItem, EvalResult, MissingReason, content_id

__all__ = ["Endpoint", "run_eval"]

_TIMEOUT_S = httpx.Timeout(300.0, connect=10.0)


def run_eval(
    items: Sequence[EvalItem],
    baseline: Endpoint,
    candidate: Endpoint,
    *,
    business: str,
    max_tokens: int,
    seed: int,
    concurrency: int,
    on_progress: Progress | None = None,
    work_dir: Path | None = None,
    max_pairs: int = 40,
    client: httpx.Client | None = None,
    pauses_s: Sequence[float] = PAUSES_S,
    rules: Rules | None = None,
) -> EvalResult:
    """Ask both endpoints every item, greedily, and score the answers.

    An item that one side gives no answer to leaves the comparison for both; it is among the result's `missing`.

    Args:
        items: each one has its own `item_id`.
        business: its key.
        max_tokens: of each answer.
        seed: sent with every request; at temperature 0 it only breaks ties.
        concurrency: requests in flight at once, over both endpoints: users are served by the same engines.
        on_progress: called with (done, total) requests, from one thread at a time.
        work_dir: answers are kept there, in a file for each pair of endpoints, and are not asked for again; None keeps
            nothing.
        max_pairs: so many items with an accepted answer are also scored by log-probabilities, which needs vLLM.
        client: for other transports than HTTP.
        pauses_s: before each try of a request.
        rules: what the business says about personal data; its own is no leak.

    Raises:
        EngineUnavailable: an endpoint is down or fails again and again; the answers so far are kept.
        ServingError: an endpoint refuses everything, such as with a wrong key or an unknown model.
    """
    decoding: dict[str, JsonValue] = {"temperature": 0, "seed": seed, "max_tokens": max_tokens, "stream": False}
    jobs = plan_jobs(items, (baseline, candidate), decoding, max_pairs)
    gate = content_id([business, baseline.url, baseline.model, candidate.url, candidate.model])
    answers = Answers(work_dir / f"{business}-{gate[:16]}.jsonl" if work_dir else None)
    owned = client or httpx.Client(timeout=_TIMEOUT_S, limits=httpx.Limits(max_connections=max(concurrency, 1)))
    try:
        missing = run_jobs(
            jobs, answers, owned, decoding, concurrency, on_progress or (lambda done, of: None), pauses_s
        )
    finally:
        answers.close()
        if client is None:
            owned.close()
    before, after = (_replies(jobs, answers, missing, endpoint) for endpoint in (baseline, candidate))
    scored, without = score_items(items, before, after, PatternDetector(rules))
    return EvalResult(
        business=business,
        baseline=_name(baseline, candidate),
        candidate=_name(candidate, baseline),
        items=scored,
        missing=without,
        seed=seed,
    )


def _replies(jobs: Sequence[Job], answers: Answers, missing: dict[str, MissingReason], endpoint: Endpoint) -> Replies:
    replies = Replies({}, {}, {})
    for job in jobs:
        if job.endpoint != endpoint:
            continue
        if job.kind == "answer" and job.key in missing:
            replies.missing[job.item.item_id] = missing[job.key]
        elif job.kind == "answer":
            replies.answers[job.item.item_id] = answers.get(job.key)
        elif job.key not in missing:
            replies.logprobs[job.item.item_id] = ReferenceLogprobs(*answers.get(job.key))
    return replies


def _name(endpoint: Endpoint, other: Endpoint) -> str:
    """The model's name; with its URL where both endpoints serve the same name (a change of engine, not of adapter)."""
    return f"{endpoint.model} at {endpoint.url}" if endpoint.model == other.model else endpoint.model
