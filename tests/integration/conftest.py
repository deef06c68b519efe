"""What the gateway's tests share: an engine that answers, and a gateway in front of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway_stub import RunningGateway, StubEngine, answer_fine, running_gateway, stub_engine


@pytest.fixture
async def engine() -> AsyncIterator[StubEngine]:
    async with stub_engine(answer_fine) as stub:
        yield stub


@pytest.fixture
async def gateway(engine: StubEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, engine.url) as running:
        yield running
