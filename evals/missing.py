"""What was not answered: counted by side and reason, so that nobody's silence goes unnoticed."""

from collections import Counter

from pipeline.records import EvalResult, MissingCount, MissingReason, Side

_PROBE_SETS = ("sycophancy", "general")
_WHOSE: dict[Side, str] = {"baseline": "the baseline alone", "candidate": "the candidate alone", "both": "both"}
_WHY = {
    MissingReason.UNSUPPORTED: "not only text",
    MissingReason.TOO_LONG: "too long for the engine",
    MissingReason.REFUSED: "refused by the engine",
    MissingReason.FAILED: "failed in all tries",
}


def asked(result: EvalResult) -> int:
    """Items and probes that were to be compared."""
    return len(result.items) + len(result.probes) + len(result.missing)


def count_missing(result: EvalResult) -> tuple[MissingCount, ...]:
    """Items without an answer by side and reason, the most frequent first."""
    counts = Counter((item.side, item.reason) for item in result.missing)
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(MissingCount(side=side, reason=reason, items=items) for (side, reason), items in ordered)


def tell_missing(result: EvalResult, allowed_share: float) -> str:
    """A sentence for the decision's reason, with a space before it; empty where everything was answered."""
    if not result.missing:
        return ""
    counts = (f"{_WHY[one.reason]} ({_WHOSE[one.side]}) {one.items}" for one in count_missing(result))
    told = f" No answer to {len(result.missing)} of {asked(result)} items: {', '.join(counts)}"
    if not too_many(result, allowed_share):
        return f"{told}."
    return f"{told}; more than {allowed_share:.0%} of the items or of the probes promote nothing."


def too_many(result: EvalResult, allowed_share: float) -> bool:
    """Whether so much is missing, of the items or of the probes, that what is left may not stand for the whole."""
    probes = sum(one.item.set_name in _PROBE_SETS for one in result.missing)
    items = len(result.missing) - probes
    return items > allowed_share * (items + len(result.items)) or probes > allowed_share * (probes + len(result.probes))
