"""What a version in shadow has shown, beside the answers that the same users got, in the shape that `pipeline.rollout`
judges. `pipeline.events.shadows` yields the pairs for whoever else compares answers, such as a judge."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime

from evals.online import quantile, user_means, user_of
from pipeline.clean.quality import is_refusal
from pipeline.events.shadows import ShadowPair
from pipeline.records import Choice, StreamEnd, Usage
from pipeline.rollout.guardrails import LONG_FACTOR, ArmEvidence, Evidence
from pipeline.rollout.shadow import AGREEMENT

_Metric = Callable[[ShadowPair], float | None]


def shadow_evidence(pairs: Iterable[ShadowPair], *, salt: str, candidate_model: str, since: datetime) -> Evidence:
    """Pairs of one rollout as evidence.

    Args:
        pairs: of one business.
        salt: of the rollout; pairs of others are passed over.
        candidate_model: serving name that the copies must have been dispatched to.
        since: start of the shadow.
    """
    mine = [
        pair
        for pair in pairs
        if (pair.shadow.rollout_salt, pair.shadow.model_version) == (salt, candidate_model)
        and pair.shadow.started_at >= since
    ]
    tokens = [pair.served.usage.completion_tokens for pair in mine if pair.served.usage]
    long_tokens = LONG_FACTOR * quantile(tokens, 0.9)
    candidate: dict[str, _Metric] = {
        "hard_failure": lambda pair: float(is_failure(pair)),
        "refusal": lambda pair: _refuses(pair.shadow.choices),
        "output_length": lambda pair: _is_above(pair.shadow.usage, long_tokens),
        AGREEMENT: lambda pair: agreement(text_of(pair.served.choices), text_of(pair.shadow.choices)),
    }
    served: dict[str, _Metric] = {
        "refusal": lambda pair: _refuses(pair.served.choices),
        "output_length": lambda pair: _is_above(pair.served.usage, long_tokens),
    }
    by_user: dict[str, list[ShadowPair]] = defaultdict(list)
    for pair in mine:
        by_user[user_of(pair.served)].append(pair)
    return Evidence(
        salt=salt,
        since=since,
        candidate=ArmEvidence(users=len(by_user), requests=len(mine), values=user_means(candidate, by_user)),
        control=ArmEvidence(values=user_means(served, by_user)),
    )


def is_failure(pair: ShadowPair) -> bool:
    """The user got a whole answer, and the candidate gave none."""
    message = pair.shadow.choices[0].message if pair.shadow.choices else {}
    return pair.shadow.stream_end is not StreamEnd.COMPLETE or not (message.get("content") or message.get("tool_calls"))


def agreement(served: str, shadow: str) -> float | None:
    """How much of two texts is the same: the Sørensen-Dice coefficient of their pairs of neighbouring characters, in
    [0, 1]; None where either is empty, such as a call of a tool. Works on characters, so Chinese needs no words."""
    one, other = _bigrams(served), _bigrams(shadow)
    if not one or not other:
        return None
    return 2 * len(one & other) / (len(one) + len(other))


def text_of(choices: tuple[Choice, ...]) -> str:
    """The text of the first answer; empty when it has none."""
    content = choices[0].message.get("content") if choices else None
    return content if isinstance(content, str) else ""


def _bigrams(text: str) -> set[str]:
    plain = " ".join(unicodedata.normalize("NFKC", text).split())
    return {plain[n : n + 2] for n in range(len(plain) - 1)} or set(plain)


def _refuses(choices: tuple[Choice, ...]) -> float | None:
    text = text_of(choices)
    return float(is_refusal(text)) if text.strip() else None


def _is_above(usage: Usage | None, limit: float) -> float | None:
    return None if usage is None else float(usage.completion_tokens > limit)
