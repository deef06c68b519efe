"""How a business's pages get into their folder, and how they are changed there.

A decision's page is written by a night, and changed by the controller when its rollout goes on and by an erasure. Who
reads a page to change it holds the folder meanwhile, so that nobody brings back what another took out.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from evals.report import INDEX, read_entries, render_index
from pipeline.config import BusinessConfig

_DRAFT = ".draft"


def publish(folder: Path, name: str, page: str, business: BusinessConfig, now: datetime) -> Path:
    """Write a page, and the overview anew. Both are there whole, or as they were.

    Returns:
        The page's file.
    """
    with _held(folder):
        path = _write(folder / name, page)
        _write(folder / INDEX, render_index(read_entries(folder), business=business, generated_at=now))
    return path


def amend(path: Path, change: Callable[[str], str]) -> None:
    """Put what `change` makes of a page in its place; nothing happens where there is no page."""
    with _held(path.parent):
        if path.is_file():
            _write(path, change(path.read_text(encoding="utf-8")))


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for half in folder.glob(f".*{_DRAFT}"):
            half.unlink()  # of a writer that was killed
        yield


def _write(path: Path, text: str) -> Path:
    draft = path.with_name(f".{path.name}{_DRAFT}")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(path)
