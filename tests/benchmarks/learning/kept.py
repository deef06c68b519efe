"""Trainings that were measured, each on its own line of a file, so that a run goes on where the last one stopped."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.records import Method, content_id
from pipeline.train.recipe import Recipe
from tests.benchmarks.learning.pairs import Pair


@dataclass(frozen=True)
class Trained:
    """One training and what it changed, pair by pair."""

    name: str
    method: Method
    seed: int
    before: list[bool]
    after: list[bool]
    margin: float
    """Mean gain of the preferred answer's log-probability a token over the other's."""


def training_key(method: Method, seed: int, recipe: Recipe, train: Sequence[Pair], held_out: Sequence[Pair]) -> str:
    """Hash of all that a measurement follows from."""
    pairs = [[asdict(pair) for pair in side] for side in (train, held_out)]
    return content_id([method, seed, recipe.model_dump(mode="json"), *pairs])


class Kept:
    """Measured trainings by key. One process writes at a time; a line that a kill has cut is measured again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Trained] = {}
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                value = json.loads(line)
                self._known[value["key"]] = Trained(**value["trained"] | {"method": Method(value["trained"]["method"])})
        if text and not text.endswith("\n"):
            path.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")

    def get(self, key: str) -> Trained | None:
        """What was measured under a key before; None where nothing was."""
        return self._known.get(key)

    def measure(self, key: str, measure: Callable[[], Trained]) -> Trained:
        """What was measured before; else measured now, and kept."""
        if key not in self._known:
            trained = measure()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "trained": asdict(trained)}) + "\n")
            self._known[key] = trained
        return self._known[key]
