"""What tests of erasures share: traces of a user, made once."""

import shutil
from copy import deepcopy
from pathlib import Path

import pytest

from pipeline.registry.memory import MemoryRegistry


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MemoryRegistry]:
    """A state folder and a registry in which one user has left traces: see `tests.erasure_world`."""
    from tests.erasure_world import build

    folder, registry = tmp_path_factory.mktemp("traces") / "var", MemoryRegistry()
    build(folder, registry).close()
    return folder, registry


@pytest.fixture
def state(traces: tuple[Path, MemoryRegistry], tmp_path: Path) -> Path:
    """A state folder of the test's own, with a user's traces."""
    return shutil.copytree(traces[0], tmp_path / "var")


@pytest.fixture
def registry(traces: tuple[Path, MemoryRegistry]) -> MemoryRegistry:
    """The registry beside `state`."""
    return deepcopy(traces[1])
