"""The controller as a process: its loop, its clients, and its port.

The loop looks by itself every few seconds, so a webhook that is lost costs time and nothing else.
"""

import argparse
import contextlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from flows.controller.api import make_app
from flows.controller.controller import Controller
from flows.controller.gateways import Gateways
from pipeline.config import Config, Settings, load_config, load_settings
from pipeline.errors import ConfigError, PipelineError, RegistryError
from pipeline.records import ModelVersion
from pipeline.registry.alias_log import AliasLog
from pipeline.registry.base import ModelRegistry
from pipeline.rollout.lease import Lease
from pipeline.rollout.store import RolloutStore
from pipeline.services import Services, connect
from pipeline.serving.validate import validate_adapter

log = logging.getLogger(__name__)

_LEAST_PATIENCE_S = 2.0
STUCK_S = 60.0
"""A tick that lasts longer hangs, and its controller must not keep others from leading."""


class Loop:
    """Begins a tick every `poll_s` seconds, and at once when it is woken."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s
        self._began_at: float | None = None
        """The tick under way, by the monotonic clock."""
        self._woken = threading.Event()
        self._stopped = threading.Event()

    def wake(self) -> None:
        self._woken.set()

    def is_woken(self) -> bool:
        return self._woken.is_set()

    def is_stuck(self) -> bool:
        """Whether a tick has begun and does not end."""
        began_at = self._began_at
        return began_at is not None and time.monotonic() - began_at > STUCK_S

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()

    def run(self, tick: Callable[[datetime], None]) -> None:
        """Tick until stopped. A tick that fails in a way nobody thought of is logged, and the next one tries again."""
        while not self._stopped.is_set():
            self._woken.clear()
            due = time.monotonic() + self._poll_s
            self._began_at = time.monotonic()
            try:
                tick(datetime.now(UTC))
            except Exception:
                log.exception("tick failed; the next one tries again")
            self._began_at = None
            self._woken.wait(max(0.0, due - time.monotonic()))


class Heart:
    """Keeps the lease while ticks are long, takes it when its holder falls silent, and gives it up at the end."""

    def __init__(self, lease: Lease, loop: Loop, every_s: float) -> None:
        self._lease = lease
        self._loop = loop
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller-heart", daemon=True)

    def __enter__(self) -> "Heart":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=10)
        with contextlib.suppress(SQLAlchemyError):  # then the others wait until they notice
            self._lease.release()

    def _run(self) -> None:
        refused = False
        while not self._stopped.wait(self._every_s):
            if self._loop.is_stuck():
                continue
            led = self._lease.is_held()
            try:
                if self._lease.hold() and not led:
                    self._loop.wake()
                refused = False
            except SQLAlchemyError as error:
                if not refused:  # ten times a poll: said once
                    log.info("no beat: the control database refuses: %s", " ".join(str(error).split())[:200])
                refused = True


def lease_of(config: Config, control: Engine) -> Lease:
    """The lease, for the controller at the configuration's address on this host: no two can listen there."""
    address = config.system.controller
    holder = f"{socket.gethostname()}:{address.port}"
    return Lease(control, holder, max(_LEAST_PATIENCE_S, 0.7 * address.poll_s))


def build(config: Config, settings: Settings, services: Services, loop: Loop, lease: Lease) -> Controller:
    """The controller with its real clients. Nothing is contacted yet."""
    gateway = config.system.gateway
    here = tuple(f"http://{gateway.host}:{port}" for port in gateway.admin_ports)
    gateways = Gateways(config.system.controller.gateways or here, settings.admin_key.get_secret_value())
    adapters_dir = config.state_dir / "adapters"
    max_rank = min(engine.max_rank for engine in config.system.engines if engine.serves != "base")

    def validate(folder: Path, version: ModelVersion) -> None:
        validate_adapter(folder, config.system.base_model.path, version.adapter.base, max_rank, adapters_dir)

    return Controller(
        config,
        services.registry,
        services.servers,
        RolloutStore(services.control),
        lease,
        events_dir=config.state_dir / "events",
        adapters_dir=adapters_dir,
        push_routes=gateways.push,
        read_trips=gateways.trips,
        validate=validate,
        who_set=AliasLog(services.control).who_set,
        clock=lambda: datetime.now(UTC),
        interrupted=loop.is_woken,
    )


def serve(config: Config, settings: Settings) -> None:
    """Run until a signal ends the process.

    Raises:
        ConfigError: the port is taken.
    """
    address = config.system.controller
    listening = _listen(address.host, address.port)
    loop = Loop(address.poll_s)
    services = connect(config, settings)
    lease = lease_of(config, services.control)
    controller = build(config, settings, services, loop, lease)
    has_webhook, told = False, ""

    def tick(now: datetime) -> None:
        nonlocal has_webhook, told
        controller.tick(now)
        if not lease.is_held():  # MLflow calls one address: that of whoever leads.
            has_webhook = False
        elif not has_webhook:
            problem = _ask_for_webhook(services.registry, config, settings)
            if problem and problem != told:
                log.info("no webhook from MLflow yet, polling every %g s: %s", address.poll_s, problem)
            has_webhook, told = not problem, problem

    ticking = threading.Thread(target=loop.run, args=(tick,), name="controller-loop", daemon=True)
    ticking.start()
    server = uvicorn.Server(
        uvicorn.Config(make_app(controller, settings, loop.wake), log_level="warning", access_log=False)
    )
    log.info("controller: http://%s:%d/status, every %g s", address.host, address.port, address.poll_s)
    with Heart(lease, loop, every_s=address.poll_s / 10):
        try:
            server.run(sockets=[listening])
        finally:
            loop.stop()
            ticking.join(timeout=10)


def _listen(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"port {port} on {host} cannot be used ({error.strerror}); stop what uses it or set `controller.port`"
        ) from error
    return listening


def _ask_for_webhook(registry: ModelRegistry, config: Config, settings: Settings) -> str:
    """Have MLflow wake the loop; without it the loop is up to `poll_s` slower and does the same.

    Returns:
        Why it cannot be had; empty when it is.
    """
    from pipeline.registry.mlflow import MlflowRegistry

    address = config.system.controller
    url = f"http://{address.host}:{address.port}/webhook/mlflow"
    if isinstance(registry, MlflowRegistry):
        try:
            registry.ensure_webhook(url, settings.webhook_secret.get_secret_value())
        except RegistryError as error:
            return str(error)
    return ""


def main() -> None:
    """`python -m flows.controller --configs DIR`."""
    parser = argparse.ArgumentParser(description="Bring what was decided into service, and keep it there.")
    parser.add_argument("--configs", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s  %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # MLflow's client tells of each try, and we of the outcome
    try:
        config = load_config(arguments.configs)
        serve(config, load_settings(config.state_dir))
    except PipelineError as error:
        sys.exit(f"tuneloop: {error}")
    except SQLAlchemyError as error:
        sys.exit(f"tuneloop: control database: {' '.join(str(error).split())[:300]}; free some space and start again")
