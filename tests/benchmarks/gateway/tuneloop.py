"""Our gateway as it is run in production: real process, real configuration, keys, arms, event log.

Nothing is switched off for the benchmark. Each business has a candidate with a tenth of the users, so every request is
assigned to an arm.
"""

import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import yaml

from pipeline.config import GatewayConfig
from pipeline.control import open_control
from pipeline.gateway.auth import create_key
from pipeline.records import Route, Routes, Target
from tests.benchmarks.document import ROOT
from tests.benchmarks.gateway.cases import TUNELOOP
from tests.benchmarks.gateway.requests import BUSINESSES
from tests.benchmarks.gateway.servers import BenchError, Server, free_port, start

_BASE = "bench-base"
_ADMIN_KEY = "bench-admin"
_SECRETS = {
    "TUNELOOP_USER_SALT": "bench-salt",
    "TUNELOOP_ADMIN_KEY": _ADMIN_KEY,
    "TUNELOOP_WEBHOOK_SECRET": "bench",
    "TUNELOOP_REPORT_SECRET": "bench",
}
_CANDIDATE_SHARE = 0.10
_READY_S = 60.0
_STREAMS = 4096
"""May be with the engine at once: the limit is not what is measured."""


def start_tuneloop(
    folder: Path, stub_port: int, cores: tuple[int, ...], workers: int = 1, name: str = TUNELOOP
) -> tuple[Server, tuple[str, ...]]:
    """Start a gateway in a folder of its own; also returns the API key of each business.

    Args:
        workers: processes that share the port.
    """
    home = folder / name
    configs, state = home / "configs", home / "state"
    port, admin_ports = free_port(), _free_ports(workers)
    section = {"port": port, "admin_port": admin_ports[0], "max_running": _STREAMS, "workers": workers}
    _write_configs(configs, stub_port, {key: section[key] for key in section if key in GatewayConfig.model_fields})
    keys = _create_keys(state)
    command = [sys.executable, "-m", "pipeline.gateway", "--configs", str(configs), "--state-dir", str(state)]
    server = start(name, port, command, folder, cores, _SECRETS)
    try:
        for admin_port in admin_ports:
            _put_routes(server, admin_port, f"http://127.0.0.1:{stub_port}")
    except BaseException:
        server.stop()
        raise
    return server, keys


def has_workers() -> bool:
    """Whether this gateway can run as several processes on one port."""
    return "workers" in GatewayConfig.model_fields


def version() -> str:
    """The commit under test, with a mark when files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return "unknown commit"
    return said.stdout.strip() or "unknown commit"


def dropped_lines(server: Server) -> int:
    """Lines that the event log could not take: figures of a gateway that drops are not worth the same."""
    lines = httpx.get(f"http://127.0.0.1:{server.port}/metrics").text.splitlines()
    values = [line.rsplit(" ", 1)[1] for line in lines if "dropped" in line and not line.startswith("#")]
    return sum(int(float(value)) for value in values)


def empty_event_log(folder: Path) -> None:
    """Give the disk its space back between windows; a gateway goes on writing to the file that it has open."""
    for segment in folder.glob("*/state/events/segments/*.jsonl"):
        os.truncate(segment, 0)


def _write_configs(configs: Path, stub_port: int, gateway: dict[str, int]) -> None:
    (configs / "businesses").mkdir(parents=True)
    system = {
        "base_model": {"id": _BASE, "revision": "r", "path": "models/base"},
        "gateway": gateway,
        "controller": {"port": free_port()},  # nobody is there: routes are pushed below
        "engines": [{"name": "stub", "url": f"http://127.0.0.1:{stub_port}"}],
    }
    (configs / "tuneloop.yaml").write_text(yaml.safe_dump(system))
    for key in BUSINESSES:
        business = {"business": key, "title": key, "language": "en", "report_language": "en", "timezone": "UTC"}
        (configs / "businesses" / f"{key}.yaml").write_text(yaml.safe_dump(business | {"nightly": "0 2 * * *"}))


def _free_ports(count: int) -> range:
    """Ports side by side: each worker has an admin port of its own."""
    while True:
        first = free_port()
        try:
            for port in range(first + 1, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return range(first, first + count)


def _create_keys(state: Path) -> tuple[str, ...]:
    state.mkdir(parents=True)
    database = open_control(f"sqlite:///{state / 'control.db'}")
    try:
        return tuple(create_key(database, f"bench-{key}", [key], datetime.now(UTC)) for key in BUSINESSES)
    finally:
        database.dispose()


def _put_routes(server: Server, admin_port: int, engine: str) -> None:
    routes = Routes(generation=1, routes=tuple(_route(business, engine) for business in BUSINESSES))
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            put = httpx.put(
                f"http://127.0.0.1:{admin_port}/admin/routes",
                content=routes.model_dump_json(),
                headers={"authorization": f"Bearer {_ADMIN_KEY}"},
            )
            break
        except httpx.TransportError as error:
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{server.name} does not start: {server.last_words()}") from error
            time.sleep(0.1)
    if put.status_code != 200:
        raise BenchError(f"{server.name} does not take routes: {put.status_code} {put.text[:200]}")


def _route(business: str, engine: str) -> Route:
    return Route(
        business=business,
        stable=Target(model=_BASE, version=None, replicas=(engine,)),
        candidate=Target(model=f"{business}-v2-0123abcd", version=2, replicas=(engine,)),
        share=_CANDIDATE_SHARE,
        salt=f"{business}-r1",
    )
