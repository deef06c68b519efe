"""What is asked of both endpoints, and the asking: side by side in time, in several threads."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import httpx
from pydantic import JsonValue

from evals.answers import Answers
from evals.endpoint import Endpoint, PromptRefused, ask, pair_logprobs
from pipeline.records import EvalItem, content_id

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with (done, total) after each request."""


class Job(NamedTuple):
    """One request: an answer, or the log-probabilities of a pair."""

    key: str
    endpoint: Endpoint
    item: EvalItem
    kind: str


def plan_jobs(
    items: Sequence[EvalItem], endpoints: tuple[Endpoint, Endpoint], decoding: dict[str, JsonValue], max_pairs: int
) -> list[Job]:
    """All requests, the endpoints taking turns, so that neither gets the quieter hours."""
    jobs: dict[str, Job] = {}
    pairs = 0
    for index, item in enumerate(items):
        kinds = ["answer"]
        if item.reference is not None and item.rejected is not None and pairs < max_pairs:
            kinds.append("pair")
            pairs += 1
        for kind in kinds:
            for endpoint in endpoints if index % 2 == 0 else endpoints[::-1]:
                settings = decoding if kind == "answer" else {}
                key = content_id([endpoint.url, endpoint.model, item.item_id, kind, settings])
                jobs[key] = Job(key, endpoint, item, kind)
    return list(jobs.values())


def run_jobs(
    jobs: Sequence[Job],
    answers: Answers,
    client: httpx.Client,
    decoding: dict[str, JsonValue],
    concurrency: int,
    on_progress: Progress,
) -> None:
    """Do what was not done before, at most `concurrency` requests at once.

    Raises:
        ServingError: an endpoint cannot be asked; what was answered so far is kept.
    """
    waiting = [job for job in jobs if not answers.has(job.key)]
    done = len(jobs) - len(waiting)
    on_progress(done, len(jobs))
    pool = ThreadPoolExecutor(max_workers=max(concurrency, 1), thread_name_prefix="eval")
    try:
        futures = [pool.submit(_do, job, answers, client, decoding) for job in waiting]
        for future in as_completed(futures):
            future.result()
            done += 1
            on_progress(done, len(jobs))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _do(job: Job, answers: Answers, client: httpx.Client, decoding: dict[str, JsonValue]) -> None:
    item = job.item
    value: Any
    try:
        if job.kind == "answer":
            value = ask(client, job.endpoint, item.messages, item.tools, decoding)
        else:
            value = pair_logprobs(client, job.endpoint, item.messages, item.reference or "", item.rejected or "")
    except PromptRefused as error:
        _log.warning("item %s left out: %s", item.item_id[:12], error)
        value = None
    answers.put(job.key, value)
