"""An immutable dataset: one folder, named by a hash over its rows.

The hash is over canonical rows, not over Parquet bytes and not over the time or the rows that were left out: the same
rows are the same snapshot on every machine and on every night, and are trained on once.
"""

import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pipeline.dataset.card import render_card
from pipeline.dataset.split import SplitRows
from pipeline.errors import DataError
from pipeline.records import (
    CleanRecord,
    Dropped,
    Example,
    PreferenceExample,
    RatedInteraction,
    Record,
    SftExample,
    SnapshotManifest,
    Split,
    UnpairedExample,
    canonical_json,
    content_id,
)
from pipeline.tables import read_records, sync_folder, write_records

log = logging.getLogger(__name__)

RowKind = Literal["sft", "preference", "unpaired"]


@dataclass(frozen=True)
class Rows:
    """The rows of one side, by kind, in canonical order."""

    sft: tuple[SftExample, ...] = ()
    preference: tuple[PreferenceExample, ...] = ()
    unpaired: tuple[UnpairedExample, ...] = ()

    def by_kind(self) -> dict[RowKind, tuple[Example, ...]]:
        return {"sft": self.sft, "preference": self.preference, "unpaired": self.unpaired}

    def all(self) -> tuple[Example, ...]:
        return (*self.sft, *self.preference, *self.unpaired)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot in memory."""

    manifest: SnapshotManifest
    rows: dict[Split, Rows]


_REASONS = 10
REASON_USERS = 3
"""A reason that fewer users give could tell who one of them is."""
KINDS: dict[RowKind, type[SftExample] | type[PreferenceExample] | type[UnpairedExample]] = {
    "sft": SftExample,
    "preference": PreferenceExample,
    "unpaired": UnpairedExample,
}


def write_snapshot(
    root: Path,
    *,
    business: str,
    window: tuple[datetime, datetime],
    rated: Sequence[RatedInteraction],
    clean: Sequence[CleanRecord],
    dropped: Sequence[Dropped],
    rows: SplitRows,
) -> SnapshotManifest:
    """Write the folder `<root>/<business>/<snapshot_id>`.

    It holds a Parquet file `<side>_<kind>.parquet` for each side and kind, `dropped.parquet`, `manifest.json` and the
    data card `CARD.md`.

    The folder is there whole, or not at all. Where it is there already nothing is written, and the manifest that
    stands in it is returned; one that does not read, of an older format, is written anew.

    Args:
        root: folder of all snapshots.
        business: its key.
        window: start and end (exclusive) of the interactions.
        rated: every interaction of the window.
        clean: what was left of them after cleaning; their counts of personal data and the reasons that users gave.
        dropped: everything that was left out, by whatever step.
        rows: what is kept.

    Raises:
        DataError: an interaction is neither a source nor dropped, or is both, or was dropped twice.
    """
    sides = {
        Split.TRAIN: _canonical(rows.train),
        Split.HELD_OUT: _canonical(rows.held_out),
        Split.RECENT: _canonical(rows.recent),
    }
    examples = [*rows.train, *rows.held_out, *rows.recent]
    sources = {interaction_id for example in examples for interaction_id in example.source.interaction_ids}
    check_sums(business, {r.interaction.interaction_id for r in rated}, sources, dropped)
    signals = [signal for one in rated for signal in one.signals if signal.value is not None]
    manifest = SnapshotManifest(
        snapshot_id=_snapshot_id(business, sides),
        business=business,
        window_start=window[0],
        window_end=window[1],
        rows={split: {kind: len(found) for kind, found in side.by_kind().items()} for split, side in sides.items()},
        interactions=len({r.interaction.interaction_id for r in rated}),
        sources=len(sources),
        dropped=dict(sorted(Counter(d.reason for d in dropped).items())),
        pii_counts=dict(sorted(sum((Counter(c.pii_counts) for c in clean), Counter()).items())),
        signal_counts=dict(sorted(Counter(signal.kind for signal in signals).items())),
        praise=dict(sorted(Counter(signal.kind for signal in signals if signal.sign > 0).items())),
        blame=dict(sorted(Counter(signal.kind for signal in signals if signal.sign < 0).items())),
        reasons=_frequent_reasons(clean),
        users=len({user for example in examples for user in example.source.user_keys}),
        split_by=rows.split_by,
    )
    folder = root / business / manifest.snapshot_id
    if standing := _standing(folder):
        return standing
    _write(folder, manifest, sides, dropped)
    return manifest


def check_sums(business: str, interactions: set[str], sources: set[str], dropped: Sequence[Dropped]) -> None:
    """Each interaction is a source of a kept row, or was dropped for exactly one reason.

    Raises:
        DataError: says how many are not, and names one.
    """
    left_out = Counter(d.interaction_id for d in dropped)
    wrongs = {
        "neither kept nor dropped": interactions - sources - left_out.keys(),
        "both kept and dropped": sources & left_out.keys(),
        "dropped more than once": {i for i, times in left_out.items() if times > 1},
        "not in the window": (sources | left_out.keys()) - interactions,
    }
    for what, ids in wrongs.items():
        if ids:
            raise DataError(
                f"business '{business}': {len(ids)} interactions are {what}, such as '{min(ids)}'; no snapshot was "
                "written, a step of the build does not account for what it leaves out"
            )


def read_snapshot(folder: Path) -> Snapshot:
    """Read a snapshot.

    Raises:
        DataError: the folder is no snapshot.
    """
    manifest = read_manifest(folder)
    rows = {
        split: Rows(
            sft=tuple(read_records(rows_file(folder, split, "sft"), SftExample)),
            preference=tuple(read_records(rows_file(folder, split, "preference"), PreferenceExample)),
            unpaired=tuple(read_records(rows_file(folder, split, "unpaired"), UnpairedExample)),
        )
        for split in Split
    }
    return Snapshot(manifest, rows)


def read_manifest(folder: Path) -> SnapshotManifest:
    """Read what a snapshot holds, without its rows.

    Raises:
        DataError: the folder is no snapshot.
    """
    try:
        return SnapshotManifest.model_validate_json((folder / "manifest.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(f"{folder}: no readable snapshot ({type(error).__name__}); build it again") from error


def read_dropped(folder: Path) -> list[Dropped]:
    """What was left out of a snapshot, and why."""
    return read_records(folder / "dropped.parquet", Dropped)


def _standing(folder: Path) -> SnapshotManifest | None:
    """The snapshot that is there already; one that does not read makes room."""
    if not folder.is_dir():
        return None
    try:
        return read_manifest(folder)
    except DataError as error:  # its id says which rows it held: nothing is lost
        log.warning("%s; it is written anew", error)
        shutil.rmtree(folder)
        return None


def _frequent_reasons(clean: Sequence[CleanRecord]) -> dict[str, tuple[str, ...]]:
    """Told apart by case and outer spaces no more than people do, and shown as most of them write it."""
    spellings: dict[str, Counter[str]] = {}
    users: dict[str, set[str]] = {}
    for record in clean:
        for signal in record.signals:
            if signal.reason and signal.value is not None and signal.user_key is not None:
                written = " ".join(signal.reason.split())
                spellings.setdefault(written.casefold(), Counter())[written] += 1
                users.setdefault(written.casefold(), set()).add(signal.user_key)
    frequent = [key for key, who in users.items() if key and len(who) >= REASON_USERS]
    frequent.sort(key=lambda key: (-len(users[key]), key))
    shown = {key: min(spellings[key], key=lambda text: (-spellings[key][text], text)) for key in frequent}
    return {shown[key]: tuple(sorted(users[key])) for key in frequent[:_REASONS]}


def _snapshot_id(business: str, sides: Mapping[Split, Rows]) -> str:
    return content_id(
        {
            "business": business,
            "rows": {
                f"{split}/{kind}": [example.model_dump(mode="json") for example in found]
                for split, side in sides.items()
                for kind, found in side.by_kind().items()
            },
        }
    )


def _canonical(examples: Iterable[Example]) -> Rows:
    ordered = sorted(examples, key=lambda example: canonical_json(example.model_dump(mode="json")))
    return Rows(
        sft=tuple(e for e in ordered if isinstance(e, SftExample)),
        preference=tuple(e for e in ordered if isinstance(e, PreferenceExample)),
        unpaired=tuple(e for e in ordered if isinstance(e, UnpairedExample)),
    )


def _write(folder: Path, manifest: SnapshotManifest, sides: Mapping[Split, Rows], dropped: Sequence[Dropped]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = folder.with_name(f".{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)  # left by a run that was killed
    half.mkdir(mode=0o700)
    for split, side in sides.items():
        for kind, found in side.by_kind().items():
            rows: list[Record] = list(found)
            write_records(rows_file(half, split, kind), KINDS[kind], rows)
    write_records(half / "dropped.parquet", Dropped, sorted(dropped, key=lambda d: d.interaction_id))
    card = render_card(manifest, {split: side.all() for split, side in sides.items()}, dropped)
    write_text(half / "CARD.md", card)
    write_text(half / "manifest.json", manifest_text(manifest))
    sync_folder(half)
    half.rename(folder)
    sync_folder(folder.parent)


def manifest_text(manifest: SnapshotManifest) -> str:
    """The manifest as it stands in its file."""
    return json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=2, sort_keys=True)


def write_text(path: Path, text: str) -> None:
    """Write a file to disk, durably."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def rows_file(folder: Path, split: Split, kind: RowKind) -> Path:
    """Where the rows of one side and kind stand."""
    return folder / f"{split}_{kind}.parquet"
