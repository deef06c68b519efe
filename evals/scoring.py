"""Both sides' answers become scored items."""

from collections.abc import Sequence
from typing import Any

from evals.endpoint import Endpoint
from evals.scorers import length_distance, preference_scores, score
from pipeline.clean.pii import PatternDetector
from pipeline.errors import ServingError
from pipeline.records import EvalItem, ScoredItem

_MAX_REFUSED_SHARE = 0.1


def score_items(
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
