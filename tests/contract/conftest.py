"""What the tests of registries share."""

from pathlib import Path

import pytest

from tests.registering import Maker


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)
