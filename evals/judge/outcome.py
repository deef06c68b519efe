"""What two rulings on one pair, in both orders, come to: pure, and never in favour of the order or of a guess."""

from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from math import sqrt
from typing import NamedTuple

from scipy.stats import norm

from evals.judge.base import Better
from pipeline.records import JudgeTally


class Outcome(StrEnum):
    """How one pair came out for its first side; the values are the fields of `JudgeTally`."""

    WIN = "wins"
    LOSS = "losses"
    TIE = "ties"
    ORDER = "order_disagreements"
    SPOKE_TO_JUDGE = "spoke_to_judge"
    UNPARSABLE = "unparsable"
    UNSUITABLE = "unsuitable"
    UNJUDGED = "unjudged"


_SCORES = {Outcome.WIN: 1.0, Outcome.LOSS: 0.0, Outcome.TIE: 0.5, Outcome.ORDER: 0.5, Outcome.SPOKE_TO_JUDGE: 0.5}

_BOTH_ORDERS = {("A", "B"): Outcome.WIN, ("B", "A"): Outcome.LOSS, ("tie", "tie"): Outcome.TIE}


def win_share(outcome: Outcome) -> float | None:
    """1 for a win of the first side, 0 for a loss, 0.5 for what counts as a tie; None where nothing was judged."""
    return _SCORES.get(outcome)


def combine(forward: Better | None, backward: Better | None, *, first_speaks: bool, second_speaks: bool) -> Outcome:
    """Outcome for the first side.

    Args:
        forward: the ruling with the first side shown as A.
        backward: the ruling with the first side shown as B.
        first_speaks: the first side's answer speaks to the judge. It can lose by that, and gain nothing.
        second_speaks: likewise the second side's.
    """
    if forward is None or backward is None:
        return Outcome.UNPARSABLE
    outcome = _BOTH_ORDERS.get((forward, backward), Outcome.ORDER)
    if (first_speaks and outcome is not Outcome.LOSS) or (second_speaks and outcome is not Outcome.WIN):
        return Outcome.SPOKE_TO_JUDGE
    return outcome


def tally(outcomes: Sequence[Outcome]) -> JudgeTally:
    return JudgeTally.model_validate({kind.value: outcomes.count(kind) for kind in Outcome})


class Agreement(NamedTuple):
    """How often a judge preferred what people preferred; each user counts once."""

    share: float
    low: float
    high: float
    users: int


def agreement(outcomes: Sequence[Outcome], users: Sequence[str], confidence: float) -> Agreement | None:
    """Agreement over human pairs whose first side is the preferred answer; None when none was judged.

    A tie, or a verdict that follows the order, agrees by half: so much does a coin. The interval is Wilson's ("Probable
    Inference", JASA 22, 1927) with the number of users: a user's mean lies in [0, 1], so it varies at most as much as
    a coin of the same mean, and the interval stays honest where everybody agrees.

    Args:
        outcomes: of each pair.
        users: whose preference it is, in the same order.
        confidence: two-sided, such as 0.95.
    """
    by_user: dict[str, list[float]] = defaultdict(list)
    for outcome, user in zip(outcomes, users, strict=True):
        share = win_share(outcome)
        if share is not None:
            by_user[user].append(share)
    if not by_user:
        return None
    count = len(by_user)
    mean = sum(sum(shares) / len(shares) for shares in by_user.values()) / count
    z2 = float(norm.ppf((1 + confidence) / 2)) ** 2
    centre = (mean + z2 / (2 * count)) / (1 + z2 / count)
    reach = sqrt(z2 * (mean * (1 - mean) / count + z2 / (4 * count**2))) / (1 + z2 / count)
    return Agreement(mean, max(centre - reach, 0.0), min(centre + reach, 1.0), count)
