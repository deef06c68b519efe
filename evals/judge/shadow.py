"""The judge on what a version in shadow answered, against what users got.

Shadows are raw events. So personal data leaves them first, as it leaves what is trained on: question and both answers
get the same placeholder for the same value, and a pair on which that fails goes to no judge.
"""

from collections.abc import Iterable

from evals.answers import Answers
from evals.judge.base import Judge
from evals.judge.run import Progress, judge_answers
from evals.shadow import text_of
from pipeline.clean.pii.placeholders import ScrubFailure, Texts, find_all, scrub_conversation
from pipeline.clean.pii.rules import Rules
from pipeline.clean.pii.spans import PiiDetector
from pipeline.clean.text import repair_json, repair_text
from pipeline.config import JudgeConfig
from pipeline.events.shadows import ShadowPair
from pipeline.records import EvalItem, EvalResult, Judging, ScoredItem

_NOTHING_FIXED: frozenset[str] = frozenset()


def judge_pairs(
    pairs: Iterable[ShadowPair],
    judge: Judge,
    config: JudgeConfig,
    *,
    detector: PiiDetector,
    rules: Rules,
    kept: Answers,
    confidence: float,
    on_progress: Progress | None = None,
) -> Judging | None:
    """How the pairs came out; None when there is none with two texts to compare.

    What the judge's word is worth is measured by the gate, on the preferences of a snapshot, and not here.

    Args:
        pairs: of one version.
        detector: finds personal data by `rules`.
        kept: rulings of earlier runs, and where new ones go.
    """
    pairs = list(pairs)
    items = without_personal_data(pairs, detector, rules)
    if not items:
        return None
    shadow = pairs[0].shadow
    result = EvalResult(
        business=shadow.business, baseline="served", candidate=shadow.model_version, items=tuple(items), seed=0
    )
    return judge_answers(result, (), judge, config, kept=kept, confidence=confidence, on_progress=on_progress).judging


def without_personal_data(pairs: Iterable[ShadowPair], detector: PiiDetector, rules: Rules) -> list[ScoredItem]:
    """Pairs of texts as items of an evaluation, in their order; those that cannot be scrubbed are left out."""
    told = [(pair, texts) for pair in pairs if (texts := _texts(pair)) is not None]
    findings = find_all((texts for _, texts in told), detector, _NOTHING_FIXED)
    items = []
    for pair, texts in told:
        (scrubbed,) = scrub_conversation([texts], findings, _NOTHING_FIXED, rules)
        if isinstance(scrubbed, ScrubFailure):
            continue
        (shadow,) = scrubbed.texts.notes
        item = EvalItem(
            item_id=pair.served.interaction_id,
            set_name="held_out",
            user_key=pair.served.user_key or pair.served.session,
            messages=scrubbed.texts.messages,
        )
        answer = scrubbed.texts.answer["content"]
        assert isinstance(answer, str)
        items.append(
            ScoredItem(item=item, baseline_answer=answer, candidate_answer=shadow or "", baseline={}, candidate={})
        )
    return items


def _texts(pair: ShadowPair) -> Texts | None:
    """Question and both answers; None where one of them is no text, such as a call of a tool."""
    served, shadow = text_of(pair.served.choices), text_of(pair.shadow.choices)
    messages = repair_json(pair.served.request.get("messages"))
    if not served.strip() or not shadow.strip() or not isinstance(messages, list):
        return None
    asked = tuple(message for message in messages if isinstance(message, dict))
    return Texts(asked, (), {"role": "assistant", "content": repair_text(served)}, (repair_text(shadow),))
