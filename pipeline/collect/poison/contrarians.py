"""One user who votes against everybody else on comparable answers.

Comparable are answers to the same question that are the same or share half of their five-character runs; questions in
other words are not compared. A vote is against the others when at least four in five of three or more of them say the
opposite. How often that happens to honest users is read off the same answers (the share of dissent, with one vote
added to each side), and the binomial tail with the mean of these chances is never below the exact one for chances that
differ (W. Hoeffding, Annals of Mathematical Statistics 27, 1956). It is divided among all users who could be judged.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from pipeline.collect.poison.acts import FEW_PEERS, Act, Suspicion, alike, by_actor, flat, how_rare, runs_of
from pipeline.collect.poison.chances import binomial_tail
from pipeline.config import PoisonConfig
from pipeline.records import QuarantineReason

_FEWEST_OTHERS = 3
_AGREEMENT = 0.8
_AGAINST = 0.75
"""Share of a user's comparable votes that must be against the others."""


def contrarians(acts: Sequence[Act], config: PoisonConfig) -> list[Suspicion]:
    """Users whose votes are mostly against the others', each with all that they did: no part of it can be trusted."""
    users = by_actor(acts)
    if len(users) < FEW_PEERS:
        return []
    compared: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for answer in _comparable(acts):
        for user, is_against, chance in _judged(answer):
            compared[user].append((is_against, chance))
    tried = {user: own for user, own in sorted(compared.items()) if len(own) >= config.min_signals}
    found = []
    for user, own in tried.items():
        against = sum(is_against for is_against, _ in own)
        dissent = sum(chance for _, chance in own) / len(own)
        chance = binomial_tail(against, len(own), dissent)
        if against >= _AGAINST * len(own) and chance * len(tried) <= config.false_alarms:
            evidence = (
                f"{against} of one user's {len(own)} votes on answers that others judged too are against at least "
                f"{_AGREEMENT:.0%} of them; {dissent * len(own):.1f} would be expected (chance {how_rare(chance)}, "
                f"{len(tried)} users looked at)"
            )
            found.append(Suspicion(QuarantineReason.CONTRARIAN, evidence, tuple(users[user])))
    return found


def _judged(votes: Iterable[Act]) -> Iterator[tuple[str, bool, float]]:
    """Of one answer: who voted where the others agree, whether against them, and how likely dissent is there."""
    stance: dict[str, int] = {}
    for act in votes:
        if act.actor is not None:
            stance[act.actor] = act.signal.sign  # the latest of each user
    total = Counter(stance.values())
    for user, sign in stance.items():
        others = total.copy()
        others[sign] -= 1
        count = others.total()
        usual = max((1, -1), key=lambda side: others[side])
        if count >= _FEWEST_OTHERS and others[usual] >= _AGREEMENT * count:
            yield user, sign != usual, (others[-usual] + 1) / (count + 2)


def _comparable(acts: Iterable[Act]) -> Iterator[list[Act]]:
    """Votes on the same answer to the same question, or on answers that are half the same."""
    questions: dict[str, dict[str, list[Act]]] = defaultdict(lambda: defaultdict(list))
    for act in acts:
        if act.signal.sign and (question := flat(act.question)):
            questions[question][flat(act.answer)].append(act)
    for answers in questions.values():
        leaders: list[tuple[frozenset[str], list[Act]]] = []
        for answer in sorted(answers):
            runs = runs_of(answer)
            near = next((votes for other, votes in leaders if alike(runs, other)), None)
            if near is None:
                leaders.append((runs, answers[answer]))
            else:
                near.extend(answers[answer])
        for _, votes in leaders:
            yield sorted(votes, key=lambda act: (act.at, act.event_id))
