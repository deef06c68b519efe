"""The command `tuneloop import`: reads with a progress bar, stores, and says what became of everything in the file."""

import codecs
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from importlib import import_module
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pipeline.collect.importers import TOOLS
from pipeline.collect.importers.make import Make
from pipeline.collect.importers.source import Source
from pipeline.collect.importers.store import Totals, store
from pipeline.config import Config, Settings
from pipeline.control import open_control_in
from pipeline.erase.ledger import ErasureLedger
from pipeline.errors import ConfigError, DataError
from pipeline.gateway.ids import Ids

_SHOWN = 20
"""Refused parts that are printed one by one."""
_TICKS = 200


def import_file(
    config: Config,
    settings: Settings,
    tool: str,
    path: Path,
    business: str,
    *,
    timezone: str = "UTC",
    scores: tuple[str, ...] = (),
    scale: str | None = None,
    encoding: str | None = None,
    console: Console | None = None,
) -> Totals:
    """Import a file into a business's event log and print what became of it.

    Raises:
        ConfigError: no such business, time zone, scale or encoding; or another import of this tool is at work.
        DataError: there is no such file, or it cannot be read or stored.
    """
    config.business(business)
    make = Make(
        tool=tool,
        business=business,
        ids=Ids(settings.user_salt.get_secret_value()),
        zone=read_zone(timezone),
        now=datetime.now(UTC),
        scores=frozenset(scores),
        scale=read_scale(scale),
    )
    if not path.exists():
        raise DataError(f"{path}: no such file")
    console = console or Console()
    source = Source(path, read_encoding(encoding))
    items = import_module(TOOLS[tool].module).read(source, make)
    erased = ErasureLedger(open_control_in(config.state_dir)).erased()
    try:
        with _Bar(source, console) as tick:
            totals = store(items, make, config.state_dir / "events", tick, erased)
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror or error}; nothing is lost: mend it and run the same again"
        ) from error
    show(totals, source, make, console, timezone)
    return totals


class _Bar:
    """A bar over the bytes of the file, on a terminal; nothing elsewhere."""

    def __init__(self, source: Source, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._source = source

    def __enter__(self) -> Callable[[], None]:
        bar = self._bar.__enter__()
        task = bar.add_task(self._source.path.name, total=self._source.size)
        count = 0

        def tick() -> None:
            nonlocal count
            count += 1
            if count % _TICKS == 0:
                bar.update(task, completed=self._source.position)

        return tick

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def show(totals: Totals, source: Source, make: Make, console: Console, timezone: str) -> None:
    """The closing table, and the first of the refused parts with their places."""
    table = Table(title=f"{source.path.name} → {make.business}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    repeated = f"{totals.repeated} of them said again in this file" if totals.repeated else ""
    table.add_row("read", str(totals.read), f"times without a zone: {timezone}")
    table.add_row("stored", str(totals.stored), f"{totals.interactions} interactions, {totals.feedback} feedback")
    table.add_row("already there", str(totals.there + totals.repeated), repeated)
    table.add_row("refused", str(totals.refused.total()), "")
    for reason, count in sorted(totals.refused.items()):
        table.add_row(f"  {reason.value}", str(count), "")
    table.add_section()
    table.add_row("feedback joined", str(totals.joined), "to an interaction in the log")
    unjoined = totals.unjoined
    share = f"{unjoined / (totals.joined + unjoined):.0%} of the feedback" if unjoined else ""
    table.add_row("could not be joined", str(unjoined), share and f"{share}: kept, and joined when the answers come")
    if source.repaired:
        table.add_row("texts repaired", str(source.repaired), "half a surrogate pair became U+FFFD")
    console.print(table)
    for refusal in totals.refusals[:_SHOWN]:
        line = f"{refusal.place or 'somewhere'}: {refusal.reason.value}" + (
            f" ({refusal.detail})" if refusal.detail else ""
        )
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if (more := totals.refused.total() - len(totals.refusals[:_SHOWN])) > 0:
        console.print(f"… and {more} more", markup=False, highlight=False)


def read_zone(name: str) -> tzinfo:
    """A time zone by its name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"--timezone: '{name}' is no time zone; write one such as Asia/Shanghai") from error


def read_scale(text: str | None) -> tuple[float, float] | None:
    """`1:10` as its two ends."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        low = high = 0.0
    if not low < high < float("inf"):
        raise ConfigError(f"--scale: '{text}' is no scale; write its lowest and highest value, such as 1:10")
    return low, high


def read_encoding(name: str | None) -> str | None:
    """An encoding that Python knows."""
    try:
        return name and codecs.lookup(name).name
    except LookupError as error:
        raise ConfigError(f"--encoding: '{name}' is no encoding; write one such as gb18030") from error
