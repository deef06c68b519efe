"""`tuneloop compare`: what it says of itself; `flows.compare` does it and is imported then."""

import sys
from pathlib import Path
from typing import Any

import click

from flows.options import CONFIGS


@click.command()
@click.option("--baseline", required=True, metavar="URL[#ADAPTER]", help="What is in service.")
@click.option("--candidate", required=True, metavar="URL[#ADAPTER]", help="What may replace it.")
@click.option(
    "--suite",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Golden suite. Default: the business's own.",
)
@CONFIGS
@click.option(
    "--business", help="Whose gate, suite, language and rules of personal data count. Default: built-in ones."
)
@click.option(
    "--snapshot", help="Ask the held-out questions of this snapshot of the business, too: its id, or `latest`."
)
@click.option(
    "--goal",
    type=click.Choice(["not_worse", "better"]),
    default="not_worse",
    show_default=True,
    help="not_worse: for a change of serving. better: for an adapter.",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0),
    help="How much worse the primary metric may be (default 0.02), or how much better it must be (default 0).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("compare.html"),
    show_default=True,
    help="Where the report goes.",
)
@click.option(
    "--work-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep answers here: a comparison that was killed goes on. Take a new folder when an engine was changed.",
)
@click.option(
    "--key-file", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="Holds the engines' API key."
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=4, show_default=True, help="Requests in flight at once."
)
def compare(**wanted: Any) -> None:
    """Put any two endpoints through the gate: an adapter, a new engine version, a quantised base, an fp8 KV cache.

    Both answer the same questions with the same seed; the page says what differs and how sure that is. An endpoint is
    an engine's URL and the name of an adapter on it; without a name it is the base model that the engine serves.

    \b
    A serving change:  tuneloop compare --baseline http://old:8000 --candidate http://new:8000 --suite support.yaml
    An adapter:        tuneloop compare --goal better --business support --snapshot latest \\
                         --baseline http://e:8000#support-v6-1a2b3c4d --candidate http://e:8000#support-v7-5e6f7a8b

    \b
    Exit code:  0 promote: shown to be good enough
                1 reject: shown to be worse than allowed
                2 the comparison could not be made, or was asked for wrongly
                3 inconclusive: too little evidence; the report says what could have been found

    Too few questions (below `gate.min_users`, 30 without a business) never promote: each golden question counts as one
    user.
    """
    from flows.compare import Comparison, run_comparison

    sys.exit(run_comparison(Comparison(**wanted)))
