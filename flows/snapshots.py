"""`tuneloop snapshot`: datasets on a terminal, as tables and a few rows with where they come from."""

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.terminal import plain
from pipeline.clean.text import last_user_text, message_text
from pipeline.config import Config
from pipeline.dataset.catalogue import find_snapshot, list_snapshots
from pipeline.dataset.diff import PlacedRow, SnapshotDiff, diff_snapshots
from pipeline.dataset.redaction import read_redactions
from pipeline.dataset.snapshot import RowKind, Rows, Snapshot, read_dropped, read_snapshot
from pipeline.errors import DataError
from pipeline.records import Example, Message, PreferenceExample, Split, UnpairedExample, canonical_json

KINDS: tuple[RowKind, ...] = ("sft", "preference", "unpaired")
_SHORT = 8
"""Characters of an id that are enough for a person."""
_TEXT_CHARS = 400
_LINE_CHARS = 60


def list_all(config: Config, business: str) -> None:
    """Print the snapshots of a business, newest first."""
    entries = list_snapshots(_root(config), config.business(business).business)
    if not entries:
        raise DataError(f"business '{business}' has no snapshot yet; run `tuneloop nightly --business {business}`")
    table = _table("snapshot", "window ends (UTC)", "train", "held_out", "recent", "sources", "left out", "users")
    for entry in entries:
        made = entry.manifest
        if made is None:
            table.add_row(entry.snapshot_id[:_SHORT], "not readable")
            continue
        sides = (sum(made.rows.get(split, {}).values()) for split in Split)
        numbers = (*sides, made.sources, sum(made.dropped.values()), made.users)
        name = f"{entry.snapshot_id[:_SHORT]}{' redacted' if read_redactions(entry.folder) else ''}"
        table.add_row(name, f"{made.window_end:%Y-%m-%d %H:%M}", *map(str, numbers))
    Console(highlight=False, markup=False).print(table)


def show(config: Config, business: str, name: str, side: Split, examples: int) -> None:
    """Print what a snapshot holds, and the first rows of one side."""
    folder = find_snapshot(_root(config), config.business(business).business, name)
    snapshot = read_snapshot(folder)
    console = Console(highlight=False, markup=False)
    _print_summary(console, snapshot, folder)
    for one in read_redactions(folder):
        gone = _counted((split, count) for split, count in one.rows.items() if count)
        console.print(
            f"redacted {one.at:%Y-%m-%d %H:%M} UTC: rows of erased users are gone ({gone}); it trains nothing"
        )
    rows = _first_of_each_kind(snapshot.rows[side], examples)
    if examples and not rows:
        console.print(f"\nNo rows on side {side}.")
    for kind, row in rows:
        _print_row(console, PlacedRow(side, kind, row))


def diff(config: Config, business: str | None, before: str, after: str, examples: int) -> None:
    """Print what changed from one snapshot to another of the same business."""
    one, other = (_find_anywhere(config, business, name) for name in (before, after))
    found = diff_snapshots(read_snapshot(one), read_dropped(one), read_snapshot(other), read_dropped(other))
    console = Console(highlight=False, markup=False)
    console.print(f"business {one.parent.name}: from {one.name[:_SHORT]} to {other.name[:_SHORT]}")
    _print_changes(console, found)
    _print_lines(console, "came", found.came, examples)
    _print_lines(console, "went", found.went, examples)
    _print_lines(console, "moved, as it was", [row for row, _ in found.moved], examples)
    _print_lines(console, "weighted anew, as it was", [row for row, _ in found.reweighted], examples)


def _root(config: Config) -> Path:
    return config.state_dir / "snapshots"


def _find_anywhere(config: Config, business: str | None, name: str) -> Path:
    """The one snapshot of that name, of the business or of any."""
    if business is not None:
        return find_snapshot(_root(config), config.business(business).business, name)
    owners = [key for key in sorted(config.businesses) if _holds(_root(config), key, name)]
    if len(owners) == 1:
        return find_snapshot(_root(config), owners[0], name)
    if owners:
        raise DataError(f"snapshot '{name}' may be one of {' or '.join(owners)}; say which with --business")
    raise DataError(f"no business has a snapshot '{name}'; `tuneloop snapshot list --business KEY` shows them")


def _holds(root: Path, business: str, name: str) -> bool:
    return any(name == "latest" or entry.snapshot_id.startswith(name) for entry in list_snapshots(root, business))


