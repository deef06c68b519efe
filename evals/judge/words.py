"""What a judge said and what its word is worth, in English; a report has its own words for each language."""

from typing import assert_never

from pipeline.config import JudgeConfig
from pipeline.records import JudgeDoubt, JudgeTally, Judging


def describe(judging: Judging) -> str:
    """Outcome, agreement with users and cost, in one line."""
    spent = f"{judging.prompt_tokens + judging.completion_tokens:,} tokens"
    if judging.budget is not None:
        spent += f", {judging.cost:.2f} of {judging.budget:.2f} {judging.currency}"
    return f"judge {judging.judge}: {_counts(judging.answers)}; {agreement_in_words(judging)}; {spent}"


def agreement_in_words(judging: Judging) -> str:
    """How often it prefers what users preferred."""
    if judging.agreement is None:
        return "no human pair was judged"
    interval = f"{judging.agreement:.2f}, between {judging.agreement_low:.2f} and {judging.agreement_high:.2f}"
    people = f"{judging.human_pairs.judged} pairs of {judging.human_users} users"
    return f"its agreement with users is {interval} over {people}"


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
            return f"{agreement_in_words(judging)}, and must be shown to be {config.min_agreement:g}"
        case _:
            assert_never(doubt)


def _counts(tally: JudgeTally) -> str:
    """Every outcome that occurred; together they are all pairs."""
    counted = tally.model_dump()
    told = [f"{count} {name.replace('_', ' ')}" for name, count in counted.items() if count]
    return ", ".join(told) or "no pair"
