"""Both sides' answers become scored items; what one side did not answer counts for neither."""

from collections.abc import Sequence
from typing import NamedTuple

from evals.endpoint import ReferenceLogprobs
from evals.scorers import length_distance, reference_scores, score
from pipeline.clean.pii import PatternDetector
from pipeline.records import EvalItem, MissingItem, MissingReason, ScoredItem, Side


class Replies(NamedTuple):
    """What one endpoint gave, by item id. An item that is in neither `answers` nor `missing` was not asked."""

    answers: dict[str, str]
    logprobs: dict[str, ReferenceLogprobs]
    missing: dict[str, MissingReason]


def score_items(
    items: Sequence[EvalItem], baseline: Replies, candidate: Replies, personal: PatternDetector
) -> tuple[tuple[ScoredItem, ...], tuple[MissingItem, ...]]:
    """Each item with the scores of both answers, or with the reason why one is missing."""
    any_reference = any(item.reference is not None for item in items)
    scored: list[ScoredItem] = []
    missing: list[MissingItem] = []
    for item in items:
        before, after = (side.answers.get(item.item_id) for side in (baseline, candidate))
        if before is None or after is None:
            missing.append(_missing(item, baseline, candidate))
            continue
        scores = [score(item, text, personal) for text in (before, after)]
        if not any_reference:
            # Nobody has said which length is right: then the length in service is the usual one.
            scores[0]["length_ratio"] = 0.0
            scores[1]["length_ratio"] = length_distance(after, before)
        for target, side in zip(scores, (baseline, candidate), strict=True):
            target["unanswered"] = 0.0
            if item.item_id in baseline.logprobs and item.item_id in candidate.logprobs:
                target.update(reference_scores(*side.logprobs[item.item_id]))
        scored.append(
            ScoredItem(
                item=item, baseline_answer=before, candidate_answer=after, baseline=scores[0], candidate=scores[1]
            )
        )
    return tuple(scored), tuple(missing)


def _missing(item: EvalItem, baseline: Replies, candidate: Replies) -> MissingItem:
    without = [item.item_id not in side.answers for side in (baseline, candidate)]
    reasons = [side.missing.get(item.item_id) for side in (candidate, baseline)]
    reason = next((reason for reason in reasons if reason), MissingReason.UNSUPPORTED)
    side: Side = "both" if all(without) else "baseline" if without[0] else "candidate"
    scores = [{} if reason is MissingReason.UNSUPPORTED else {"unanswered": float(none)} for none in without]
    return MissingItem(item=item, side=side, reason=reason, baseline=scores[0], candidate=scores[1])
