"""Options that several commands share."""

from pathlib import Path

import click

CONFIGS = click.option(
    "--configs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("configs"),
    envvar="TUNELOOP_CONFIGS",
    show_default=True,
    help="Configuration folder: tuneloop.yaml, businesses/, suites/.",
)
BUSINESS = click.option("--business", required=True, help="The business's key, such as support.")
REASON = click.option("--reason", required=True, help="Why; goes to the audit trail.")
