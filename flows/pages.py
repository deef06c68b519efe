"""How a business's pages get into their folder."""

import uuid
from datetime import datetime
from pathlib import Path

from evals.report import INDEX, read_entries, render_index
from pipeline.config import BusinessConfig


def publish(folder: Path, name: str, page: str, business: BusinessConfig, now: datetime) -> Path:
    """Write a page, and the overview anew. Both are there whole, or as they were.

    Returns:
        The page's file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = _write(folder / name, page)
    _write(folder / INDEX, render_index(read_entries(folder), business=business, generated_at=now))
    return path


def _write(path: Path, text: str) -> Path:
    # A draft of its own: a night, and two controllers, may be writing the same page.
    draft = path.with_name(f".{uuid.uuid4().hex}.draft")
    draft.write_text(text, encoding="utf-8")
    return draft.replace(path)
