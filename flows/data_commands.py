"""The commands that look at data: `tuneloop snapshot`, `tuneloop pii`. Their work is in modules imported late."""

import sys
from pathlib import Path

import click

from flows.options import BUSINESS, CONFIGS

_EXAMPLES = click.option(
    "--examples", type=click.IntRange(0, 1000), default=3, show_default=True, help="How many rows to show."
)


@click.group()
def snapshot() -> None:
    """Look at the datasets that adapters are trained on.

    \b
    A snapshot is one immutable folder, named by a hash over its rows. Personal data in it is replaced already.
      tuneloop snapshot list --business support            which there are
      tuneloop snapshot show --business support            the latest: counts, reasons, a few rows
      tuneloop snapshot diff 3f2a latest --business support   what changed since
      tuneloop snapshot duplicates --business support      what was taken for the same, and what stays of it
      tuneloop snapshot inspect --business support         rows as the trainer gets them, learned tokens marked
    CARD.md in its folder is the data card. An id may be cut to its first characters.
    """


@snapshot.command("list")
@CONFIGS
@BUSINESS
def list_snapshots(configs: Path, business: str) -> None:
    """Show a business's snapshots, newest first: rows by side, interactions used and left out, users."""
    from flows import snapshots
    from pipeline.config import load_config

    snapshots.list_all(load_config(configs), business)


@snapshot.command()
@click.argument("name", metavar="[ID|latest]", default="latest")
@CONFIGS
@BUSINESS
@click.option(
    "--side",
    type=click.Choice(["train", "held_out", "recent"]),
    default="train",
    show_default=True,
    help="Which rows to show.",
)
@_EXAMPLES
def show(name: str, configs: Path, business: str, side: str, examples: int) -> None:
    """Show what a snapshot holds, and a few rows with where they come from.

    A row's lineage is its weight, how many feedback events of how many users it rests on, the model version that
    answered, and when. `latest` is the snapshot whose window ends last.
    """
    from flows import snapshots
    from pipeline.config import load_config
    from pipeline.records import Split

    snapshots.show(load_config(configs), business, name, Split(side), examples)


@snapshot.command()
@click.argument("name", metavar="[ID|latest]", default="latest")
@CONFIGS
@BUSINESS
@_EXAMPLES
def inspect(name: str, configs: Path, business: str, examples: int) -> None:
    """Show training rows as the trainer gets them: rendered by the base model's chat template, cut to max_length.

    What is only read is dim, what is learned green, what a pair or a thumb down teaches away from red. A row that is
    not trained on says why.
    """
    from flows import inspection
    from pipeline.config import load_config

    inspection.inspect(load_config(configs), business, name, examples)


@snapshot.command()
@click.argument("name", metavar="[ID|latest]", default="latest")
@CONFIGS
@BUSINESS
@click.option(
    "--clusters", type=click.IntRange(0), default=10, show_default=True, help="How many to show, largest first."
)
@click.option("--of", metavar="INTERACTION", help="Show the cluster that this interaction is in.")
def duplicates(name: str, configs: Path, business: str, clusters: int, of: str | None) -> None:
    """Show which interactions were taken for duplicates, which one stays, and why.

    \b
    Of a cluster the interaction with the strongest evidence stays: an outcome before an edit before a choice before a
    vote, then what more users say of the same text, then the earliest.
      exact   the same answer, question, edit and earlier turns, but for width, script, case, spaces and punctuation
      near    each of them nearly the same (dataset.near_duplicate_threshold of the business)
    Texts that differ in a number, a name or a "not" are no duplicates, however alike they are.
    """
    from flows import duplicates as clusters_of
    from pipeline.config import load_config

    clusters_of.show(load_config(configs), business, name, clusters, of)


@snapshot.command()
@click.argument("before", metavar="ID")
@click.argument("after", metavar="ID")
@CONFIGS
@click.option("--business", help="The business's key; needed only where the ids leave it open, as `latest` does.")
@_EXAMPLES
def diff(before: str, after: str, configs: Path, business: str | None, examples: int) -> None:
    """Show what changed from one snapshot to another.

    Rows that came and went, rows that changed side or weight, and interactions that are used or left out for another
    reason than before. A row is the same when its kind, its texts and its interactions are.
    """
    from flows import snapshots
    from pipeline.config import load_config

    snapshots.diff(load_config(configs), business, before, after, examples)


@click.group()
def pii() -> None:
    """Look at how personal data is found and replaced."""


@pii.command()
@click.argument("text")
@CONFIGS
@click.option("--business", help="Explain with its language and its `pii` section; default: by the text's script.")
def explain(text: str, configs: Path, business: str | None) -> None:
    """Show what is found in TEXT, by which rule, how sure it is, and what would stand there instead.

    \b
      tuneloop pii explain "我叫李秀兰，电话13912345678" --business kefu
      tuneloop pii explain - < letter.txt
    `-` reads the text from standard input, which keeps it out of the shell's history. The text is neither stored nor
    logged. What a business calls its own (`pii.allow`) is shown as left alone.
    """
    from flows import personal_data
    from pipeline.config import load_config

    given = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    about = load_config(configs).business(business) if business else None
    personal_data.explain_text(given, about)
