"""`tuneloop quarantine`: what a person does with feedback that looks like poison."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.options import BUSINESS, CONFIGS, REASON

if TYPE_CHECKING:
    from pipeline.collect.quarantine import Quarantine
    from pipeline.records import Quarantined

_STATES = ("held", "released", "dropped", "all")
_SHOWN = 12
"""Digits of an id in lists."""

_IDS = click.argument("ids", nargs=-1, required=True, metavar="ID...")


@click.group()
def quarantine() -> None:
    """Look at feedback that looks like poison; release it or drop it.

    \b
    Every night compares what users said: floods of one user, accounts that vote alike, edits
    that put the same link or text everywhere, votes against everybody else. What it finds is
    held: it trains nothing until you decide, and your decision holds for later nights.

    \b
    Look:      tuneloop quarantine list --business support
    One:       tuneloop quarantine show 3fa94c01d2be --business support
    It's fine: tuneloop quarantine release 3fa94c01d2be --business support --reason "our own testers"
    It's not:  tuneloop quarantine drop 3fa94c01d2be --business support --reason "link farm"

    An id may be shortened to six digits. How much is held: section `poison` of the business's file.
    """


@quarantine.command("list")
@CONFIGS
@BUSINESS
@click.option("--state", type=click.Choice(_STATES), default="held", show_default=True, help="Which findings.")
def list_findings(configs: Path, business: str, state: str) -> None:
    """Show the findings: id, state, kind, how much is held, and the evidence."""
    entries = [e for e in _open(configs, business).entries(business) if state in ("all", e.state)]
    for entry in entries:
        finding = entry.finding
        click.echo(
            f"{finding.finding_id[:_SHOWN]}  {entry.state:8}  {finding.reason:10}  {entry.found_at:%Y-%m-%d}  "
            f"signals {len(finding.event_ids)}, users {len(finding.user_keys)}: {finding.evidence}"
        )
    if not entries:
        click.echo(f"business '{business}': nothing is {'found' if state == 'all' else state}")


@quarantine.command("show")
@CONFIGS
@BUSINESS
@click.argument("finding_id", metavar="ID")
def show_finding(configs: Path, business: str, finding_id: str) -> None:
    """Show one finding with its interactions, users and decision as JSON.

    It holds ids and hashes only; what was said is read with GET /v1/interactions/ID at the gateway.
    """
    entry = _open(configs, business).get(business, finding_id)
    click.echo(_with_id(entry))


@quarantine.command("release")
@CONFIGS
@BUSINESS
@REASON
@_IDS
def release(configs: Path, business: str, reason: str, ids: tuple[str, ...]) -> None:
    """Use a finding's feedback like any other, tonight and on later nights."""
    _decide(configs, business, ids, reason, "released")


@quarantine.command("drop")
@CONFIGS
@BUSINESS
@REASON
@_IDS
def drop(configs: Path, business: str, reason: str, ids: tuple[str, ...]) -> None:
    """Keep a finding's feedback out for good."""
    _decide(configs, business, ids, reason, "dropped")


def _decide(configs: Path, business: str, ids: tuple[str, ...], reason: str, state: str) -> None:
    import getpass

    from pipeline.records import QuarantineState

    store = _open(configs, business)
    entries = [store.get(business, prefix) for prefix in ids]  # a wrong id stops all of them
    for entry in entries:
        actor, now = getpass.getuser(), datetime.now(UTC)
        changed = store.decide(entry, QuarantineState(state), actor=actor, why=reason, now=now)
        already = "" if changed else f" already, by {entry.decided_by}: {entry.why}"
        click.echo(f"{entry.finding.finding_id[:_SHOWN]}  {state}{already}")


def _open(configs: Path, business: str) -> "Quarantine":
    from pipeline.collect.quarantine import Quarantine
    from pipeline.config import load_config
    from pipeline.control import open_control_in

    config = load_config(configs)
    config.business(business)
    return Quarantine(open_control_in(config.state_dir))


def _with_id(entry: "Quarantined") -> str:
    import json

    shown = {"finding_id": entry.finding.finding_id, **entry.model_dump(mode="json")}
    return json.dumps(shown, ensure_ascii=False, indent=2)
