"""What becomes of the poison screen's findings: held until a person releases or drops them.

What is held is a signal in the state in which it was found. A finding is named by its content, so the same signals on a
later night are the same finding and stay released, dropped or held; only what is new makes a new one. The decision
stands in the control database and not in the snapshot: a night that is run again finds it there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.collect.poison import screen
from pipeline.config import PoisonConfig
from pipeline.control import audit as audit_table
from pipeline.control import quarantine as table
from pipeline.erase.erased import Erased, Kind
from pipeline.errors import DataError
from pipeline.records import (
    Dropped,
    DropReason,
    Finding,
    Quarantined,
    QuarantineReason,
    QuarantineState,
    RatedInteraction,
    Signal,
)

_SHORTEST = 6
_STRENGTH = (QuarantineState.RELEASED, QuarantineState.HELD, QuarantineState.DROPPED)
_ACTIONS = {QuarantineState.RELEASED: "quarantine release", QuarantineState.DROPPED: "quarantine drop"}


class Quarantine:
    """Owner of the table `quarantine`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def entries(self, business: str) -> tuple[Quarantined, ...]:
        """All findings of a business, oldest first."""
        query = select(table).where(table.c.business == business).order_by(table.c.found_at, table.c.finding_id)
        with self._engine.connect() as connection:
            return tuple(map(_entry, connection.execute(query)))

    def get(self, business: str, prefix: str) -> Quarantined:
        """The one finding of a business whose id begins so.

        Raises:
            DataError: there is none, or more than one.
        """
        found = [entry for entry in self.entries(business) if entry.finding.finding_id.startswith(prefix)]
        if len(prefix) < _SHORTEST or len(found) != 1:
            many = "more than one finding" if len(found) > 1 else "no finding"
            what = f"'{prefix}' is too short" if len(prefix) < _SHORTEST else f"{many} begins with '{prefix}'"
            raise DataError(
                f"business '{business}': {what}; name at least {_SHORTEST} digits of an id that "
                f"`tuneloop quarantine list --business {business} --state all` shows"
            )
        return found[0]

    def hold(self, findings: Iterable[Finding], now: datetime) -> None:
        """Keep findings as held; what is there already stays as it is, so doing it twice does no harm."""
        entries = [Quarantined(finding=one, state=QuarantineState.HELD, found_at=now) for one in findings]
        with self._engine.begin() as connection:
            self._add(connection, entries)

    def decide(self, entry: Quarantined, state: QuarantineState, *, actor: str, why: str, now: datetime) -> bool:
        """Release or drop a finding, with its line in the audit trail in the same transaction.

        Returns:
            False when it is in that state already; nothing is written then.

        Raises:
            DataError: no reason, or somebody else decided since `entry` was read.
        """
        finding = entry.finding
        if not why.strip():
            raise DataError("--reason is empty; say in a few words why, for the audit trail")
        if entry.state is state:
            return False
        values = {"state": state, "decided_at": now, "decided_by": actor[:200], "why": why[:1000]}
        detail = {
            "finding": finding.finding_id,
            "kind": finding.reason,
            "signals": len(finding.event_ids),
            "before": entry.state,
            "reason": why,
        }
        with self._engine.begin() as connection:
            changed = connection.execute(
                update(table)
                .where(table.c.finding_id == finding.finding_id, table.c.state == entry.state)
                .values(**values)
            )
            if changed.rowcount != 1:
                raise DataError(f"finding {finding.finding_id[:12]}: somebody else decided just now; look again")
            line = {"at": now, "business": finding.business, "actor": actor[:200], "action": _ACTIONS[state]}
            connection.execute(insert(audit_table).values(**line, detail=detail))
        return True

    def forget(self, business: str, erased: Erased, *, dry_run: bool = False) -> int:
        """Take erased users out of the findings; returns how many findings that changes.

        What is left of a finding is a finding of its own (its id is a hash of its signals), in the state in which it
        was; one that was about them alone goes.
        """
        changed = [entry for entry in self.entries(business) if _names(entry.finding, erased)]
        for entry in () if dry_run else changed:
            rest = _without(entry.finding, erased)
            with self._engine.begin() as connection:
                connection.execute(delete(table).where(table.c.finding_id == entry.finding.finding_id))
                if rest is not None:
                    self._add(connection, [entry.model_copy(update={"finding": rest})])
        return len(changed)

    def _add(self, connection: Connection, entries: Sequence[Quarantined]) -> None:
        """Write findings; what is there already stays as it is."""
        dialect = postgresql if self._engine.dialect.name == "postgresql" else sqlite
        if entries:
            connection.execute(dialect.insert(table).on_conflict_do_nothing(), [_row(entry) for entry in entries])


