"""Figures as Markdown tables, and goals as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from tests.benchmarks.rows import Row

NONE = "–"
"""What stands where nothing was measured."""


def rows_table(rows: Sequence[Row]) -> str:
    """What was promised, and whether it holds."""
    lines = [
        (
            row.metric + ("*" if row.contended else ""),
            number(row.ours),
            number(row.peer),
            number(row.ratio),
            row.goal,
            {True: "met", False: "**missed**", None: NONE}[row.met],
        )
        for row in rows
    ]
    return table(("", "tuneloop", "peer", "ratio", "goal", ""), lines) if lines else ""


def shown(rows: Sequence[Row]) -> Table:
    """The same for whoever waits at the terminal."""
    made = Table("", "tuneloop", "peer", "ratio", "goal", "")
    for row in rows:
        met = {True: "[green]met", False: "[red]missed", None: ""}[row.met] + (" (contended)" if row.contended else "")
        made.add_row(row.metric, number(row.ours), number(row.peer), number(row.ratio), row.goal, met)
    return made


def number(value: float | None) -> str:
    """Three significant digits are all that such measurements carry."""
    if value is None:
        return NONE
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Markdown with its first column to the left and figures to the right."""
    align = ["---", *["---:"] * (len(headings) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, align, *lines))
