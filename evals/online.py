"""What the arms of a canary have shown, read off the event log, in the shape that `pipeline.rollout` judges.

A user's value is the mean over that user's requests, so one busy user weighs as much as a quiet one. Requests are the
candidate's only when the candidate's own adapter was dispatched: what somebody else answered proves nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import numpy as np

from pipeline.clean.quality import is_refusal
from pipeline.gateway.routing import assignment_hash, choose_arm
from pipeline.records import Arm, Feedback, FeedbackKind, Interaction, StreamEnd
from pipeline.rollout.guardrails import LONG_FACTOR, SLOWER, TTFT_LIMIT, ArmEvidence, Evidence

_HARD = {StreamEnd.UPSTREAM_ERROR, StreamEnd.UPSTREAM_CUT, StreamEnd.ENGINE_ABORT, StreamEnd.TIMEOUT}

P99_REQUESTS = 1000
"""With fewer requests in either arm a 99th percentile is a handful of values, and is not judged."""

Asked = TypeVar("Asked")
"""A request of a user, in whatever form."""

_Votes = dict[str, dict[FeedbackKind, list[object]]]
"""Interaction id to what its users finally said, by kind."""


def arm_evidence(
    interactions: Iterable[Interaction],
    feedback: Iterable[Feedback],
    *,
    salt: str,
    candidate_model: str,
    since: datetime,
    max_ttft_ms: float,
) -> Evidence:
    """Candidate and control since the step began.

    Args:
        interactions: of one business, from the start of the rollout at least.
        feedback: about them, in any order; the latest of one user and kind counts, and null withdraws.
        salt: of the rollout; requests of other rollouts are passed over.
        candidate_model: serving name that the candidate's requests must have been dispatched to.
        since: start of the step.
        max_ttft_ms: what `ttft_limit` counts as slow.
    """
    rollout = [
        i
        for i in interactions
        if i.rollout_salt == salt
        and (i.arm is Arm.CONTROL or (i.arm is Arm.CANDIDATE and i.model_version == candidate_model))
    ]
    seen_before = {(i.arm, user_of(i)) for i in rollout if i.started_at < since}
    step = [i for i in rollout if i.started_at >= since]
    candidate = [i for i in step if i.arm is Arm.CANDIDATE]
    control = [i for i in step if i.arm is Arm.CONTROL]
    metrics = _metrics(rollout, candidate, control, _latest_votes(feedback), max_ttft_ms)
    strangers = _misassigned(rollout)
    return Evidence(
        salt=salt,
        since=since,
        candidate=_arm(candidate, metrics, seen_before),
        control=_arm(control, metrics, seen_before),
        misassigned=sum(i.interaction_id in strangers for i in step),
    )


def is_hard_failure(interaction: Interaction) -> bool:
    """The service failed the user: an error status, a cut, a time-out, or an answer without anything in it."""
    if interaction.status >= 500 or interaction.stream_end in _HARD:
        return True
    return (
        interaction.stream_end is StreamEnd.COMPLETE and interaction.status < 400 and not _says_something(interaction)
    )


def waited_ms(interaction: Interaction) -> float:
    """Time to the first token, in milliseconds; for who never got one, the time they waited in vain, because leaving
    those out would make a hanging engine look fast."""
    timings = interaction.timings
    return timings.total_ms if timings.ttft_ms is None else timings.ttft_ms


def per_token_ms(interaction: Interaction) -> float | None:
    """Time per token after the first, in milliseconds; None where the answer did not come as a stream of tokens."""
    timings, usage = interaction.timings, interaction.usage
    if timings.gap_p50_ms is None or timings.ttft_ms is None or usage is None or usage.completion_tokens < 2:
        return None
    return (timings.total_ms - timings.ttft_ms) / (usage.completion_tokens - 1)


def _misassigned(rollout: Sequence[Interaction]) -> set[str]:
    """Ids of requests that stand in another arm than their conversation was drawn for.

    A conversation keeps the arm that it was given with its first request, at the share that is logged with each.
    """
    strangers: set[str] = set()
    drawn: dict[tuple[str, float], Arm] = {}
    for i in sorted(rollout, key=lambda i: (i.started_at, i.interaction_id)):
        conversation = (i.session, i.share)
        if conversation not in drawn:
            drawn[conversation] = choose_arm(assignment_hash(i.rollout_salt, i.user_key or i.session), i.share)
        if drawn[conversation] is not i.arm:
            strangers.add(i.interaction_id)
    return strangers


_Metric = Callable[[Interaction], float | None]
"""The value of one request; None when the metric says nothing about it."""


def _metrics(
    rollout: Sequence[Interaction],
    candidate: Sequence[Interaction],
    control: Sequence[Interaction],
    votes: _Votes,
    max_ttft_ms: float,
) -> dict[str, _Metric]:
    replaced = {i.regenerates for i in rollout if i.regenerates}
    long_tokens = LONG_FACTOR * quantile([i.usage.completion_tokens for i in control if i.usage], 0.9)

    def said(interaction: Interaction, kind: FeedbackKind) -> list[object]:
        return votes.get(interaction.interaction_id, {}).get(kind, [])

    def thumb_down(i: Interaction) -> float:
        low = any(isinstance(r, int | float) and r <= 2 for r in said(i, FeedbackKind.RATING))
        return float(low or "down" in said(i, FeedbackKind.THUMB))

    def thumb_up(i: Interaction) -> float:
        high = any(isinstance(r, int | float) and r >= 4 for r in said(i, FeedbackKind.RATING))
        return float(high or "up" in said(i, FeedbackKind.THUMB))

    def outcome_failed(i: Interaction) -> float | None:
        outcomes = said(i, FeedbackKind.OUTCOME)
        return float("failed" in outcomes) if outcomes else None

    return {
        "hard_failure": lambda i: float(is_hard_failure(i)),
        **_latencies("ttft", waited_ms, candidate, control),
        **_latencies("tpot", per_token_ms, candidate, control),
        TTFT_LIMIT: lambda i: float(waited_ms(i) > max_ttft_ms),
        "output_length": lambda i: float(i.usage.completion_tokens > long_tokens) if i.usage else None,
        "refusal": lambda i: float(any(is_refusal(text) for text in _texts(i))) if _says_something(i) else None,
        "regeneration": lambda i: float(i.interaction_id in replaced or bool(said(i, FeedbackKind.REGENERATE))),
        "thumb_up": thumb_up,
        "thumb_down": thumb_down,
        "edit": lambda i: float(bool(said(i, FeedbackKind.EDIT))),
        "outcome_failed": outcome_failed,
    }


def _latencies(
    name: str, measure: _Metric, candidate: Sequence[Interaction], control: Sequence[Interaction]
) -> dict[str, _Metric]:
    """Whether a request is slower than the control's percentiles, for the candidate than `SLOWER` times them."""
    theirs = [ms for ms in map(measure, control) if ms is not None]
    fewest = min(len(theirs), sum(measure(i) is not None for i in candidate))

    def slower_than(percent: int) -> _Metric:
        limit_ms = quantile(theirs, percent / 100)

        def slow(i: Interaction) -> float | None:
            ms = measure(i)
            if ms is None or (percent == 99 and fewest < P99_REQUESTS):
                return None
            return float(ms > (limit_ms * SLOWER if i.arm is Arm.CANDIDATE else limit_ms))

        return slow

    return {f"{name}_p{percent}": slower_than(percent) for percent in (50, 90, 99)}


