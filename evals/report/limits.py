"""What a decision could not show, in plain words: how small a difference stays unseen, and what stays open."""

from evals.report.speaker import Speaker
from evals.report.texts import METRIC_NAMES
from pipeline.config import BusinessConfig
from pipeline.records import Check, GateDecision, SnapshotManifest


def limits(decision: GateDecision, business: BusinessConfig, manifest: SnapshotManifest, say: Speaker) -> list[str]:
    """Sentences about the whole comparison."""
    primary = next(check for check in decision.checks if check.role == "primary")
    told = []
    if primary.users:
        told.append(say("sure_users", users=primary.users))
    if primary.smallest_effect is not None:
        effect = say.difference(primary.metric, primary.smallest_effect, signed=False)
        told.append(say("sure_effect", metric=say.metric(primary.metric), effect=effect))
    if business.gate.goal == "better":
        told.append(say("sure_luck", nights=round(365 * (1 - business.gate.confidence) / 2)))
    if manifest.split_by == "session":
        told.append(say("sure_session"))
    if decision.missing:
        told.append(_missing(decision, say))
    return told


def _missing(decision: GateDecision, say: Speaker) -> str:
    """What was not answered, and why."""
    parts = [
        say("missing_part", reason=say(f"missing_{one.reason}"), side=say(f"missing_{one.side}"), items=one.items)
        for one in decision.missing
    ]
    return say(
        "missing", missing=sum(one.items for one in decision.missing), asked=decision.asked, reasons=say.listed(parts)
    )


def unseen(decision: GateDecision, say: Speaker) -> list[tuple[str, str]]:
    """(metrics, what may still be so) of the checks that were left open, or passed without a single case."""
    told: dict[str, list[str]] = {}
    for check in decision.checks:
        if check.metric == "unanswered" and decision.missing:
            continue  # the sentence on missing answers says it
        if check.role != "information" and (words := _unseen(check, say)):
            told.setdefault(words, []).append(say.metric(check.metric))
    return [(say.listed(metrics), words) for words, metrics in told.items()]


def _unseen(check: Check, say: Speaker) -> str:
    if check.estimate is None:
        return say("unseen_no_data") if check.passed is None else ""
    if check.low is None or check.high is None or check.smallest_effect is None:
        return say("no_range") if check.passed is None else ""
    bound = check.high if METRIC_NAMES[check.metric].direction == -1 else -check.low
    worst = say.difference(check.metric, bound, signed=False)
    if check.passed is None:
        effect = say.difference(check.metric, check.smallest_effect, signed=False)
        return say("unseen_open" if bound > 0 else "unseen_gain", bound=worst, effect=effect)
    if check.passed and check.low == check.high == 0:
        return say("unseen_no_case", effect=say.percent(check.smallest_effect))
    if check.passed and check.role == "guardrail" and bound > check.margin:
        return say("unseen_none_worse", bound=worst)
    return ""
