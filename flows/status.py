"""`tuneloop status`: what the controller says of every business, as a table."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.controller.client import ControllerClient
from pipeline.config import Config, Settings
from pipeline.records import Night


def show_status(config: Config, settings: Settings, as_json: bool) -> None:
    """Print businesses, versions, arms and last decisions.

    Raises:
        ConfigError: the controller does not answer.
    """
    status = ControllerClient(config, settings).get("/status")
    if as_json:
        print(json.dumps(status, ensure_ascii=False, indent=2))
        return
    table = Table(title=f"routes generation {status['generation']}", title_justify="left")
    for column in ("business", "stable", "previous", "canary", "last night", "last decision"):
        table.add_column(column, overflow="fold")
    for key, business in status["businesses"].items():
        decision = business["last_decision"]
        table.add_row(
            f"{key}\n{business['title']}",
            _version(business["stable"]),
            _version(business["previous"]) if business["previous"] != business["stable"] else "–",
            _canary(business["canary"]),
            _last_night(config, key),
            f"{decision['action']}: {decision['reason']}" if decision else "–",
        )
    console = Console()
    console.print(table)
    for what, problem in status["problems"].items():
        console.print(f"[red]{what}: {problem}[/]")


def _version(version: int | None) -> str:
    return "base model" if version is None else f"v{version}"


def _canary(canary: dict[str, Any] | None) -> str:
    if canary is None:
        return "–"
    users = canary["users"]
    paused = f", paused by {canary['paused_by']}" if canary["paused_by"] else ""
    if canary["in_shadow"]:
        return f"v{canary['version']} in shadow{paused}\n{users['candidate']} of {users['needed']} users"
    if canary["ab"]:
        split = f"v{canary['version']} at {canary['share']:.0%}, A/B test until {canary['ab']['until'][:16]}Z{paused}"
        return f"{split}\n{users['candidate']} + {users['control']} users"
    return (
        f"v{canary['version']} at {canary['share']:.0%}, step {canary['step']} of {canary['steps']}{paused}\n"
        f"{users['candidate']} + {users['control']} of {users['needed']} + {users['needed']} users"
    )


def _last_night(config: Config, business: str) -> str:
    files = sorted((config.state_dir / "nights" / business).glob("*.json"))
    if not files:
        return "–"
    night = Night.model_validate_json(files[-1].read_text(encoding="utf-8"))
    held = f"\n{night.quarantined} interactions in quarantine" if night.quarantined else ""
    return f"{night.night:%Y-%m-%d %H:%M} UTC {night.verdict or night.end}: {night.reason}{held}"