def _arm(
    interactions: Sequence[Interaction], metrics: dict[str, _Metric], seen_before: set[tuple[Arm, str]]
) -> ArmEvidence:
    by_user: dict[str, list[Interaction]] = defaultdict(list)
    for interaction in interactions:
        by_user[user_of(interaction)].append(interaction)
    values = user_means(metrics, by_user)
    new = [user for user, requests in by_user.items() if (requests[0].arm, user) not in seen_before]
    return ArmEvidence(users=len(by_user), requests=len(interactions), new_users=len(new), values=values)


def user_means(
    metrics: Mapping[str, Callable[[Asked], float | None]], by_user: Mapping[str, Sequence[Asked]]
) -> dict[str, tuple[float, ...]]:
    """Metric to the mean of each user who has a value, in the order of the users."""
    means = {}
    for name, metric in metrics.items():
        per_user = [[v for v in map(metric, by_user[user]) if v is not None] for user in sorted(by_user)]
        means[name] = tuple(sum(requests) / len(requests) for requests in per_user if requests)
    return means


def user_of(interaction: Interaction) -> str:
    """Who asked: the user, else the session."""
    return interaction.user_key or f"session {interaction.session}"


def _latest_votes(feedback: Iterable[Feedback]) -> _Votes:
    latest: dict[tuple[str, str | None, FeedbackKind, int], object] = {}
    for vote in sorted(feedback, key=lambda f: (f.occurred_at, f.received_at, f.event_id)):
        latest[vote.interaction_id, vote.user_key, vote.kind, vote.choice_index] = vote.value
    votes: _Votes = defaultdict(lambda: defaultdict(list))
    for (interaction_id, _, kind, _), value in latest.items():
        if value is not None:
            votes[interaction_id][kind].append(value)
    return votes


def _texts(interaction: Interaction) -> list[str]:
    contents = (choice.message.get("content") for choice in interaction.choices)
    return [text for text in contents if isinstance(text, str) and text.strip()]


def _says_something(interaction: Interaction) -> bool:
    return bool(_texts(interaction)) or any(choice.message.get("tool_calls") for choice in interaction.choices)


def quantile(values: Sequence[float], share: float) -> float:
    """Infinite without values, so that nothing lies above it."""
    return float(np.quantile(values, share)) if values else float("inf")
