"""Serves the nightly flow: one Prefect deployment per business, by its cron expression in its time zone.

Deployments outlive this process, so schedules survive a restart and a night that fell into it is run late. A run whose
process was killed is found by its lock, which the kernel released, marked as crashed, and started again for the same
night, up to `RETRIES` times.
"""

import argparse
import fcntl
import logging
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from prefect import serve
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas import FlowRun
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import StateType
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import PrefectException
from prefect.schedules import Cron
from prefect.states import Crashed
from prefect.types.entrypoint import EntrypointType

from flows.nightly import nightly
from pipeline.config import Config, load_config
from pipeline.errors import PipelineError

logger = logging.getLogger("flows.schedule")
RETRIES = 3
WATCH_EVERY_S = 15.0
_GRACE = timedelta(seconds=60)
"""A run that was just started may not hold its lock yet."""


def deployments(config: Config) -> list[RunnerDeployment]:
    """One deployment per business."""
    return [
        RunnerDeployment.from_flow(
            nightly,
            name=business.business,
            schedules=[Cron(business.nightly, timezone=business.timezone)],
            parameters={"business": business.business, "configs": str(config.directory.resolve())},
            concurrency_limit=1,
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
        for business in config.businesses.values()
    ]


def revive(config: Config, client: SyncPrefectClient, now: datetime) -> list[str]:
    """Mark runs whose process is gone as crashed and start crashed nights again.

    Returns:
        the names of the businesses whose night was started again.
    """
    revived = []
    for business in config.businesses:
        since = now - timedelta(days=2)
        for run in _runs(client, business, since):
            if run.state_type == StateType.RUNNING and _is_gone(config.state_dir, business, run, now):
                client.set_flow_run_state(run.id, Crashed(message="its process is gone"), force=True)
                logger.warning("nightly run of '%s' died; marked as crashed", business)
        runs = _runs(client, business, since)
        for run in (run for run in runs if _needs_retry(run, runs)):
            client.create_flow_run_from_deployment(
                run.deployment_id,  # type: ignore[arg-type]
                parameters={**run.parameters, "night": _night(run)},
                idempotency_key=f"retry-of-{run.id}",
                tags=["retry"],
            )
            revived.append(business)
            logger.warning("nightly run of '%s' is started again for %s", business, _night(run))
    return revived


def _runs(client: SyncPrefectClient, business: str, since: datetime) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=["nightly"])),
        deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=[business])),
        flow_run_filter=FlowRunFilter(expected_start_time=FlowRunFilterExpectedStartTime(after_=since)),
    )


def _night(run: FlowRun) -> str:
    due = run.parameters.get("night") or run.expected_start_time
    return str(due.isoformat() if isinstance(due, datetime) else due)


def _needs_retry(run: FlowRun, all_runs: list[FlowRun]) -> bool:
    """Crashed, and no later run of the same night was made, and the night was not retried too often."""
    same_night = [other for other in all_runs if _night(other) == _night(run)]
    latest = max(same_night, key=lambda other: other.created or datetime.min.replace(tzinfo=UTC), default=run)
    return run.state_type == StateType.CRASHED and latest.id == run.id and len(same_night) <= RETRIES


def _is_gone(state_dir: Path, business: str, run: FlowRun, now: datetime) -> bool:
    if run.start_time is None or now - run.start_time < _GRACE:
        return False
    path = state_dir / "run" / f"nightly-{business}.lock"
    if not path.exists():
        return True
    with path.open("r") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _watch(config: Config, stop: threading.Event) -> None:
    while not stop.wait(WATCH_EVERY_S):
        try:
            with get_client(sync_client=True) as client:
                revive(config, client, datetime.now(UTC))
        except (
            httpx.HTTPError,
            PrefectException,
        ) as error:  # the server may be restarting: the next look sees the same
            logger.warning("could not look after nightly runs: %s", error)


def main() -> None:
    """Serve the schedules until stopped."""
    parser = argparse.ArgumentParser(description="Serve the nightly schedules of all businesses.")
    parser.add_argument("--configs", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s  %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    try:
        config = load_config(arguments.configs)
    except PipelineError as error:
        sys.exit(f"tuneloop: {error}")
    stop = threading.Event()
    threading.Thread(target=_watch, args=(config, stop), daemon=True).start()
    serve(*deployments(config), pause_on_shutdown=False, limit=1, print_starting_message=False)
    stop.set()


if __name__ == "__main__":
    main()
