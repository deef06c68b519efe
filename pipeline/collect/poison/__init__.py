"""The poison screen: which feedback looks as if somebody wanted to steer the model. Pure.

It judges people by what the events carry: the hashes of user and conversation, the client's name (User-Agent), times,
votes and edited texts. **Network addresses are not logged**, so accounts of one address that share neither client nor
hour are not seen. Nor is a flood of strangers (no user, no known conversation), unless they edit: strangers are not one
person. Outcomes and aborts are left alone: systems send them in batches, and who can send an outcome holds the
application's key.

A finding is no proof. What is found is held until a person decides (`pipeline.collect.quarantine`), so each rule
compares with what the business's other users do, and allows for having looked at all of them: the chance that a night
of honest users has a finding of one kind is about `PoisonConfig.false_alarms`.
"""

from collections.abc import Sequence

from pipeline.collect.poison.acts import Act, Suspicion, acts_of, as_findings
from pipeline.collect.poison.bursts import bursts
from pipeline.collect.poison.contrarians import contrarians
from pipeline.collect.poison.groups import groups
from pipeline.collect.poison.inserts import inserts
from pipeline.config import PoisonConfig
from pipeline.records import Finding, RatedInteraction

__all__ = ["screen"]


def screen(rated: Sequence[RatedInteraction], config: PoisonConfig) -> list[Finding]:
    """What looks like poison among one business's rated interactions of a window; their order changes nothing.

    Contrarians are looked for last and without what was found before: a group that votes alike must not make the
    honest users look like the odd ones out.
    """
    if not config.enabled:
        return []
    acts = acts_of(rated)
    found = [*inserts(acts, rated, config), *bursts(acts, config), *groups(acts, config)]
    suspect = {act.event_id for suspicion in found for act in suspicion.acts}
    found += _until_quiet([act for act in acts if act.event_id not in suspect], config)
    return as_findings(found, rated)


def _until_quiet(acts: list[Act], config: PoisonConfig) -> list[Suspicion]:
    """Contrarians hide each other: what is common to others is judged again without those who were found."""
    found: list[Suspicion] = []
    while more := contrarians(acts, config):
        found += more
        gone = {act.event_id for suspicion in more for act in suspicion.acts}
        acts = [act for act in acts if act.event_id not in gone]
    return found
