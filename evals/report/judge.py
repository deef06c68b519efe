"""What a judge said of the answers and what its word is worth, in words."""

from evals.report.speaker import Speaker
from pipeline.records import GateDecision, Judging


def judge_told(decision: GateDecision, say: Speaker) -> list[str]:
    """Its verdicts, how often it agrees with users, and why it does not count; nothing where none was asked."""
    judging = decision.judging
    if judging is None:
        return []
    found = judging.answers
    told = [
        say(
            "judge_said",
            judged=found.judged,
            wins=found.wins,
            losses=found.losses,
            ties=found.ties,
            unclear=found.order_disagreements + found.spoke_to_judge,
        )
    ]
    if unread := found.total - found.judged:
        told.append(say("judge_unread", n=unread))
    told.append(_agreement(judging, say))
    if decision.judge_doubts:
        reasons = say.listed([say(f"doubt_{doubt.value}") for doubt in decision.judge_doubts])
        told.append(say("judge_doubted", reasons=reasons))
    return told


def judge_cost(judging: Judging, say: Speaker) -> str:
    """Who judged, and what that took."""
    tokens = judging.prompt_tokens + judging.completion_tokens
    if judging.budget is None:
        return say("judge_tokens", judge=judging.judge, tokens=tokens)
    spent, budget = f"{judging.cost:.2f}", f"{judging.budget:.2f} {judging.currency}"
    return say("judge_paid", judge=judging.judge, tokens=tokens, cost=spent, budget=budget)


def _agreement(judging: Judging, say: Speaker) -> str:
    if judging.agreement is None or judging.agreement_low is None or judging.agreement_high is None:
        return say("judge_agreement_none")
    return say(
        "judge_agreement",
        agreement=say.percent(judging.agreement),
        low=say.percent(judging.agreement_low),
        high=say.percent(judging.agreement_high),
        pairs=judging.human_pairs.judged,
        users=judging.human_users,
    )
