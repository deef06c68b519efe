"""Users who vote alike and have something else in common: a client that few others use, or the only hour they were
ever here.

The first is a binomial test of the votes against all others' of the same hours, where the votes of one user count for
less than independent ones. The second looks for lockstep (A. Beutel et al., "CopyCatch", WWW 2013): users all of whose
votes say the same and lie within one hour, more of them in one hour than chance allows, and three times as many as all
others who say the same in it: when something is broken for an hour, the regulars say so too. Groups of more than a
fifth of the users are left alone: that is news, not a conspiracy. A group that votes like most users do is only seen by
its hour.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pipeline.collect.poison.acts import FEW_PEERS, Act, Suspicion, by_actor, count_by, how_rare, name_of
from pipeline.collect.poison.chances import binomial_tail, design_effect, likeness
from pipeline.config import PoisonConfig
from pipeline.records import QuarantineReason

_FEWEST = 5
"""Users; fewer may well be colleagues."""
_LARGEST_SHARE = 0.2
_ALIKE = 0.9
"""Share of the votes that say the same."""
_HOUR = timedelta(hours=1)
_FILL = 4
_MAJORITY = 0.75
"""Share of such users among all who say the same in an hour."""
_SAYS = {1: "good", -1: "bad"}
_IMPORTED = "import/"
"""Begins the client of an interaction that an importer made."""


def groups(acts: Sequence[Act], config: PoisonConfig) -> list[Suspicion]:
    """Groups of one client, then groups of one hour among the users who are in none of these."""
    users = by_actor(act for act in acts if act.signal.sign)
    if len(users) < FEW_PEERS:
        return []
    largest = _LARGEST_SHARE * len(users)
    found = list(_by_client(users, largest, config))
    grouped = {act.actor for suspicion in found for act in suspicion.acts}
    for sign in (1, -1):
        found += _by_hour({u: own for u, own in users.items() if u not in grouped}, sign, largest, config)
    return found


def _by_client(users: Mapping[str, Sequence[Act]], largest: float, config: PoisonConfig) -> Iterator[Suspicion]:
    clients: dict[str, list[Act]] = {}
    for act in (act for own in users.values() for act in own):
        if not act.interaction.client.startswith(_IMPORTED):  # it names the tool, not what its users held
            clients.setdefault(act.interaction.client, []).append(act)
    tried = {
        client: own
        for client, own in sorted(clients.items())
        if _FEWEST <= len({act.actor for act in own}) <= largest and len(own) >= config.min_signals
    }
    hours = count_by((_hour(act.at), act.signal.sign) for own in users.values() for act in own)
    for client, inside in tried.items():
        sign, same = Counter(act.signal.sign for act in inside).most_common(1)[0]
        if same < _ALIKE * len(inside):
            continue
        own = count_by((act.actor, act.signal.sign) for act in inside)
        others = [act for of in users.values() for act in of if act.interaction.client != client]
        alike = likeness(list(count_by((act.actor, act.signal.sign) for act in others).values()), sign)
        usual, effect = _usual(inside, hours, sign), design_effect(list(own.values()), alike)
        chance = binomial_tail(same / effect, len(inside) / effect, usual)
        if chance * 2 * len(tried) <= config.false_alarms:
            evidence = (
                f"{same} of {len(inside)} votes of the {len(own)} users of one client ({name_of(client)}) say "
                f"'{_SAYS[sign]}'; in the same hours {usual:.0%} of the others' votes would (chance "
                f"{how_rare(chance)}, {len(tried)} clients looked at)"
            )
            yield Suspicion(QuarantineReason.GROUP, evidence, tuple(inside))


def _usual(inside: Sequence[Act], hours: Mapping[datetime, Counter[int]], sign: int) -> float:
    """Share of the others' votes of one sign, averaged over the hours of a group's votes: what everybody says when
    something is broken is no conspiracy. An hour of few others is filled up with others of all hours."""
    mine = count_by((_hour(act.at), act.signal.sign) for act in inside)
    total = sum(votes.total() for votes in hours.values()) - len(inside)
    same = sum(votes[sign] for votes in hours.values()) - sum(votes[sign] for votes in mine.values())
    overall = (same + 1) / (total + 2)
    return sum(
        votes.total()
        * (hours[hour][sign] - votes[sign] + _FILL * overall)
        / (hours[hour].total() - votes.total() + _FILL)
        for hour, votes in mine.items()
    ) / len(inside)


def _by_hour(
    users: Mapping[str, Sequence[Act]], sign: int, largest: float, config: PoisonConfig
) -> Iterator[Suspicion]:
    """Hours in which too many came who never came again, and all said the same."""
    visitors = sorted(
        (own for own in users.values() if _came_once(own, sign)), key=lambda own: (own[0].at, own[0].event_id)
    )
    begins = [own[0].at for own in visitors]
    said = sorted((act.at, act.actor or "") for own in users.values() for act in own if act.signal.sign == sign)
    hours = len({(user, _hour(at)) for at, user in said})
    start = 0
    while start < len(visitors):
        until = begins[start] + _HOUR
        beyond = bisect_left(begins, until)
        inside = [own for own in visitors[start:beyond] if own[-1].at < until]
        votes = tuple(act for own in inside for act in own)
        if _FEWEST <= len(inside) <= largest and len(votes) >= config.min_signals:
            everyone = {user for _, user in said[bisect_left(said, (begins[start],)) : bisect_left(said, (until,))]}
            chance = _chance_of_hour(len(inside), len(everyone) - len(inside), len(visitors), hours)
            if len(inside) >= _MAJORITY * len(everyone) and chance * 2 * len(visitors) <= config.false_alarms:
                evidence = _lockstep(len(inside), len(votes), len(everyone), sign, chance)
                yield Suspicion(QuarantineReason.GROUP, evidence, votes)
                start = beyond - 1
        start += 1


def _chance_of_hour(inside: int, others: int, visitors: int, hours: int) -> float:
    """Of so many visitors among all who say so in an hour, given their share among all users' hours: the conditional
    test of two Poisson counts (J. Przyborowski and H. Wilenski, Biometrika 31, 1940)."""
    elsewhere = visitors - inside + 1
    return binomial_tail(inside, inside + others, elsewhere / (elsewhere + max(1, hours - visitors)))


def _lockstep(inside: int, votes: int, users: int, sign: int, chance: float) -> str:
    return (
        f"{inside} of the {users} users who said '{_SAYS[sign]}' in one hour said nothing else and never came again, "
        f"with {votes} votes (chance {how_rare(chance)})"
    )


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _came_once(own: Sequence[Act], sign: int) -> bool:
    return len(own) >= 2 and own[-1].at - own[0].at < _HOUR and all(act.signal.sign == sign for act in own)
