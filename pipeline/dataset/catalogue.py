"""Which snapshots there are, and the one that somebody means."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.dataset.snapshot import read_manifest
from pipeline.errors import DataError
from pipeline.records import SnapshotManifest

LATEST = "latest"
"""Names the snapshot whose window ends last."""
_NAMED = 6
"""As many candidates are named when the beginning of an id fits several."""


@dataclass(frozen=True)
class Entry:
    """One folder of a business's snapshots."""

    folder: Path
    manifest: SnapshotManifest | None
    """None where it cannot be read any more."""

    @property
    def snapshot_id(self) -> str:
        return self.folder.name


def list_snapshots(root: Path, business: str) -> list[Entry]:
    """All snapshots of a business, the one whose window ends last first; what cannot be read comes last."""
    folder = root / business
    names = sorted(path for path in folder.iterdir() if _is_snapshot(path)) if folder.is_dir() else []
    entries = [_entry(path) for path in names]
    readable = [entry for entry in entries if entry.manifest]
    readable.sort(key=lambda entry: (_end(entry), entry.snapshot_id), reverse=True)
    return readable + [entry for entry in entries if not entry.manifest]


def find_snapshot(root: Path, business: str, name: str) -> Path:
    """The folder of the snapshot that is named by its id, by the beginning of its id, or as `latest`.

    Raises:
        DataError: there is none, or there are several.
    """
    entries = list_snapshots(root, business)
    if not entries:
        raise DataError(
            f"business '{business}' has no snapshot in {root / business}; run `tuneloop nightly --business {business}`"
        )
    look = f"`tuneloop snapshot list --business {business}` shows them"
    if name == LATEST:
        if entries[0].manifest is None:
            raise DataError(f"business '{business}' has no readable snapshot in {root / business}; build one again")
        return entries[0].folder
    fitting = [entry for entry in entries if name and entry.snapshot_id.startswith(name.lower())]
    if not fitting:
        raise DataError(f"business '{business}' has no snapshot '{name}' in {root / business}; {look}")
    if len(fitting) > 1:
        some = ", ".join(entry.snapshot_id[: len(name) + 4] for entry in fitting[:_NAMED])
        raise DataError(f"snapshot '{name}' of business '{business}' is one of {len(fitting)}: {some}; give more of it")
    return fitting[0].folder


def _is_snapshot(path: Path) -> bool:
    """Not what a write that was killed left behind."""
    return path.is_dir() and not path.name.startswith(".")


def _entry(path: Path) -> Entry:
    try:
        return Entry(path, read_manifest(path))
    except DataError:
        return Entry(path, None)


def _end(entry: Entry) -> float:
    return entry.manifest.window_end.timestamp() if entry.manifest else 0.0
