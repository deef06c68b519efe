"""What is asked of both endpoints, and the asking: side by side in time where they are two engines, in several threads.

A request is repeated (`endpoint.PAUSES_S`) before it counts as failed. One that failed on an engine that is up leaves
its item without an answer; an engine that is down, or fails request after request, ends the evaluation, which goes on
from the kept answers when it is started again.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import httpx
from pydantic import JsonValue

from evals.answers import Answers
from evals.endpoint import Endpoint, PromptRefused, PromptTooLong, ask, is_up, reference_logprobs
from evals.items import only_text
from pipeline.errors import EngineUnavailable
from pipeline.records import EvalItem, MissingReason, content_id

_log = logging.getLogger(__name__)
_GIVES_UP_AFTER = 5
"""Requests of one endpoint that failed in a row."""

Progress = Callable[[int, int], None]
"""Called with (done, total) after each request."""


class Job(NamedTuple):
    """One request: an answer, or the log-probabilities of the answer that a user accepted."""

    key: str
    endpoint: Endpoint
    item: EvalItem
    kind: str


def plan_jobs(
    items: Sequence[EvalItem], endpoints: tuple[Endpoint, Endpoint], decoding: dict[str, JsonValue], max_pairs: int
) -> list[Job]:
    """All requests, the endpoints taking turns, so that neither gets the quieter hours.

    An item that holds more than text is not asked. Log-probabilities are asked for at most `max_pairs` items, first of
    all those with a rejected answer; not where there are tools, whose calls a chat template renders in its own way.
    """
    asked = [item for item in items if only_text(item)]
    accepted = [item for item in asked if item.reference is not None and not item.tools]
    pairs_first = sorted(accepted, key=lambda item: item.rejected is None)
    measured = {item.item_id for item in pairs_first[:max_pairs]}
    jobs: dict[str, Job] = {}
    for index, item in enumerate(asked):
        for kind in ("answer", "logprobs") if item.item_id in measured else ("answer",):
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
    pauses_s: Sequence[float],
) -> dict[str, MissingReason]:
    """Do what was not done before, at most `concurrency` requests at once.

    Returns:
        Why there is no answer, for each job (by its key) that has none. They are tried again by the next run.

    Raises:
        EngineUnavailable: an endpoint is down, or several requests in a row failed; what was answered so far is kept.
        ServingError: an endpoint refuses everything, such as with a wrong key or an unknown model.
    """
    waiting = [job for job in jobs if not answers.has(job.key)]
    done = len(jobs) - len(waiting)
    on_progress(done, len(jobs))
    missing: dict[str, MissingReason] = {}
    failed_in_a_row: Counter[Endpoint] = Counter()
    pool = ThreadPoolExecutor(max_workers=max(concurrency, 1), thread_name_prefix="eval")
    try:
        for phase in _phases(waiting):
            futures = {pool.submit(_do, job, answers, client, decoding, pauses_s): job for job in phase}
            for future in as_completed(futures):
                job, reason = futures[future], future.result()
                failed = reason is MissingReason.FAILED
                failed_in_a_row[job.endpoint] = failed_in_a_row[job.endpoint] + 1 if failed else 0
                if failed_in_a_row[job.endpoint] == _GIVES_UP_AFTER:
                    raise _given_up(job.endpoint, len(pauses_s))
                if reason is not None:
                    missing[job.key] = reason
                done += 1
                on_progress(done, len(jobs))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return missing


def _phases(jobs: Sequence[Job]) -> list[list[Job]]:
    """What may run at the same time: everything, except that two models of one engine are asked one after the other.

    vLLM's CPU build answers a request for the base model that is batched with an adapter's by the wrong adapter, and
    nothing tells from outside how an engine was built. What others ask it meanwhile is not seen here; where one CPU
    engine serves both, `infra/launch/engine.sh` starts it with one request at a time.
    """
    sides = list(dict.fromkeys(job.endpoint for job in jobs))
    if len({side.url for side in sides}) == len(sides):
        return [list(jobs)]
    return [[job for job in jobs if job.endpoint == side] for side in sides]


def _given_up(endpoint: Endpoint, tries: int) -> EngineUnavailable:
    return EngineUnavailable(
        f"{endpoint.url}: model '{endpoint.model}' failed {_GIVES_UP_AFTER} requests in a row, each in {tries} tries; "
        "look at the engine's log, then run this again: it goes on from here"
    )


def _do(
    job: Job, answers: Answers, client: httpx.Client, decoding: dict[str, JsonValue], pauses_s: Sequence[float]
) -> MissingReason | None:
    """Keep the answer; else say why there is none."""
    item = job.item
    value: Any
    try:
        if job.kind == "answer":
            value = ask(client, job.endpoint, item.messages, item.tools, decoding, pauses_s)
        else:
            accepted = item.reference or ""
            value = reference_logprobs(client, job.endpoint, item.messages, accepted, item.rejected, pauses_s)
    except PromptTooLong as error:
        return _told(item, error, MissingReason.TOO_LONG)
    except PromptRefused as error:
        return _told(item, error, MissingReason.REFUSED)
    except EngineUnavailable as error:
        if not is_up(client, job.endpoint):
            raise
        return _told(item, error, MissingReason.FAILED)
    answers.put(job.key, value)
    return None


def _told(item: EvalItem, error: Exception, reason: MissingReason) -> MissingReason:
    _log.warning("item %s left out: %s", item.item_id[:12], error)
    return reason