def _print_summary(console: Console, snapshot: Snapshot, folder: Path) -> None:
    made = snapshot.manifest
    console.print(f"snapshot {made.snapshot_id} of {made.business}", soft_wrap=True)
    console.print(f"window {made.window_start:%Y-%m-%d %H:%M} to {made.window_end:%Y-%m-%d %H:%M} UTC")
    console.print(f"{folder} (CARD.md there says more)", soft_wrap=True)
    table = _table("side", *KINDS, "all")
    for split, rows in snapshot.rows.items():
        counts = [len(found) for found in rows.by_kind().values()]
        table.add_row(split, *map(str, counts), str(sum(counts)))
    console.print(table)
    left_out = sum(made.dropped.values())
    console.print(f"{made.interactions} interactions = {made.sources} sources + {left_out} left out")
    for title, counted in (("left out", made.dropped), ("signals", made.signal_counts), ("replaced", made.pii_counts)):
        console.print(f"{title}: {_counted(counted.items())}")
    console.print(f"{made.users} users; held out by {made.split_by}")


def _counted(counts: Iterable[tuple[str, int]]) -> str:
    ordered = sorted(counts, key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {times}" for name, times in ordered) or "nothing"


def _first_of_each_kind(rows: Rows, count: int) -> list[tuple[RowKind, Example]]:
    """The first of each kind, then the second, until there are so many."""
    columns = [[(kind, row) for row in found[:count]] for kind, found in rows.by_kind().items()]
    return [pair for pair in chain.from_iterable(zip_longest(*columns)) if pair is not None][:count]


def _print_row(console: Console, placed: PlacedRow) -> None:
    row = placed.row
    console.print(f"\n{placed.side} · {placed.kind} · {_lineage(row)}")
    earlier = f" (message {len(row.prompt)})" if len(row.prompt) > 1 else ""
    texts = [(f"asked{earlier}", last_user_text(row.prompt))]
    if isinstance(row, PreferenceExample):
        texts += [("better", _said(row.chosen)), ("worse", _said(row.rejected))]
    else:
        liked = "liked" if isinstance(row, UnpairedExample) and row.label else "disliked"
        texts.append((liked if isinstance(row, UnpairedExample) else "target", _said(row.completion)))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for title, text in texts:
        grid.add_row(f"  {title}", Text(plain(text, _TEXT_CHARS)))
    console.print(grid)


def _lineage(row: Example) -> str:
    source = row.source
    return " · ".join(
        (
            f"weight {source.weight:g}",
            f"{_many(len(source.event_ids), 'event')} of {_many(len(source.user_keys), 'user')}",
            f"answered by {plain(', '.join(source.model_versions), _TEXT_CHARS)}",
            f"{source.at:%Y-%m-%d %H:%M} UTC",
        )
    )


def _print_changes(console: Console, found: SnapshotDiff) -> None:
    table = _table("rows", *Split)
    for title, rows in (("came", found.came), ("went", found.went)):
        table.add_row(title, *(str(sum(placed.side is split for placed in rows)) for split in Split))
    console.print(table)
    sides = sorted({(a.side, b.side) for a, b in found.moved})
    for one, other in sides:
        times = sum((a.side, b.side) == (one, other) for a, b in found.moved)
        console.print(f"{_many(times, 'row')} moved from {one} to {other}")
    if found.reweighted:
        console.print(f"{_many(len(found.reweighted), 'row')} with another weight")
    if found.fates:
        fates = _table("interactions that were", "are now", "times")
        for (before, after), times in found.fates.items():
            fates.add_row(before, after, str(times))
        console.print(fates)
    if not (found.came or found.went or found.moved or found.reweighted or found.fates):
        console.print("Nothing differs.")


def _print_lines(console: Console, title: str, rows: Sequence[PlacedRow], count: int) -> None:
    if not rows or not count:
        return
    console.print(f"\n{title}: {min(count, len(rows))} of {len(rows)}")
    for placed in rows[:count]:
        weight = f"{placed.row.source.weight:g}"
        asked = plain(last_user_text(placed.row.prompt), _LINE_CHARS).replace("\n", " ")
        console.print(Text(f"  {placed.side} · {placed.kind} · weight {weight} · {asked}"))


def _said(messages: Sequence[Message]) -> str:
    """The text of an answer, and its tool calls where it makes some."""
    calls = [canonical_json(message["tool_calls"]) for message in messages if message.get("tool_calls")]
    return "\n".join([*filter(None, map(message_text, messages)), *calls])


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))  # the widest fits into 80 columns
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at == 0 else "right", overflow="fold")
    return table