def screen_and_withhold(
    quarantine: Quarantine, rated: Sequence[RatedInteraction], business: str, config: PoisonConfig, now: datetime
) -> tuple[list[RatedInteraction], list[Dropped]]:
    """Screen a window, keep what is found, and leave out what is held or dropped, whenever it was found.

    Args:
        quarantine: of the control database.
        rated: all rated interactions of the window.
        business: its key.
        config: its section `poison`.
        now: when new findings are said to be found; a night that is run again names the same.
    """
    quarantine.hold(news(screen(rated, config), quarantine.entries(business)), now)
    return withhold(rated, quarantine.entries(business))


def news(findings: Iterable[Finding], known: Iterable[Quarantined]) -> list[Finding]:
    """Findings without the signals that were found for the same reason before, whatever became of them."""
    before: dict[QuarantineReason, set[str]] = defaultdict(set)
    for entry in known:
        before[entry.finding.reason].update(entry.finding.event_ids)
    fresh = []
    for finding in findings:
        events = tuple(event for event in finding.event_ids if event not in before[finding.reason])
        if events == finding.event_ids:
            fresh.append(finding)
        elif events:
            old = len(finding.event_ids) - len(events)
            evidence = f"{finding.evidence}; {old} of its {len(finding.event_ids)} signals are in earlier findings"
            fresh.append(finding.model_copy(update={"event_ids": events, "evidence": evidence}))
    return fresh


def withhold(
    rated: Sequence[RatedInteraction], entries: Iterable[Quarantined]
) -> tuple[list[RatedInteraction], list[Dropped]]:
    """Take the held and the dropped signals away. An interaction of which nobody else says anything is left out."""
    by_event: dict[str, list[Quarantined]] = defaultdict(list)
    for entry in entries:
        for event_id in entry.finding.event_ids:
            by_event[event_id].append(entry)
    kept: list[RatedInteraction] = []
    dropped: list[Dropped] = []
    for one in rated:
        against = [(signal, _strongest(signal, by_event)) for signal in one.signals]
        stays = tuple(signal for signal, entry in against if entry is None)
        entries_here = [entry for _, entry in against if entry is not None]
        if not entries_here:
            kept.append(one)
        elif any(signal.value is not None for signal in stays):
            kept.append(one.model_copy(update={"signals": stays}))
        else:
            dropped.append(_dropped(one, max(entries_here, key=_weight)))
    return kept, dropped


def _strongest(signal: Signal, by_event: Mapping[str, list[Quarantined]]) -> Quarantined | None:
    """What keeps a signal out: the findings about the newest of its events that is in any. None when it may stay."""
    found = next((by_event[event] for event in reversed(signal.event_ids) if event in by_event), [])
    strongest = max(found, key=_weight, default=None)
    return None if strongest is None or strongest.state is QuarantineState.RELEASED else strongest


def _weight(entry: Quarantined) -> tuple[int, str]:
    return _STRENGTH.index(entry.state), entry.finding.finding_id


def _dropped(one: RatedInteraction, entry: Quarantined) -> Dropped:
    reason = DropReason.POISON if entry.state is QuarantineState.DROPPED else DropReason.QUARANTINED
    detail = f"{entry.finding.reason}, finding {entry.finding.finding_id[:12]}"
    return Dropped(interaction_id=one.interaction.interaction_id, reason=reason, detail=detail)


def _names(finding: Finding, erased: Erased) -> bool:
    return (
        erased.has_any(finding.business, Kind.USER, finding.user_keys)
        or erased.has_any(finding.business, Kind.INTERACTION, finding.interaction_ids)
        or erased.has_any(finding.business, Kind.EVENT, finding.event_ids)
    )


def _without(finding: Finding, erased: Erased) -> Finding | None:
    """What is left of a finding; None when it was about erased users alone."""

    def kept(kind: Kind, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(value for value in values if not erased.has(finding.business, kind, value))

    users, events = kept(Kind.USER, finding.user_keys), kept(Kind.EVENT, finding.event_ids)
    if not events or (finding.user_keys and not users):
        return None
    left = {
        "user_keys": users,
        "interaction_ids": kept(Kind.INTERACTION, finding.interaction_ids),
        "event_ids": events,
    }
    return finding.model_copy(update=left)


def _row(entry: Quarantined) -> dict[str, Any]:
    decision = entry.model_dump(exclude={"finding", "state"})
    finding = entry.finding
    return {
        "finding_id": finding.finding_id,
        "business": finding.business,
        "state": entry.state,
        "finding": finding.model_dump(mode="json"),
        **decision,
    }


def _entry(row: Row[Any]) -> Quarantined:
    return Quarantined(
        finding=Finding.model_validate(row.finding),
        state=row.state,
        found_at=_aware(row.found_at),
        decided_at=None if row.decided_at is None else _aware(row.decided_at),
        decided_by=row.decided_by,
        why=row.why,
    )


def _aware(value: datetime) -> datetime:
    """SQLite forgets the zone; everything is written in UTC."""
    return value if value.tzinfo else value.replace(tzinfo=UTC)
