"""`tuneloop reports`: the links that business owners open."""

from pathlib import Path

import click

from flows.options import CONFIGS


@click.command()
@CONFIGS
def reports(configs: Path) -> None:
    """Print each business's link to its decisions and rollouts.

    Whoever has a link reads that business's pages, in English and Chinese, and no other's. Links stay the same until
    TUNELOOP_REPORT_SECRET changes. The pages lie in the state folder, too: reports/BUSINESS/index.html.
    """
    from flows.controller.api import report_token
    from pipeline.config import load_config, load_settings

    config = load_config(configs)
    secret = load_settings(config.state_dir).report_secret.get_secret_value()
    address = config.system.controller
    for name, business in sorted(config.businesses.items()):
        link = f"http://{address.host}:{address.port}/reports/{name}?token={report_token(secret, name)}"
        click.echo(f"{business.title}: {link}")
