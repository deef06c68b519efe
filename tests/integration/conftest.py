"""What the gateway's tests share: an engine that answers, and a gateway in front of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.gateway_stub import RunningGateway, StubEngine, answer_fine, running_gateway, stub_engine


@pytest.fixture
async def engine() -> AsyncIterator[StubEngine]:
    async with stub_engine(answer_fine) as stub:
        yield stub


@pytest.fixture
def times() -> dict[str, float]:
    """How long the gateway waits for its engine, where a test does not want to."""
    return {}


@pytest.fixture
async def gateway(engine: StubEngine, tmp_path: Path, times: dict[str, float]) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path, engine.url, **times) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, headers=gateway.auth, timeout=10) as http:
        yield http
