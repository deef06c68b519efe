"""Why a judge's verdict does not count: pure, from what was measured of it."""

from typing import assert_never

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


def explain(doubt: JudgeDoubt, judging: Judging, config: JudgeConfig) -> str:
    """A doubt as an English clause with its numbers; a report has its own words for each language."""
    pairs, answers = judging.human_pairs, judging.answers
    match doubt:
        case JudgeDoubt.UNAVAILABLE:
            return f"it failed: {judging.problem}"
        case JudgeDoubt.BUDGET_USED_UP:
            spent = f"{judging.cost:.2f} of {config.budget or 0:.2f} {config.currency}"
            return f"its budget is used up ({spent}) with {answers.unjudged + pairs.unjudged} pairs left"
        case JudgeDoubt.UNREADABLE:
            unread = answers.unparsable + answers.unsuitable + pairs.unparsable + pairs.unsuitable
            return f"it gave no readable verdict on {unread} of {answers.total + pairs.total} pairs"
        case JudgeDoubt.FEW_HUMAN_PAIRS:
            return f"{pairs.judged} human pairs were judged and {config.min_human_pairs} are needed"
        case JudgeDoubt.LOW_AGREEMENT:
            interval = f"{judging.agreement:.2f}, between {judging.agreement_low:.2f} and {judging.agreement_high:.2f}"
            return (
                f"its agreement with users is {interval} over {pairs.judged} pairs of {judging.human_users} users, "
                f"and must be shown to be {config.min_agreement:g}"
            )
        case _:
            assert_never(doubt)


def _unread(tally: JudgeTally) -> float:
    return (tally.unparsable + tally.unsuitable) / tally.total if tally.total else 0.0
