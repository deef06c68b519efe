"""What follows from a decision outside of what is served: tags, reports, and aliases that tell the truth."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from evals.report import render_rollout_report, with_canary
from flows.controller.publisher import ATTEMPTS
from flows.controller.rollout_report import ended_report, rollout_report
from flows.controller.versions import VersionBook
from flows.pages import amend, publish
from pipeline.config import BusinessConfig
from pipeline.registry.base import Alias, ModelRegistry
from pipeline.rollout.ledger import Ledger, Owed
from pipeline.rollout.state import canary_of, previous_of, stable_of
from pipeline.rollout.store import RolloutStore, WriteConflict


def settle(
    store: RolloutStore,
    registry: ModelRegistry,
    versions: VersionBook,
    business: BusinessConfig,
    reports_dir: Path,
    now: datetime,
) -> None:
    """Do what decisions still owe to the registry and to the readers of reports.

    Raises:
        RegistryError: some of it could not be done; all of it stays owed.
    """
    stored = store.read(business.business)
    if not stored.ledger.owed:
        return
    known = {version.version for version in versions.refresh(business.business)}
    _write_reports(stored.ledger, business, reports_dir, now)
    for owed in stored.ledger.owed:
        if owed.tags and owed.version in known:
            registry.set_tags(business.business, owed.version, owed.tags)
        if owed.drop_tag and owed.version in known:
            registry.drop_tag(business.business, owed.version, owed.drop_tag)
        if owed.note and owed.version in known:
            registry.add_note(business.business, owed.version, owed.note)
        if owed.drop_alias:
            registry.drop_alias(business.business, owed.drop_alias, owed.version)
    _forget(store, business.business, stored.ledger.owed, now)


def _forget(store: RolloutStore, business: str, done: tuple[Owed, ...], now: datetime) -> None:
    """Take off the ledger what is done, whatever was decided meanwhile.

    Doing it once more would take away an alias that somebody has set again.

    Raises:
        WriteConflict: others keep deciding.
    """
    for attempt in range(ATTEMPTS):
        stored = store.read(business)
        owed = stored.ledger.owed
        if owed[: len(done)] != done:
            return  # another controller did it too
        try:
            store.write(stored.ledger.model_copy(update={"owed": owed[len(done) :]}), stored.generation, now)
        except WriteConflict:
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        return


def is_aligned(ledger: Ledger, aliases: Mapping[str, int]) -> bool:
    """Whether the system's aliases tell the truth."""
    wanted = _wanted(ledger)
    return ledger.champion_seen == wanted["champion"] and all(aliases.get(a) == v for a, v in wanted.items())


def align_aliases(store: RolloutStore, registry: ModelRegistry, business: str, now: datetime) -> None:
    """Make the system's aliases tell the truth, and leave alone what a person moved and nobody looked at yet."""
    stored = store.read(business)
    if stored.generation == 0:
        return
    ledger, wanted, aliases = stored.ledger, _wanted(stored.ledger), registry.aliases(business)
    stable = wanted.pop("champion")
    if aliases.get("champion") in (stable, ledger.champion_seen, None):
        _align(registry, business, "champion", stable, aliases)
        if ledger.champion_seen != stable:
            store.write(ledger.model_copy(update={"champion_seen": stable}), stored.generation, now)
    for alias, version in wanted.items():
        _align(registry, business, alias, version, aliases)


def _wanted(ledger: Ledger) -> dict[Alias, int | None]:
    canary = canary_of(ledger.state)
    return {
        "champion": stable_of(ledger.state),
        "challenger": canary.candidate if canary else None,
        "previous": previous_of(ledger.state),
    }


def _align(
    registry: ModelRegistry, business: str, alias: Alias, version: int | None, aliases: Mapping[str, int]
) -> None:
    if version is None and alias in aliases:
        registry.drop_alias(business, alias, aliases[alias])
    elif version is not None and aliases.get(alias) != version:
        registry.set_alias(business, alias, version)


def _write_reports(ledger: Ledger, business: BusinessConfig, reports_dir: Path, now: datetime) -> None:
    """Of rollouts that ended, and of the one under way as far as it is decided; also on their decisions' pages."""
    reports = [
        ended_report(owed.report, business.business, owed.previous_version) for owed in ledger.owed if owed.report
    ]
    if canary_of(ledger.state) and (running := rollout_report(ledger.state, business)):
        reports.append(running)
    for report in reports:
        page = render_rollout_report(report, business=business, generated_at=now)
        folder = reports_dir / business.business
        publish(folder, f"rollout-v{report.version}.html", page, business, now)
        amend(folder / f"decision-v{report.version}.html", partial(with_canary, report=report, business=business))
