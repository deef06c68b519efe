"""What changed from one snapshot to another: rows, their sides and weights, and why interactions were left out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pipeline.dataset.snapshot import RowKind, Snapshot
from pipeline.errors import DataError
from pipeline.records import Dropped, Example, Split, content_id

USED = "used"
"""The fate of an interaction that rows come from."""
ABSENT = "not in the window"


@dataclass(frozen=True)
class PlacedRow:
    """A row and where it stands."""

    side: Split
    kind: RowKind
    row: Example


@dataclass(frozen=True)
class SnapshotDiff:
    """From the snapshot before to the one after."""

    came: tuple[PlacedRow, ...]
    went: tuple[PlacedRow, ...]
    moved: tuple[tuple[PlacedRow, PlacedRow], ...]
    """The same row on another side."""
    reweighted: tuple[tuple[PlacedRow, PlacedRow], ...]
    """The same row with another weight."""
    fates: dict[tuple[str, str], int]
    """Interactions by what became of them before and after (a reason, `USED` or `ABSENT`), where the two differ."""


def diff_snapshots(
    before: Snapshot, before_dropped: Iterable[Dropped], after: Snapshot, after_dropped: Iterable[Dropped]
) -> SnapshotDiff:
    """Compare two snapshots of one business.

    A row is the same when its kind, its texts and the interactions that it comes from are.

    Raises:
        DataError: they are of two businesses.
    """
    one, other = before.manifest.business, after.manifest.business
    if one != other:
        raise DataError(f"snapshots of two businesses, '{one}' and '{other}', have nothing in common; name two of one")
    came, went, both = _matched(_placed(before), _placed(after))
    return SnapshotDiff(
        came=tuple(came),
        went=tuple(went),
        moved=tuple((a, b) for a, b in both if a.side != b.side),
        reweighted=tuple((a, b) for a, b in both if a.row.source.weight != b.row.source.weight),
        fates=_changed(_fates(before, before_dropped), _fates(after, after_dropped)),
    )


def _placed(snapshot: Snapshot) -> list[PlacedRow]:
    return [
        PlacedRow(side, kind, row)
        for side, rows in snapshot.rows.items()
        for kind, found in rows.by_kind().items()
        for row in found
    ]


def _matched(
    before: Sequence[PlacedRow], after: Sequence[PlacedRow]
) -> tuple[list[PlacedRow], list[PlacedRow], list[tuple[PlacedRow, PlacedRow]]]:
    """Rows that came, rows that went, and those that are in both. Equal rows are matched one to one."""
    old, new = _by_identity(before), _by_identity(after)
    came: list[PlacedRow] = []
    went: list[PlacedRow] = []
    both: list[tuple[PlacedRow, PlacedRow]] = []
    for identity in sorted(old.keys() | new.keys()):
        for a, b in zip_longest(old.get(identity, ()), new.get(identity, ())):
            if a is None:
                came.append(b)
            elif b is None:
                went.append(a)
            else:
                both.append((a, b))
    return came, went, both


def _by_identity(rows: Iterable[PlacedRow]) -> dict[str, list[PlacedRow]]:
    found: defaultdict[str, list[PlacedRow]] = defaultdict(list)
    for placed in rows:
        content = placed.row.model_dump(mode="json", exclude={"source"})
        found[content_id([placed.kind, content, sorted(placed.row.source.interaction_ids)])].append(placed)
    for same in found.values():
        same.sort(key=lambda placed: (placed.side, placed.row.source.weight))
    return found


def _fates(snapshot: Snapshot, dropped: Iterable[Dropped]) -> dict[str, str]:
    fates = {drop.interaction_id: drop.reason.value for drop in dropped}
    sources = (i for placed in _placed(snapshot) for i in placed.row.source.interaction_ids)
    return fates | dict.fromkeys(sources, USED)


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[tuple[str, str], int]:
    both = ((before.get(i, ABSENT), after.get(i, ABSENT)) for i in before.keys() | after.keys())
    counts = Counter((one, other) for one, other in both if one != other)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
