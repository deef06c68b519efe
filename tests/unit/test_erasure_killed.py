"""An erasure that is killed anywhere and run again ends in the same state."""

import os
import shutil
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipeline.registry.memory import MemoryRegistry
from tests.erasure_world import (
    erase_user,
    found_in,
    tables,
)

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def _watch_changes(before: Callable[[], None]) -> None:
    """Have it called before each change that this process makes to a file. There is no way back."""
    watching = True

    def change() -> None:
        nonlocal watching
        if watching:
            watching = False
            before()
            watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wax"):
            change()

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            change()
            return real(*arguments)

        return call

    for name in ("pwrite", "fsync", "fdatasync"):
        setattr(os, name, watched(getattr(os, name)))
    sys.addaudithook(watch)


def _left_by_kills(state: Path, registry: MemoryRegistry, into: Path) -> list[Path]:
    """The state folder as an erasure leaves it that is killed before its first change to a file, its second, and so on:
    copies, made by a process of its own, of all that are not the same as the one before."""
    child = os.fork()
    if child == 0:
        try:
            kept: list[dict[str, bytes]] = [{}]

            def keep() -> None:
                files = {str(path.relative_to(state)): path.read_bytes() for path in state.rglob("*") if path.is_file()}
                if files != kept[-1]:
                    shutil.copytree(state, into / f"{len(kept):03d}" / "var")
                    kept.append(files)

            _watch_changes(keep)
            erase_user(state, registry)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return sorted(into.glob("*/var"))


def _content(state: Path) -> dict[str, Any]:
    """Every file: Parquet by its rows, the control database by its tables, the rest by its bytes."""
    found: dict[str, Any] = {f"table {name}": rows for name, rows in tables(state).items()}
    for path in sorted(state.rglob("*")):
        if path.is_file() and not path.name.startswith("control.db"):
            name = str(path.relative_to(state))
            found[name] = pq.read_table(path).to_pylist() if path.suffix == ".parquet" else path.read_bytes()
    return found


@pytest.mark.timeout(600)
def test_killed_anywhere_and_run_again_it_ends_in_the_same_state(
    state: Path, registry: MemoryRegistry, tmp_path: Path
) -> None:
    whole, marked = shutil.copytree(state, tmp_path / "whole" / "var"), deepcopy(registry)
    erase_user(whole, marked)
    expected = _content(whole)
    left = _left_by_kills(state, registry, tmp_path / "killed")
    assert len(left) > 40  # it was killed over every store
    for folder in [*left, state]:
        again = deepcopy(registry)
        erase_user(folder, again)
        assert _content(folder) == expected, folder
        assert again.entries == marked.entries, folder
        assert found_in(folder) == set(), folder
        shutil.rmtree(folder)
