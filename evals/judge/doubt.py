"""Why a judge's verdict does not count: pure, from what was measured of it."""

from pipeline.config import JudgeConfig
from pipeline.records import JudgeDoubt, JudgeTally, Judging

_MAX_UNREAD_SHARE = 0.1


def doubts(judging: Judging, config: JudgeConfig) -> tuple[JudgeDoubt, ...]:
    """Everything that keeps a judge from deciding; nothing where its verdict counts."""
    found = []
    if judging.problem is not None:
        found.append(JudgeDoubt.UNAVAILABLE)
    elif judging.answers.unjudged or judging.human_pairs.unjudged:
        found.append(JudgeDoubt.BUDGET_USED_UP)
    if max(_unread(judging.answers), _unread(judging.human_pairs)) > _MAX_UNREAD_SHARE:
        found.append(JudgeDoubt.UNREADABLE)
    if judging.agreement_low is None or judging.human_pairs.judged < config.min_human_pairs:
        found.append(JudgeDoubt.FEW_HUMAN_PAIRS)
    elif judging.agreement_low < config.min_agreement:
        found.append(JudgeDoubt.LOW_AGREEMENT)
    return tuple(found)


def _unread(tally: JudgeTally) -> float:
    return (tally.unparsable + tally.unsuitable) / tally.total if tally.total else 0.0
