"""`docs/proof.html` and the table in README, made of the parts that were run: `build/proof/*.json`."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tests.proof.parts import PARTS
from tests.proof.rows import FOLDER, ROOT

PAGE = ROOT / "docs" / "proof.html"
README = ROOT / "README.md"
_FIRST, _LAST = "<!-- proof: written by `make prove-fast` and `make prove` -->", "<!-- proof: end -->"
_MARK = {True: "✓", False: "**✗**", None: "–"}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 560.0, 250.0, 44.0, 34.0, 12.0
_NAMES = {
    "learned": ("learned", "可学的"),
    "noisy": ("noisy", "噪声"),
    "poisoned": ("poisoned", "投毒"),
    "real": ("learned, SmolLM2 on the real stack", "可学的，真实系统上的 SmolLM2"),
}


def compose() -> list[Path]:
    """Write page and table from the parts that are there; a part that was never run is named as not run."""
    paths = {name: FOLDER / f"{name}.json" for name in PARTS}
    parts = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items() if path.is_file()}
    PAGE.write_text(render(parts), encoding="utf-8")
    README.write_text(put_table(README.read_text(encoding="utf-8"), table(parts)), encoding="utf-8")
    return [PAGE, README]


def render(parts: Mapping[str, Any]) -> str:
    """The page, complete in itself."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = [row for part in parts.values() for row in part["rows"]]
    curves = {**parts.get("fast", {}).get("curves", {}), **parts.get("learning", {}).get("curves", {})}
    return templates.get_template("page.html").render(
        parts=[(about, parts.get(name)) for name, about in PARTS.items()],
        right=sum(row["right"] is True for row in rows),
        wrong=sum(row["right"] is False for row in rows),
        lines=plot(curves),
        nights=max((len(scores) - 1 for runs in curves.values() for scores in runs), default=0),
        axis=[(share, _y(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        x=_x,
    )


def plot(curves: Mapping[str, Sequence[Sequence[float]]]) -> list[dict[str, Any]]:
    """One line a world: the mean truth score over its businesses by night, and a band from the least to the best."""
    lines = []
    of = max((len(run) - 1 for runs in curves.values() for run in runs), default=0)
    for world, runs in curves.items():
        nights = range(len(runs[0]))
        means = [(_x(n, of), _y(math.fsum(run[n] for run in runs) / len(runs))) for n in nights]
        upper = [(_x(n, of), _y(max(run[n] for run in runs))) for n in nights]
        lower = [(_x(n, of), _y(min(run[n] for run in runs))) for n in nights]
        lines.append(
            {
                "world": world,
                "names": _NAMES[world],
                "line": _points(means),
                "band": _points([*upper, *reversed(lower)]),
                "ends": means[-1],
                "dots": means,
            }
        )
    return lines


def table(parts: Mapping[str, Any]) -> str:
    """The rows of every part as one Markdown table, with when and where and how beneath."""
    lines = ["| planted | expected | found | |", "|---|---|---|---|"]
    told = []
    for name, about in PARTS.items():
        part = parts.get(name)
        if part is None:
            lines.append(f"| {about.title} | | not run yet: `{about.command}` | |")
            continue
        lines += [
            f"| {row['planted']} | {row['expected']} | {row['found']} | {_MARK[row['right']]} |" for row in part["rows"]
        ]
        if not part["complete"]:
            lines.append(f"| {about.title}: the rest | | not run yet: `{about.command}` | |")
        machine = part["machine"]
        told.append(
            f"{about.title}: `{part['command']}`, {part['date'][:10]}, seeds {part['seeds']}, {part['minutes']:g} "
            f"minutes on {machine['cores']} cores ({machine['cpu']})."
        )
    rows = [row for part in parts.values() for row in part["rows"]]
    right, wrong = (sum(row["right"] is side for row in rows) for side in (True, False))
    summary = f"<summary>{right} planted truths found, {wrong} missed: the table</summary>"
    return "\n\n".join(["\n".join(told), f"<details>{summary}", "\n".join(lines), "</details>"])


def put_table(document: str, text: str) -> str:
    """README with the table between its markers."""
    before, _, rest = document.partition(_FIRST)
    return f"{before}{_FIRST}\n\n{text}\n\n{_LAST}{rest.partition(_LAST)[2]}"


def _x(night: int, of: int) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - 16) * night / max(1, of), 1)


def _y(share: float) -> float:
    return round(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * share, 1)


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)
