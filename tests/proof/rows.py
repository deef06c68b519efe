"""One planted truth, what was expected of the product, and what it did."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "proof"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. `right` is None where a figure is told and nothing is demanded."""

    planted: str
    planted_zh: str
    expected: str
    expected_zh: str
    found: str
    right: bool | None


@dataclass(frozen=True, slots=True)
class Counted:
    """How often something happened, with its exact 95 % interval (Clopper and Pearson, Biometrika 26, 1934)."""

    happened: int
    of: int

    @property
    def bounds(self) -> tuple[float, float]:
        """In [0, 1]; all of it where nothing was tried."""
        if not self.of:
            return 0.0, 1.0
        low, high = binomtest(self.happened, self.of).proportion_ci()
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.bounds
        return f"{self.happened} / {self.of} ({100 * low:.1f}–{100 * high:.1f} %)"


def at_most(planted: tuple[str, str], counted: Counted, share: float, what: tuple[str, str]) -> Row:
    """Right where the measured share is at most what was promised. Texts come in English and Chinese."""
    right = counted.of > 0 and counted.happened <= share * counted.of
    english, chinese = ("never", "从不") if share == 0 else (f"at most {100 * share:g} %", f"至多 {100 * share:g} %")
    return Row(*planted, f"{what[0]}: {english}", f"{what[1]}：{chinese}", str(counted), right)


def at_least(planted: tuple[str, str], counted: Counted, share: float, what: tuple[str, str]) -> Row:
    """Right where the measured share is at least what was promised. Texts come in English and Chinese."""
    right = counted.of > 0 and counted.happened >= share * counted.of
    english, chinese = ("always", "总是") if share == 1 else (f"at least {100 * share:g} %", f"至少 {100 * share:g} %")
    return Row(*planted, f"{what[0]}: {english}", f"{what[1]}：{chinese}", str(counted), right)


def write_part(name: str, rows: Iterable[Row], about: dict[str, Any], *, complete: bool = True) -> Path:
    """Keep the rows of one part of the proof, with when and where and how they were found.

    Args:
        complete: False while more rows are to come: page and table say so if the run ends here.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = {"part": name, **about, "complete": complete, "rows": [asdict(row) for row in rows]}
    path = FOLDER / f"{name}.json"
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    draft.rename(path)
    return path
