"""The command line. Modules that cost time to import are imported by the command that needs them: `--help` is quick."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from flows.comparing import compare
from flows.data_commands import pii, snapshot
from flows.erasing import erase
from flows.importing import import_
from flows.options import BUSINESS, CONFIGS
from flows.quarantine import quarantine
from flows.reporting import reports
from flows.rollout_commands import rollout
from flows.training import train
from pipeline.errors import PipelineError


class _Commands(click.Group):
    """Shows an error raised on purpose as one line, and exits with 2."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except PipelineError as error:
            click.echo(f"tuneloop: {error}", err=True)
            sys.exit(2)


@click.group(cls=_Commands)
def main() -> None:
    """Turn what users do with LLM answers into better LoRA adapters, every night.

    \b
    One machine:   tuneloop up, then point the OpenAI client at the gateway.
    Every night:   the schedule of each business runs by itself; `tuneloop nightly` runs one now.
    Promote:       set alias `promote` on a version in the MLflow page, `rollback` to return to one;
                   or tuneloop rollout start, step, pause, rollback.
    Look:          tuneloop status, tuneloop rollout explain, tuneloop snapshot show, tuneloop pii explain
    """


main.add_command(snapshot)
main.add_command(quarantine)
main.add_command(import_)
main.add_command(erase)
main.add_command(pii)
main.add_command(compare)
main.add_command(train)
main.add_command(rollout)
main.add_command(reports)


@main.command()
@CONFIGS
def up(configs: Path) -> None:
    """Start MLflow, Prefect, engines, gateway, controller and schedules on this machine.

    What runs already is left alone; loopback addresses only. Secrets that are not in the environment are made once
    and kept owner-only in the state folder.
    """
    from flows import stack
    from pipeline.config import load_config, load_settings

    config = load_config(configs)
    stack.make_secrets(config.state_dir)
    stack.up(config, load_settings(config.state_dir), click.echo)
    click.echo(f"gateway {config.system.gateway.host}:{config.system.gateway.port}/v1  ·  tuneloop down stops it all")


@main.command()
@CONFIGS
def down(configs: Path) -> None:
    """Stop what `up` started, and nothing else."""
    from flows import stack
    from pipeline.config import load_config

    stack.down(load_config(configs).state_dir, click.echo)


@main.command()
@CONFIGS
@BUSINESS
@click.option("--night", help="When the run was due (ISO time with zone); a repeated run names the same. Default: now.")
def nightly(configs: Path, business: str, night: str | None) -> None:
    """Run one night of a business now: collect, clean, train, gate, register."""
    from pipeline.config import child_environment, load_config, load_settings

    config = load_config(configs)
    config.business(business)
    due = night or datetime.now(UTC).isoformat()
    command = [sys.executable, "-m", "flows.nightly", "--business", business, "--configs", str(configs), "--night", due]
    sys.exit(subprocess.run(command, env=child_environment(config, load_settings(config.state_dir))).returncode)


@main.command()
@CONFIGS
@click.option("--json", "as_json", is_flag=True, help="Print the controller's answer as JSON.")
def status(configs: Path, as_json: bool) -> None:
    """Show businesses, versions, arms and last decisions."""
    from flows.status import show_status
    from pipeline.config import load_config, load_settings

    config = load_config(configs)
    show_status(config, load_settings(config.state_dir), as_json)


@main.command()
@CONFIGS
def check(configs: Path) -> None:
    """Check a configuration folder and say what is wrong."""
    from pipeline.config import load_config
    from pipeline.dataset.suite import load_suite

    config = load_config(configs)
    for business in config.businesses.values():
        if business.suite:
            load_suite(config.directory / business.suite)
    click.echo(f"{configs}: {len(config.businesses)} businesses, all files are right")


@main.group()
def keys() -> None:
    """Make, list and revoke the API keys of applications."""


@keys.command("create")
@CONFIGS
@click.option("--name", required=True, help="Who the key is for; unique.")
@click.option("--business", "businesses", multiple=True, help="A business it may use; may be repeated.")
@click.option("--admin", is_flag=True, help="It may read and steer at the admin API's port.")
def create_key(configs: Path, name: str, businesses: tuple[str, ...], admin: bool) -> None:
    """Make a key and print it. It is kept as a hash only: there is no second look at it."""
    from pipeline.config import load_config
    from pipeline.gateway import auth

    config = load_config(configs)
    for business in businesses:
        config.business(business)
    click.echo(auth.create_key(_control(configs), name, businesses, datetime.now(UTC), admin=admin))


@keys.command("list")
@CONFIGS
def list_keys(configs: Path) -> None:
    """Show the keys: name, what it is good for, since when; never the key."""
    from pipeline.gateway import auth

    for key in auth.list_keys(_control(configs)):
        good_for = [*key.businesses, *(["(admin)"] if key.admin else [])]
        state = "in use" if key.revoked_at is None else f"revoked {key.revoked_at:%Y-%m-%d %H:%M}"
        click.echo(f"{key.name:24}  {' '.join(good_for):32}  created {key.created_at:%Y-%m-%d %H:%M}  {state}")


@keys.command("revoke")
@CONFIGS
@click.option("--name", required=True)
def revoke_key(configs: Path, name: str) -> None:
    """End a key; gateways refuse it within seconds."""
    from pipeline.gateway import auth

    auth.revoke_key(_control(configs), name, datetime.now(UTC))


def _control(configs: Path) -> Any:
    from pipeline.config import load_config
    from pipeline.control import open_control_in

    return open_control_in(load_config(configs).state_dir)


if __name__ == "__main__":
    main()
