"""Erased users taken out of a snapshot that exists. The folder keeps its id, as a tombstone of what it was.

`redactions.json` is written first: whoever finds it knows that the rows are fewer than the id stands for. Such a
snapshot can be looked at and measured on, but not trained on: an adapter's id would promise rows that it never saw.
"""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pipeline.dataset.card import render_card
from pipeline.dataset.snapshot import (
    KINDS,
    REASON_USERS,
    Rows,
    manifest_text,
    read_dropped,
    read_snapshot,
    rows_file,
    write_text,
)
from pipeline.erase.erased import Erased, Kind, digest
from pipeline.errors import DataError
from pipeline.records import Dropped, Example, Record, Redaction, SnapshotManifest, Split
from pipeline.tables import sync_folder, write_records

_FILE = "redactions.json"
_REDACTIONS = TypeAdapter(tuple[Redaction, ...])


def read_redactions(folder: Path) -> tuple[Redaction, ...]:
    """What erasures took out of a snapshot, oldest first; empty when it is as it was built.

    Raises:
        DataError: the file that says so cannot be read.
    """
    try:
        return _REDACTIONS.validate_json((folder / _FILE).read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError) as error:
        raise DataError(f"{folder / _FILE}: not readable ({type(error).__name__}); restore it from a backup") from error


def rows_to_go(folder: Path, erased: Erased) -> dict[Split, int]:
    """How many rows of each side an erasure would take out."""
    snapshot = read_snapshot(folder)
    return {
        split: sum(erased.row(snapshot.manifest.business, row.source) for row in rows.all())
        for split, rows in snapshot.rows.items()
    }


def redact(folder: Path, erased: Erased, erasure_id: str, now: datetime) -> Redaction | None:
    """Take out of a snapshot what is erased; None when there is, and was, nothing of it.

    May be killed at any point and called again; what it tells then is what the first call found.

    Raises:
        DataError: the folder is no snapshot.
    """
    snapshot, dropped = read_snapshot(folder), read_dropped(folder)
    business = snapshot.manifest.business
    earlier = read_redactions(folder)
    mine = next((one for one in earlier if one.erasure_id == erasure_id), None)
    going = {
        split: [row for row in rows.all() if erased.row(business, row.source)] for split, rows in snapshot.rows.items()
    }
    left = [_forgetting(drop, business, erased) for drop in dropped if not _goes(drop, business, erased)]
    if mine is None and not any(going.values()) and left == dropped:
        quoted = _reasons_left(snapshot.manifest, erased)
        if quoted != snapshot.manifest.reasons:  # said of somebody else's answer: every row is still there
            told = snapshot.manifest.model_copy(update={"reasons": quoted})
            _replace(folder / "manifest.json", manifest_text(told))
        return None
    if mine is None:
        mine = Redaction(
            erasure_id=erasure_id,
            at=now,
            rows={split: len(rows) for split, rows in going.items()},
            users=_users(business, [row for rows in going.values() for row in rows]),
        )
        earlier = (*earlier, mine)
        _replace(folder / _FILE, json.dumps([one.model_dump(mode="json") for one in earlier], indent=2))
    kept = {
        split: _without(rows, lambda row: erased.row(business, row.source)) for split, rows in snapshot.rows.items()
    }
    for split, rows in kept.items():
        for kind, found in rows.by_kind().items():
            if len(found) < len(snapshot.rows[split].by_kind()[kind]):
                records: list[Record] = list(found)
                write_records(rows_file(folder, split, kind), KINDS[kind], records)
    if left != dropped:
        write_records(folder / "dropped.parquet", Dropped, left)
    manifest = _recounted(snapshot.manifest, kept, left, erased)
    card = render_card(manifest, {split: rows.all() for split, rows in kept.items()}, left)
    _replace(folder / "CARD.md", card + _told(earlier))
    _replace(folder / "manifest.json", manifest_text(manifest))
    for half in folder.glob(".*.tmp"):
        half.unlink()  # of a call that was killed
    return mine


def _goes(drop: Dropped, business: str, erased: Erased) -> bool:
    return erased.has(business, Kind.INTERACTION, drop.interaction_id)


def _forgetting(drop: Dropped, business: str, erased: Erased) -> Dropped:
    """A duplicate no longer says which interaction stayed in its place when that one is erased."""
    gone = erased.has(business, Kind.INTERACTION, drop.kept)
    return drop.model_copy(update={"kept": None, "detail": ""}) if gone else drop


def _without(rows: Rows, goes: Callable[[Example], bool]) -> Rows:
    return Rows(
        sft=tuple(row for row in rows.sft if not goes(row)),
        preference=tuple(row for row in rows.preference if not goes(row)),
        unpaired=tuple(row for row in rows.unpaired if not goes(row)),
    )


def _users(business: str, rows: list[Example]) -> tuple[str, ...]:
    return tuple(sorted({digest(business, Kind.USER, key) for row in rows for key in row.source.user_keys}))


def _reasons_left(manifest: SnapshotManifest, erased: Erased) -> dict[str, tuple[str, ...]]:
    """Reasons that enough others gave as well."""
    left = {
        text: tuple(user for user in users if not erased.has(manifest.business, Kind.USER, user))
        for text, users in manifest.reasons.items()
    }
    return {text: users for text, users in left.items() if len(users) >= REASON_USERS}


def _recounted(
    manifest: SnapshotManifest, kept: dict[Split, Rows], left: list[Dropped], erased: Erased
) -> SnapshotManifest:
    """The manifest of what is left. Counts of signals and of personal data name nobody and stay as they were."""
    rows = [row for side in kept.values() for row in side.all()]
    counts = {split: {kind: len(found) for kind, found in side.by_kind().items()} for split, side in kept.items()}
    sources = {interaction_id for row in rows for interaction_id in row.source.interaction_ids}
    return manifest.model_copy(
        update={
            "rows": counts,
            "interactions": len(sources) + len(left),
            "sources": len(sources),
            "dropped": dict(sorted(Counter(drop.reason for drop in left).items())),
            "reasons": _reasons_left(manifest, erased),
            "users": len({user for row in rows for user in row.source.user_keys}),
        }
    )


def _told(redactions: tuple[Redaction, ...]) -> str:
    lines = [
        f"- {one.at:%Y-%m-%d %H:%M} UTC, erasure `{one.erasure_id[:8]}`: "
        + ", ".join(f"{count} of {split}" for split, count in one.rows.items())
        for one in redactions
    ]
    return (
        "\n## Redacted\n\nRows of erased users were taken out. The id is that of all the rows that there were; nothing "
        "is trained on this snapshot any more. Signals and personal data are counted as they were.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def _replace(path: Path, text: str) -> None:
    """Write a file so that it is there whole, or as it was."""
    draft = path.with_name(f".{path.name}.tmp")
    write_text(draft, text)
    draft.replace(path)
    sync_folder(path.parent)
