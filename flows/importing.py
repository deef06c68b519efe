"""`tuneloop import`: what it says of itself; `flows.import_file` does it and is imported then."""

import sys
from pathlib import Path

import click

from flows.options import BUSINESS, CONFIGS
from pipeline.collect.importers import GENERIC_FORM, TOOLS


def _tools(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value not in TOOLS:
        raise click.BadParameter(f"no tool '{value}'; known: {', '.join(TOOLS)}")
    return value


class _Import(click.Command):
    """Its help ends with an example of each tool."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Tools, and an example of each"):
            for name, tool in TOOLS.items():
                formatter.write_text(f"{tool.title}: {tool.where}")
                formatter.write(f"    tuneloop import {name} {tool.example} --business support\n")
        with formatter.section("The generic form: names of fields or columns"):
            for line in GENERIC_FORM.splitlines():
                formatter.write(f"  {line}\n")


@click.command("import", cls=_Import)
@click.argument("tool", callback=_tools)
@click.argument("file", type=click.Path(path_type=Path))
@CONFIGS
@BUSINESS
@click.option(
    "--timezone", default="UTC", show_default=True, help="Of times in the file that name none: Asia/Shanghai."
)
@click.option("--score", "scores", multiple=True, help="Name of a score that users gave; may be repeated.")
@click.option(
    "--scale", help="Lowest and highest value of a score, such as 1:10; without it only 1, 0 and -1 are votes."
)
@click.option("--encoding", help="Of a file that is not UTF-8, such as gb18030.")
def import_(
    configs: Path,
    tool: str,
    file: Path,
    business: str,
    timezone: str,
    scores: tuple[str, ...],
    scale: str | None,
    encoding: str | None,
) -> None:
    """Import feedback that lies in another tool; the same file again changes nothing.

    Ends with what became of everything: stored, already there, refused and why, joined or not. Exits with 1 when
    something of the file was damaged; the rest is stored all the same, and the mended file can be imported again.
    """
    from flows.import_file import import_file
    from pipeline.config import load_config, load_settings

    config = load_config(configs)
    settings = load_settings(config.state_dir)
    totals = import_file(
        config, settings, tool, file, business, timezone=timezone, scores=scores, scale=scale, encoding=encoding
    )
    sys.exit(1 if totals.damaged else 0)
