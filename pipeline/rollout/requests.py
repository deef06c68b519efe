"""What people (and `auto_canary`) ask for, read off the aliases of the registry. Pure."""

from collections.abc import Mapping, Sequence

from pipeline.records import ModelVersion, Verdict
from pipeline.rollout.ledger import Ledger, Request
from pipeline.rollout.state import Steady, canary_of, previous_of, stable_of


def is_wished(ledger: Ledger, aliases: Mapping[str, int]) -> bool:
    """Whether a command, or some alias, says more than what is served already."""
    champion = aliases.get("champion")
    moved = champion is not None and champion not in (stable_of(ledger.state), ledger.champion_seen)
    return moved or ledger.asked is not None or "promote" in aliases or "rollback" in aliases


def read_request(
    ledger: Ledger, aliases: Mapping[str, int], versions: Sequence[ModelVersion], auto_canary: bool
) -> Request | None:
    """The most urgent wish: back before forward, a person's before the automatic.

    A `champion` that is neither the stable version nor what was last dealt with was moved by hand: to an older version
    it means `rollback`, to a newer one `promote`.

    Args:
        versions: all versions of the business, oldest first.
    """
    stable, canary = stable_of(ledger.state), canary_of(ledger.state)
    if "rollback" in aliases:
        return Request("return", aliases["rollback"], "rollback")
    champion = aliases.get("champion")
    if champion is not None and champion not in (stable, ledger.champion_seen):
        back = champion == previous_of(ledger.state) or champion < (stable or 0)
        return Request("return" if back else "promote", champion, "champion")
    if asked := ledger.asked:
        return Request("promote", asked.version, "command", asked.by, asked.reason, asked.ab)
    if "promote" in aliases and (canary is None or aliases["promote"] in (canary.candidate, stable)):
        return Request("promote", aliases["promote"], "promote")
    if auto_canary and isinstance(ledger.state, Steady):
        newest = max((v.version for v in versions if v.gate == Verdict.PROMOTE), default=0)
        if newest > max(stable or 0, ledger.newest_tried):
            return Request("promote", newest, "auto_canary")
    return None
