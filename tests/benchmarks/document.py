"""What a run leaves behind: rows in `build/bench/<name>.json`, and a section of `docs/benchmarks.md` of its own."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from tests.benchmarks.machine import Machine
from tests.benchmarks.rows import Row

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "bench"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
_TITLE = "# Benchmarks\n\nEach section is written by the command that it names.\n"


def write_json(path: Path, rows: Sequence[Row], machine: Machine, now: datetime, rest: Mapping[str, object]) -> None:
    """The rows; beside them, in `<name>-details.json`, when and where they were measured and what they come from."""
    details = {"date": now.isoformat(timespec="seconds"), "machine": asdict(machine), **rest}
    path.parent.mkdir(parents=True, exist_ok=True)
    for file, content in ((path, [row.as_dict() for row in rows]), (path.with_stem(f"{path.stem}-details"), details)):
        file.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_section(name: str, text: str) -> None:
    """Put a benchmark's section into `docs/benchmarks.md`."""
    DOCUMENT.parent.mkdir(exist_ok=True)
    document = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.is_file() else ""
    DOCUMENT.write_text(put_section(document, name, text), encoding="utf-8")


def put_section(document: str, name: str, text: str) -> str:
    """The document with the benchmark's section in its place, or at its end."""
    first, last = f"<!-- {name}: written by `make bench-{name}` -->", f"<!-- {name}: end -->"
    before, begin, rest = document.partition(first)
    after = rest.partition(last)[2] if begin else "\n"
    if not begin:
        before = (document.rstrip("\n") or _TITLE.rstrip("\n")) + "\n\n"
    return f"{before}{first}\n\n{text}\n\n{last}{after}"


def wrapped(text: str, first: str = "", rest: str = "") -> str:
    """Within 120 columns; `first` and `rest` stand before the first line and the others."""
    return textwrap.fill(text, 120, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
