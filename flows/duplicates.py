"""`tuneloop snapshot duplicates`: which interactions were taken for the same, which one stays, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from pipeline.config import Config
from pipeline.dataset.catalogue import find_snapshot
from pipeline.dataset.snapshot import read_dropped
from pipeline.errors import DataError
from pipeline.records import Dropped

_SHORT = 8


def show(config: Config, business: str, name: str, clusters: int, of: str | None) -> None:
    """Print a snapshot's clusters of duplicates, largest first.

    Args:
        name: of the snapshot.
        clusters: how many to print.
        of: print only the cluster that this interaction is in.

    Raises:
        DataError: there is no such snapshot, or `of` is in no cluster of it.
    """
    folder = find_snapshot(config.state_dir / "snapshots", config.business(business).business, name)
    found = _clusters(read_dropped(folder))
    if of is not None:
        found = {kept: gone for kept, gone in found.items() if of == kept or any(of == d.interaction_id for d in gone)}
        if not found:
            raise DataError(f"snapshot '{folder.name[:_SHORT]}': interaction '{of}' is in no cluster of duplicates")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    reasons = Counter(drop.reason for gone in found.values() for drop in gone)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())) or "nothing"
    console.print(f"snapshot {folder.name[:_SHORT]} of {business}: {len(found)} clusters, left out {told}")
    largest = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[:clusters]
    for kept, gone in largest:
        console.print(f"\nstays  {kept}", style="bold")
        for drop in gone:
            console.print(Text(f"  {drop.reason.removesuffix('_duplicate')}  {drop.interaction_id}  {drop.detail}"))
    if len(largest) < len(found):
        console.print(f"\n{len(found) - len(largest)} smaller clusters are not shown; see more with --clusters")


def _clusters(dropped: Iterable[Dropped]) -> dict[str, list[Dropped]]:
    """Kept interaction to what went in its favour."""
    found: defaultdict[str, list[Dropped]] = defaultdict(list)
    for drop in dropped:
        if drop.kept is not None:
            found[drop.kept].append(drop)
    return dict(found)
