"""Two endpoints answer the same items: same prompts, same seed, same decoding, side by side in time.

Answers are kept as they come, so that an evaluation that was killed goes on where it was. Such a file holds answers to
one business's scrubbed prompts; it is safe to delete at any time.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from pydantic import JsonValue

from evals.endpoint import Endpoint, PromptRefused, ask, pair_logprobs
from evals.scorers import length_distance, preference_scores, score
from pipeline.clean.pii import PatternDetector, Rules
from pipeline.errors import ServingError
from pipeline.records import EvalItem, EvalResult, ScoredItem, content_id

__all__ = ["Endpoint", "run_eval"]

_log = logging.getLogger(__name__)
_MAX_REFUSED_SHARE = 0.1
_TIMEOUT_S = httpx.Timeout(300.0, connect=10.0)

Progress = Callable[[int, int], None]
"""Called with (done, total) after each request."""


class _Job(NamedTuple):
    """One request: an answer, or the log-probabilities of a pair."""

    key: str
    endpoint: Endpoint
    item: EvalItem
    kind: str


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
    rules: Rules | None = None,
) -> EvalResult:
    """Ask both endpoints every item, greedily, and score the answers.

    Args:
        items: each one has its own `item_id`.
        business: its key.
        max_tokens: of each answer.
        seed: sent with every request; at temperature 0 it only breaks ties.
        concurrency: requests in flight at once, over both endpoints: users are served by the same engines.
        on_progress: called with (done, total) requests, from one thread at a time.
        work_dir: answers are kept there, in a file for each pair of endpoints, and are not asked for again; None keeps
            nothing.
        max_pairs: so many items with a rejected answer are also scored by log-probabilities, which needs vLLM.
        client: for other transports than HTTP.
        rules: what the business says about personal data; its own is no leak.

    Raises:
        EngineUnavailable: an endpoint did not answer; the answers so far are kept.
        ServingError: an endpoint refused, or refused more than a tenth of the prompts.
    """
    decoding: dict[str, JsonValue] = {"temperature": 0, "seed": seed, "max_tokens": max_tokens, "stream": False}
    jobs = _jobs(items, (baseline, candidate), decoding, max_pairs)
    gate = content_id([business, baseline.url, baseline.model, candidate.url, candidate.model])
    answers = _Answers(work_dir / f"{business}-{gate[:16]}.jsonl" if work_dir else None)
    owned = client or httpx.Client(timeout=_TIMEOUT_S, limits=httpx.Limits(max_connections=max(concurrency, 1)))
    try:
        _run(jobs, answers, owned, decoding, concurrency, on_progress or (lambda done, total: None))
    finally:
        answers.close()
        if client is None:
            owned.close()
    found = {(job.endpoint, job.item.item_id, job.kind): answers.get(job.key) for job in jobs}
    return EvalResult(
        business=business,
        baseline=_name(baseline, candidate),
        candidate=_name(candidate, baseline),
        items=_scored(items, baseline, candidate, found, PatternDetector(rules)),
        seed=seed,
    )


def _name(endpoint: Endpoint, other: Endpoint) -> str:
    """The model's name; with its URL where both endpoints serve the same name (a change of engine, not of adapter)."""
    return f"{endpoint.model} at {endpoint.url}" if endpoint.model == other.model else endpoint.model


def _jobs(
    items: Sequence[EvalItem], endpoints: tuple[Endpoint, Endpoint], decoding: dict[str, JsonValue], max_pairs: int
) -> list[_Job]:
    """All requests, the endpoints taking turns, so that neither gets the quieter hours."""
    jobs: dict[str, _Job] = {}
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
                jobs[key] = _Job(key, endpoint, item, kind)
    return list(jobs.values())


def _run(
    jobs: list[_Job],
    answers: "_Answers",
    client: httpx.Client,
    decoding: dict[str, JsonValue],
    concurrency: int,
    on_progress: Progress,
) -> None:
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


def _do(job: _Job, answers: "_Answers", client: httpx.Client, decoding: dict[str, JsonValue]) -> None:
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


def _scored(
    items: Sequence[EvalItem],
    baseline: Endpoint,
    candidate: Endpoint,
    found: dict[tuple[Endpoint, str, str], Any],
    personal: PatternDetector,
) -> tuple[ScoredItem, ...]:
    any_reference = any(item.reference is not None for item in items)
    scored: list[ScoredItem] = []
    for item in items:
        texts = [found[endpoint, item.item_id, "answer"] for endpoint in (baseline, candidate)]
        if texts == [None, None]:
            continue
        if None in texts:
            refusing = baseline if texts[0] is None else candidate
            raise ServingError(
                f"{refusing.url}: model '{refusing.model}' refused a prompt that the other one answered (item "
                f"{item.item_id[:12]}); start both engines with the same context length"
            )
        scores = [score(item, text, personal) for text in texts]
        if not any_reference:
            # Nobody has said which length is right: then the length in service is the usual one.
            scores[0]["length_ratio"] = 0.0
            scores[1]["length_ratio"] = length_distance(texts[1], texts[0])
        pairs: list[Any] = [found.get((endpoint, item.item_id, "pair")) for endpoint in (baseline, candidate)]
        if None not in pairs:
            for target, (chosen, rejected) in zip(scores, pairs, strict=True):
                target.update(preference_scores(chosen, rejected))
        scored.append(
            ScoredItem(
                item=item,
                baseline_answer=texts[0],
                candidate_answer=texts[1],
                baseline=scores[0],
                candidate=scores[1],
            )
        )
    refused = len(items) - len(scored)
    if refused > _MAX_REFUSED_SHARE * len(items):
        raise ServingError(
            f"{refused} of {len(items)} prompts were refused by {baseline.model} or {candidate.model}; "
            "raise the engine's context length or lower the dataset's `max_length`"
        )
    return tuple(scored)


class _Answers:
    """Answers by request key: in memory, and line by line in a file."""

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}
        self._file = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        complete = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        for line in complete.splitlines():
            record = json.loads(line)
            self._values[record["key"]] = record["value"]
        path.touch(mode=0o600)
        self._file = path.open("r+b")
        # A kill may have left half a line: writing goes on after the last whole one.
        self._file.truncate(len(complete) + 1 if complete else 0)
        self._file.seek(0, 2)

    def has(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> Any:
        return self._values[key]

    def put(self, key: str, value: Any) -> None:
        line = json.dumps({"key": key, "value": value}, ensure_ascii=True)
        with self._lock:
            self._values[key] = value
            # A refusal is not kept: the next try may meet an engine that takes longer prompts.
            if self._file is not None and value is not None:
                self._file.write(line.encode() + b"\n")
                self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
