"""Starts and stops the processes of one machine: MLflow, Prefect, engines, gateway, controller, schedules.

A process is known by pid *and* start time, kept in `<state_dir>/run/<name>.json`, so that stopping never hits a
stranger who got the same pid. Starting again starts what is missing.
"""

import json
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from pipeline.config import SECRETS_FILE, Config, EngineConfig, Settings, child_environment
from pipeline.errors import ConfigError, PipelineError

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = ROOT / "infra" / "launch"
_START_LIMIT_S = 900.0
_STOP_LIMIT_S = 20.0
_MIN_FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Process:
    """One process of the stack."""

    name: str
    command: tuple[str, ...]
    ready_url: str
    """Answers 200 when the process can be used."""
    ports: tuple[int, ...]


class StackError(PipelineError):
    """A process could not be started."""


def processes(config: Config) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
    """Everything that one machine runs: the servers, and what needs them at its start."""
    system, python = config.system, sys.executable
    configs, state = str(config.directory.resolve()), str(config.state_dir)
    gateway, controller = system.gateway, system.controller
    servers = (
        _server("mlflow", system.mlflow.url, "/health", "mlflow.sh", state),
        _server("prefect", system.prefect.url, "/api/health", "prefect.sh", state),
        *(_engine(config, engine) for engine in system.engines),
    )
    return servers, (
        Process(
            "gateway",
            (python, "-m", "pipeline.gateway", "--configs", configs, "--state-dir", state),
            f"http://{gateway.host}:{gateway.port}/readyz",
            (gateway.port, *gateway.admin_ports),
        ),
        Process(
            "controller",
            (python, "-m", "flows.controller", "--configs", configs),
            f"http://{controller.host}:{controller.port}/healthz",
            (controller.port,),
        ),
        Process(
            "schedule",
            (python, "-m", "flows.schedule", "--configs", configs),
            f"{system.prefect.url}/api/health",
            (),
        ),
    )


def _server(name: str, url: str, health: str, script: str, state: str) -> Process:
    address = urlsplit(url)
    command = (str(LAUNCH / script), str(address.hostname), str(address.port), state)
    return Process(name, command, url + health, (address.port or 80,))


def _engine(config: Config, engine: EngineConfig) -> Process:
    port = urlsplit(engine.url).port or 80
    model = config.system.base_model
    command = (
        str(LAUNCH / "engine.sh"),
        *("--name", engine.name, "--port", str(port), "--model", str(model.path.resolve()), "--served-id", model.id),
        *("--serves", engine.serves, "--max-rank", str(engine.max_rank), "--max-adapters", str(engine.max_adapters)),
    )
    return Process(f"engine-{engine.name}", command, f"{engine.url}/health", (port,))


def make_secrets(state_dir: Path) -> None:
    """Write random secrets for one machine, owner-only, unless they are there already."""
    path = state_dir / SECRETS_FILE
    if path.exists():
        return
    state_dir.mkdir(parents=True, exist_ok=True)
    names = [name for name, field in Settings.model_fields.items() if field.is_required()]
    draft = path.with_suffix(".tmp")
    draft.touch(mode=0o600)
    draft.write_text("".join(f"TUNELOOP_{name.upper()}={secrets.token_urlsafe(32)}\n" for name in names))
    draft.rename(path)


def up(config: Config, settings: Settings, say: Callable[[str], None]) -> None:
    """Start what is not running and wait until all of it answers.

    Raises:
        StackError: a port is taken by someone else, a process died, or it did not answer in time.
        ConfigError: the base model is missing or the disk is full.
    """
    if not (config.system.base_model.path / "config.json").is_file():
        raise ConfigError(f"no base model in {config.system.base_model.path}; `make setup` puts it there")
    free = shutil.disk_usage(config.state_dir).free
    if free < _MIN_FREE_BYTES:
        raise ConfigError(f"{config.state_dir}: {free / 1e9:.1f} GB free, at least 2 GB are needed; free some space")
    for wave in processes(config):
        since = time.monotonic()
        for process in wave:
            if find(config.state_dir, process.name) is None:
                _start(process, config, settings)
        for process in wave:
            _wait_until_ready(process, config.state_dir)
            say(f"{process.name} is up ({time.monotonic() - since:.0f} s)")


def down(state_dir: Path, say: Callable[[str], None]) -> None:
    """Stop every process that `up` started for this state folder, newest first, and nothing else."""
    records = sorted((state_dir / "run").glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for record in records:
        process = find(state_dir, record.stem)
        if process is not None:
            _stop(process)
            say(f"{record.stem} stopped")
        record.unlink()


def find(state_dir: Path, name: str) -> psutil.Process | None:
    """The running process of that name, or None."""
    try:
        saved = json.loads((state_dir / "run" / f"{name}.json").read_text())
        process = psutil.Process(saved["pid"])
        alive = process.status() != psutil.STATUS_ZOMBIE
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None
    return process if alive and process.create_time() == saved["created"] else None


def _start(process: Process, config: Config, settings: Settings) -> None:
    for port in process.ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise StackError(
                    f"{process.name}: port {port} is taken by another program; stop it or change the port in "
                    f"{config.directory / 'tuneloop.yaml'}"
                ) from error
    (config.state_dir / "run").mkdir(parents=True, exist_ok=True)
    (config.state_dir / "logs").mkdir(mode=0o700, exist_ok=True)
    with open(config.state_dir / "logs" / f"{process.name}.log", "ab") as log:
        child = subprocess.Popen(
            process.command,
            cwd=Path.cwd(),
            env=child_environment(config, settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C meant for the command line must not stop the servers
        )
    saved = {"pid": child.pid, "created": psutil.Process(child.pid).create_time()}
    (config.state_dir / "run" / f"{process.name}.json").write_text(json.dumps(saved))


def _wait_until_ready(process: Process, state_dir: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    with httpx.Client(timeout=2.0) as client:
        while time.monotonic() < deadline:
            if find(state_dir, process.name) is None:
                raise StackError(f"{process.name} stopped while starting: {_last_words(state_dir, process.name)}")
            try:
                if client.get(process.ready_url).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.2)
    raise StackError(
        f"{process.name} did not answer at {process.ready_url} within {_START_LIMIT_S:.0f} s: "
        f"{_last_words(state_dir, process.name)}"
    )


def _last_words(state_dir: Path, name: str) -> str:
    path = state_dir / "logs" / f"{name}.log"
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1] if lines else 'it said nothing'} (log: {path})"


def _stop(process: psutil.Process) -> None:
    family: Iterable[psutil.Process] = [*process.children(recursive=True), process]
    process.terminate()
    psutil.wait_procs([process], timeout=_STOP_LIMIT_S)
    _, alive = psutil.wait_procs(family, timeout=2.0)
    for survivor in alive:  # MLflow's and vLLM's children outlive their parent for a while
        survivor.kill()
    psutil.wait_procs(alive, timeout=5.0)
