"""All that is kept about a business's rollouts, and how one decision changes it. Pure.

A decision that is written owes something to the outside: tags on the version, a request alias to take away, a report.
What is owed is kept beside the state until it is done, so a crash can delay it and cannot lose it.
"""

from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, JsonValue

from pipeline.records import Record
from pipeline.rollout.ab import AbTest
from pipeline.rollout.state import Action, Canary, Outcome, Paused, RolloutState, Steady, canary_of

Source = Literal["promote", "rollback", "champion", "auto_canary", "command"]


REFUSED = "rollout_refused"
"""The tag that says why a version was not put into service, until it is."""


class Request(NamedTuple):
    """A wish that somebody expressed in the registry or by a command."""

    kind: Literal["promote", "return"]
    version: int
    source: Source
    """The alias it was made with, `auto_canary` or `command`."""
    by: str | None = None
    """Who set the alias or gave the command, where that is known."""
    why: str | None = None
    """Their reason, where they gave one."""
    ab: AbTest | None = None
    """An A/B test is asked for, no canary."""

    @property
    def actor(self) -> str:
        """Who asked."""
        return "auto_canary" if self.source == "auto_canary" else self.by or f"mlflow alias {self.source}"

    @property
    def told(self) -> str:
        """Who asked, and how or why."""
        if self.source == "command":
            return f"asked for by {self.actor}: {self.why}"
        return f"asked for by {self.actor}" + (f" (alias {self.source})" if self.by else "")


class Asked(Record):
    """A version that a person commanded to be rolled out, until its canary begins or it is refused."""

    version: int
    by: str
    reason: str
    at: AwareDatetime
    ab: AbTest | None = None


class Owed(Record):
    """What a decision still owes to the registry and to the readers of reports. Doing it twice does no harm."""

    version: int
    tags: dict[str, str] = {}
    drop_tag: str | None = None
    """What a tag told that is no longer so."""
    drop_alias: Literal["promote", "rollback"] | None = None
    """The request that was dealt with."""
    note: str | None = None
    """A line for the version's description, where people look first."""
    report: Outcome | None = None
    """The rollout that ended, to write a report about."""
    previous_version: int | None = None
    """For the report: what was in service before."""


class Ledger(Record):
    """All that is kept about a business's rollouts."""

    state: RolloutState
    champion_seen: int | None = None
    """The alias `champion` as it was last dealt with. Any other value that is not the stable version is a person's."""
    newest_tried: int = 0
    """The newest version that was ever rolled out or refused: `auto_canary` starts only newer ones."""
    owed: tuple[Owed, ...] = ()
    asked: Asked | None = None


class AuditEntry(Record):
    """Who did what, when, and why."""

    at: AwareDatetime
    business: str
    actor: str
    action: str
    detail: dict[str, JsonValue]


def record_decision(
    ledger: Ledger,
    state: Steady | Canary | Paused,
    *,
    actor: str,
    action: str,
    reason: str,
    now: datetime,
    request: Request | None = None,
) -> tuple[Ledger, AuditEntry]:
    """The ledger after a decision, with all that the decision owes, and its line in the audit trail.

    Args:
        ledger: as it was read.
        state: the next state; the same as before when a request was refused.
        request: the wish that the decision deals with, granted or refused.
    """
    candidate = canary_of(state)
    tried = [ledger.newest_tried]
    version = candidate.candidate if candidate else None
    tags = {"rollout_by": actor, "rollout_at": now.isoformat(timespec="seconds"), "rollout_why": reason}
    owed = list(ledger.owed)
    if candidate is not None and state != ledger.state:
        tried.append(candidate.candidate)
        stage = "paused" if isinstance(state, Paused) else _stage(candidate)
        owed.append(Owed(version=candidate.candidate, tags={"rollout": stage, **tags}, drop_tag=REFUSED))
    if isinstance(state, Steady) and state != ledger.state and state.last:
        version = state.last.version
        owed.append(_owed_at_the_end(state, state.last, tags))
    if request is not None:
        version = request.version
        if request.kind == "promote":
            tried.append(request.version)
        owed += _owed_for(request, reason if action == "refuse" else None, tags, now)
    seen = request.version if request and request.source == "champion" else ledger.champion_seen
    dealt_with = action == Action.ROLL_BACK or (request is not None and request.source == "command")
    asked = None if dealt_with else ledger.asked
    after = Ledger(state=state, champion_seen=seen, newest_tried=max(tried), owed=tuple(owed), asked=asked)
    detail: dict[str, JsonValue] = {"version": version, "reason": reason, "state": state.kind}
    return after, AuditEntry(at=now, business=state.business, actor=actor, action=action, detail=detail)


def _owed_at_the_end(steady: Steady, outcome: Outcome, tags: dict[str, str]) -> Owed:
    promoted = outcome.result == "promoted"
    return Owed(
        version=outcome.version,
        tags={"rollout": "stable" if promoted else outcome.result, **tags},
        report=outcome,
        previous_version=steady.previous if promoted else steady.stable,
    )


def _stage(canary: Canary) -> str:
    if canary.ab:
        return "A/B test"
    return "shadow" if canary.in_shadow else f"canary, step {canary.step + 1}"


def _owed_for(request: Request, refused: str | None, tags: dict[str, str], now: datetime) -> list[Owed]:
    """What a wish that was dealt with leaves to do: to say why not, and to take its alias away."""
    alias = request.source if request.source in ("promote", "rollback") else None
    if refused is not None:
        told = {REFUSED: refused, **tags}
        note = f"{now:%Y-%m-%d %H:%M %Z}: not put into service: {refused}."
        return [Owed(version=request.version, tags=told, note=note, drop_alias=alias)]
    return [Owed(version=request.version, drop_alias=alias)] if alias else []
