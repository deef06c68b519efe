"""A stage of a proof on the real stack; what it found is kept there, and a run that was stopped goes on after it."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.proof.rows import Row


@dataclass(frozen=True)
class Stage:
    """What one stage found."""

    rows: tuple[Row, ...]
    scores: tuple[float, ...] = ()
    """Truth scores of what serves after it, in [0, 1], one of each seed; empty where nothing is learned."""
    earlier_minutes: float = 0.0
    """What it took in an earlier run; 0 where this run played it."""


def once(folder: Path, name: str, play: Callable[[], Sequence[Row]]) -> Stage:
    """Play the stage, or find in `folder` what it came to before."""
    path = folder / f"stage-{name}.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Stage(tuple(Row(**row) for row in kept["rows"]), earlier_minutes=kept["minutes"])
    since = time.monotonic()
    rows = tuple(play())
    minutes = (time.monotonic() - since) / 60
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps({"minutes": minutes, "rows": [asdict(row) for row in rows]}, ensure_ascii=False))
    draft.rename(path)
    return Stage(rows)
