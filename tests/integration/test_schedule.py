"""Schedules on a real Prefect server: they are made, they outlive the process, and a dead night is started again."""

import asyncio
import fcntl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Running

from flows.schedule import RETRIES, deployments, revive
from pipeline.config import Config, load_config

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.servers


@pytest.fixture
def config(tmp_path: Path) -> Config:
    shipped = load_config(ROOT / "configs")
    return shipped.model_copy(update={"system": shipped.system.model_copy(update={"state_dir": tmp_path})})


@pytest.fixture
def client(prefect_url: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: f"{prefect_url}/api"}), get_client(sync_client=True) as client:
        yield client


def apply(config: Config) -> None:
    async def all_of_them() -> None:
        for deployment in deployments(config):
            await deployment.aapply()

    asyncio.run(all_of_them())


def a_running_night(client: SyncPrefectClient, night: datetime) -> FlowRun:
    """A run of `support` whose process began long ago, as the server sees it."""
    deployment = client.read_deployment_by_name("nightly/support")
    parameters = {**deployment.parameters, "night": night.isoformat()}
    run = client.create_flow_run_from_deployment(deployment.id, parameters=parameters)
    client.set_flow_run_state(run.id, Running(timestamp=night), force=True)
    return client.read_flow_run(run.id)


def retries_of(client: SyncPrefectClient, night: datetime) -> list[FlowRun]:
    return [run for run in client.read_flow_runs() if run.parameters.get("night") == night.isoformat()]


def test_every_business_has_its_cron_in_its_time_zone_and_applying_again_changes_nothing(
    config: Config, client: SyncPrefectClient
) -> None:
    apply(config)
    apply(config)
    for business in config.businesses.values():
        deployment = client.read_deployment_by_name(f"nightly/{business.business}")
        (schedule,) = deployment.schedules
        assert (schedule.schedule.cron, schedule.schedule.timezone) == (business.nightly, business.timezone)
        assert schedule.active
        assert not deployment.paused
        assert deployment.parameters["business"] == business.business


def test_a_night_whose_process_is_gone_is_crashed_and_started_again_a_few_times(
    config: Config, client: SyncPrefectClient
) -> None:
    apply(config)
    now = datetime.now(UTC)
    night = (now - timedelta(hours=3)).replace(microsecond=0)
    dead = a_running_night(client, night)
    for number in range(1, RETRIES + 2):
        revived = revive(config, client, now + timedelta(minutes=5))
        runs = retries_of(client, night)
        assert client.read_flow_run(dead.id).state_type == StateType.CRASHED
        if number > RETRIES:
            assert revived == []
            break
        assert revived == ["support"]
        assert len(runs) == number + 1
        assert revive(config, client, now + timedelta(minutes=5)) == []  # what was started again waits for its turn
        dead = max(runs, key=lambda run: run.created or now)
        client.set_flow_run_state(dead.id, Running(timestamp=now - timedelta(hours=1)), force=True)


def test_a_night_that_holds_its_lock_is_left_alone(config: Config, client: SyncPrefectClient, tmp_path: Path) -> None:
    apply(config)
    now = datetime.now(UTC)
    alive = a_running_night(client, (now - timedelta(hours=5)).replace(microsecond=0))
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "nightly-support.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert revive(config, client, now + timedelta(minutes=5)) == []
    assert client.read_flow_run(alive.id).state_type == StateType.RUNNING
