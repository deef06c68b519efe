"""`tuneloop erase`: what it says of itself, and how it shows what it does; `flows.erasure` does it."""

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.options import BUSINESS, CONFIGS
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from flows.erasure import Places, Plan
    from pipeline.config import Config, Settings

_KEY = re.compile(r"[0-9a-f]{32}")


@click.command()
@CONFIGS
@BUSINESS
@click.option("--user", "users", multiple=True, help="The id that the application sends; `-`: one a line from stdin.")
@click.option("--user-key", "keys", multiple=True, help="The salted hash that stands for a user in the log.")
@click.option("--dry-run", is_flag=True, help="Show what there is, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--retrain", is_flag=True, help="Where a version learned from the user, run a night without them at once."
)
def erase(
    configs: Path,
    business: str,
    users: tuple[str, ...],
    keys: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    retrain: bool,
) -> None:
    """Erase a user of a business: from events, snapshots, caches, reports and the registry.

    \b
    Look:   tuneloop erase --business support --user u-17 --dry-run
    Do it:  tuneloop erase --business support --user u-17
    Or:     tuneloop erase --business support --user - --yes < ids.txt   (keeps ids out of the shell's history)
    Train:  tuneloop erase --business support --user u-17 --retrain      (it is offered, too)

    It takes the user's interactions and feedback, what others said about them, and conversations that hold their words;
    redacts the snapshots made of them; names and marks every model version that saw them. What an adapter has learned
    stays in its weights until you train again and promote the result: `--retrain`, or any later night, makes a version
    that never saw the user.

    Nothing of the user is collected again afterwards, also not by a new import of an old file. Killed on its way, run
    it again. It waits for a night that is going on. Backups of the state folder are yours to deal with.
    """
    import getpass

    from rich.console import Console

    from flows.erasure import erase as run
    from pipeline.config import load_config, load_settings

    config = load_config(configs)
    about = config.business(business)
    settings = load_settings(config.state_dir)
    user_keys = _user_keys(business, users, keys, settings)
    console = Console(highlight=False, markup=False)

    def confirm(plan: "Plan") -> bool:
        _show(console, plan)
        if dry_run:
            return False
        return yes or click.confirm("Erase all of this? It cannot be undone")

    with _Progress(console) as progress:
        done = run(
            _places(config, settings),
            about,
            user_keys,
            actor=getpass.getuser(),
            now=datetime.now(UTC),
            begin=progress.begin,
            confirm=progress.paused(confirm),
            on_wait=lambda: click.echo(f"business '{business}': waiting for the night or erasure that is going on"),
        )
    if done is not None and _close(console, done):
        console.print(f"Train again without the user:  tuneloop nightly --business {business}")
        if retrain or (not yes and click.confirm("Now?")):
            night = [sys.executable, "-m", "flows.cli", "nightly", "--business", business, "--configs", str(configs)]
            sys.exit(subprocess.run(night).returncode)


def _user_keys(business: str, users: tuple[str, ...], keys: tuple[str, ...], settings: "Settings") -> set[str]:
    from pipeline.gateway.ids import Ids

    ids = Ids(settings.user_salt.get_secret_value())
    named = [line for user in users for line in (sys.stdin.read().splitlines() if user == "-" else [user])]
    for key in keys:
        if not _KEY.fullmatch(key):
            raise ConfigError("--user-key: 32 hex digits are needed; an application's own id goes to --user")
    found = {*keys, *(ids.user_key(business, user) for user in named if user)}
    if not found:
        raise ConfigError("nobody is named; give --user with the id that the application sends, or --user-key")
    return found


def _places(config: "Config", settings: "Settings") -> "Places":
    from flows.erasure import Places
    from pipeline.gateway.arms import ArmStore, DatabaseArmStore
    from pipeline.services import connect

    services = connect(config, settings)
    arms: list[ArmStore] = [DatabaseArmStore(services.control)]
    if url := settings.redis_url.get_secret_value():
        from pipeline.gateway.shared import Shared

        arms.append(Shared(url).arms)
    return Places(config.state_dir, services.control, services.registry, arms)


def _show(console: "Console", plan: "Plan") -> None:
    """What there is of the users, before anything is changed."""
    from rich.table import Table

    from flows.erasure import what_it_saw

    found = plan.found
    keys = ", ".join(sorted(key[:8] for key in found.users))
    table = Table(title=f"business {found.business}, user {keys}…", title_justify="left", show_header=False, box=None)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    if plan.resumed:
        table.add_row("events", "", f"noted when this erasure was begun, {plan.resumed:%Y-%m-%d %H:%M} UTC; it goes on")
    else:
        table.add_row("interactions", str(found.own + found.of_others), _of_others(found.of_others))
        table.add_row("feedback", str(len(found.events)), "by the user, or about these")
        table.add_row("conversations", str(len(found.conversations)), f"{len(found.sessions)} of them the user's alone")
    table.add_row("findings in quarantine", str(plan.findings), "")
    table.add_row("kept answers, scratch files", str(plan.scratch), "of the whole business; they are made again")
    table.add_section()
    for snapshot in plan.snapshots:
        also = "; more went in an earlier erasure" if snapshot.shared else ""
        sides = ", ".join(f"{count} {side}" for side, count in snapshot.rows.items() if count)
        table.add_row(f"snapshot {snapshot.snapshot_id[:8]}", str(sum(snapshot.rows.values())), f"rows: {sides}{also}")
    for seen in plan.versions:
        served = f" ({', '.join(seen.version.aliases)})" if seen.version.aliases else ""
        table.add_row(f"version {seen.version.version}{served}", "", what_it_saw(seen))
    for version in plan.unknown:
        table.add_row(f"version {version.version}", "?", f"snapshot {version.adapter.snapshot_id[:8]} is not here")
    console.print(table)
    if plan.empty:
        console.print("Nothing is stored of this user. Is the id spelt as the application sends it?")


def _of_others(count: int) -> str:
    return f"{count} of them name nobody, or repeat what the user said" if count else ""


def _close(console: "Console", plan: "Plan") -> bool:
    """What is left for a person to do; whether there is something to train again."""
    console.print(f"Erased (erasure {plan.erasure_id[:8]}). Nothing of this user will be collected again.")
    for seen in plan.versions:
        for name in seen.other_files:
            console.print(f"version {seen.version.version}: look at {name}, which tuneloop did not put there")
    learned = [seen.version for seen in plan.versions if seen.learned]
    if learned:
        numbers = ", ".join(str(version.version) for version in learned)
        console.print(f"What version {numbers} learned stays in its weights.")
        if any("champion" in version.aliases for version in learned):
            console.print("One of them is in service until you promote another.")
    return bool(learned)


class _Progress:
    """A line for each step, and a bar for those that read the event log, on a terminal; nothing elsewhere."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def __enter__(self) -> "_Progress":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def begin(self, what: str, size: int) -> Callable[[int], None]:
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        task = self._bar.add_task(what, total=size or None)
        return lambda done: self._bar.advance(task, done)

    def paused(self, ask: Callable[["Plan"], bool]) -> Callable[["Plan"], bool]:
        """The bar would run over a question."""

        def answer(plan: "Plan") -> bool:
            self._bar.stop()
            try:
                return ask(plan)
            finally:
                self._bar.start()

        return answer
