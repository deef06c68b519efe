"""How an answer is scored: one pure function per metric. What each number means stands in `evals.metrics`.

A score is None where the item offers nothing to score against; it then counts for neither side. Log-probability metrics
are information only: preference training optimises them directly, so they rise even where answers get worse.
"""

import math
import re
from collections.abc import Callable
from functools import cache

from sacrebleu.metrics.chrf import CHRF

from evals.checks import holds_personal_data, passes
from pipeline.clean.pii.patterns import PatternDetector
from pipeline.clean.quality import is_refusal
from pipeline.records import EvalItem

Scorer = Callable[[EvalItem, str, PatternDetector | None], float | None]
"""Takes what was asked, what came, and what finds personal data by the business's rules, if it has any."""


def golden(item: EvalItem, answer: str, personal: PatternDetector | None) -> float | None:
    """Share of the item's checks (its own and the business's rules) that the answer passes.

    Silence keeps no rule: an empty answer scores 0, although it contains nothing forbidden and is short.
    """
    if not item.checks:
        return None
    if not answer.strip():
        return 0.0
    return sum(1 for check in item.checks if passes(check, answer, personal)) / len(item.checks)


def chrf(item: EvalItem, answer: str, personal: PatternDetector | None) -> float | None:
    """Similarity of characters to the accepted or edited answer, in [0, 1].

    chrF2 with sacrebleu's settings, divided by 100 (Popović, "chrF: character n-gram F-score for automatic MT
    evaluation", WMT 2015). Works on characters, so Chinese needs no word segmentation.
    """
    if item.reference is None:
        return None
    return float(_chrf().sentence_score(answer, [item.reference]).score) / 100


def refusal(item: EvalItem, answer: str, personal: PatternDetector | None) -> float | None:
    """1 when the answer declines to help, else 0."""
    return float(is_refusal(answer))


def empty(item: EvalItem, answer: str, personal: PatternDetector | None) -> float | None:
    """1 when there is nothing to read, else 0."""
    return float(not answer.strip())


_TOKEN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W\u3400-\u9fff\uf900-\ufaff]+")
_LONGEST_UNIT = 20


def repetition(item: EvalItem, answer: str, personal: PatternDetector | None) -> float | None:
    """1 when the answer is stuck in a loop, else 0.

    Either a unit of up to 20 words (Chinese: characters) stands at least four times in a row over at least eight
    words, or more than half of the 4-grams of an answer of at least 24 words are repeats (seq-rep-4 of Welleck et al.,
    "Neural Text Generation with Unlikelihood Training", ICLR 2020). Rules of a table and dashes are no words.
    """
    words = _TOKEN.findall(answer.lower())
    return float(_loops(words) or _repeated_share(words) > 0.5)


def pii_leak(item: EvalItem, answer: str, personal: PatternDetector | None) -> float | None:
    """1 when the answer holds personal data, which placeholders and the business's own telephone are not, else 0."""
    return float(holds_personal_data(answer, personal))


def length_ratio(item: EvalItem, answer: str, personal: PatternDetector | None) -> float | None:
    """|ln(characters of the answer / characters of the reference)|: 0.7 is twice or half as long.

    An empty answer or reference counts as one character.
    """
    if item.reference is None:
        return None
    return length_distance(answer, item.reference)


def length_distance(answer: str, reference: str) -> float:
    """How far two lengths are apart: the natural logarithm of their ratio, without its sign."""
    return abs(math.log(max(len(answer.strip()), 1) / max(len(reference.strip()), 1)))


SCORERS: dict[str, Scorer] = {
    "golden": golden,
    "chrf": chrf,
    "refusal": refusal,
    "empty": empty,
    "repetition": repetition,
    "pii_leak": pii_leak,
    "length_ratio": length_ratio,
}
"""What scores an answer's text. What scores log-probabilities is `reference_scores`."""


def score(item: EvalItem, answer: str, personal: PatternDetector | None = None) -> dict[str, float]:
    """All scores of an answer; a metric that does not apply to the item is absent.

    Args:
        item: what was asked.
        answer: what came.
        personal: finds personal data by the business's rules; without them its own data counts as a leak.
    """
    scores = {name: scorer(item, answer, personal) for name, scorer in SCORERS.items()}
    return {name: value for name, value in scores.items() if value is not None}


def reference_scores(per_token: float | None, chosen: float | None, rejected: float | None) -> dict[str, float]:
    """How likely the model finds the accepted answer, and by how many nats likelier than the rejected one.

    The difference of the two models' margins is the reward margin that DPO optimises, divided by beta.

    Args:
        per_token, chosen, rejected: as in `evals.endpoint.ReferenceLogprobs`.
    """
    scores = {} if per_token is None else {"accepted_likelihood": per_token}
    if chosen is not None and rejected is not None:
        margin = chosen - rejected
        scores |= {"preference_accuracy": float(margin > 0), "preference_margin": margin}
    return scores


@cache
def _chrf() -> CHRF:
    return CHRF()


def _loops(words: list[str]) -> bool:
    for size in range(1, min(_LONGEST_UNIT, len(words) // 4) + 1):
        wanted = max(3 * size, 8 - size)  # equal neighbours at distance `size` in a run of four units or eight words
        run = 0
        for index in range(size, len(words)):
            run = run + 1 if words[index] == words[index - size] else 0
            if run >= wanted:
                return True
    return False


def _repeated_share(words: list[str]) -> float:
    if len(words) < 24:
        return 0.0
    grams = [tuple(words[index : index + 4]) for index in range(len(words) - 3)]
    return 1 - len(set(grams)) / len(grams)
