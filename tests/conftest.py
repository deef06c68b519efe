"""Real servers for tests, each started at most once a run, on a free port, and only when a test asks for it."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import redis
from hypothesis import settings
from sqlalchemy import Engine

from pipeline.control import open_control_in

if TYPE_CHECKING:
    from tests.controller_world import ScriptedEngines, World

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = ROOT / "infra" / "launch"
BASE_MODEL = ROOT / "var" / "models" / "smollm2-135m-instruct"
MODEL_ID = "smollm2-135m"
MAX_RANK = 8
_START_LIMIT_S = 570.0
"""Two engines start in 40 s on two idle cores, and in many times that on busy ones."""

_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 4 << 30
"""Where temporary files go, if there is room: the product syncs every file that it writes, and a busy disk takes longer
for that than most tests do."""


def pytest_configure() -> None:
    """End like a Ctrl-C when somebody stops the run, so that no server outlives it. No property is timed: that would
    test how busy the machine is."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
        tempfile.tempdir = str(_MEMORY)
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Asynchronous tests run on the event loop that the gateway runs on."""
    return "asyncio", {"use_uvloop": True}


@dataclass
class Started:
    """A server process and where it answers."""

    url: str
    command: tuple[str, ...]
    ready: str
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TUNELOOP_")}
        environment |= self.environment
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                pytest.fail(f"{self.command[0]} ended with {self.process.returncode}: {self._last_words()}")
            try:
                if httpx.get(self.url + self.ready, timeout=2).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        self.stop()
        pytest.fail(f"{self.command[0]} did not answer within {_START_LIMIT_S:.0f} s: {self._last_words()}")

    def stop(self) -> None:
        """End the process and its children; they are one process group."""
        if self.process is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, how)
            except ProcessLookupError:
                break
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                continue
        self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()
        self.wait()

    def _last_words(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"{lines[-1] if lines else 'it said nothing'} (log: {self.log})"


@dataclass
class Engines:
    """The real vLLM pair: one serves the base model, one the adapters."""

    base: Started
    adapters: Started
    base_path: Path
    model_id: str = MODEL_ID
    max_rank: int = MAX_RANK

    @property
    def base_url(self) -> str:
        return self.base.url

    @property
    def adapters_url(self) -> str:
        return self.adapters.url


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(*servers: Started) -> Iterator[None]:
    """Start all, wait for all, and end all."""
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait()
        yield
    finally:
        for server in servers:
            server.stop()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; tests that read it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip(f"real data is not here: no {folder / 'data'}")
    return folder


@pytest.fixture(scope="session")
def base_model_path() -> Path:
    """SmolLM2-135M-Instruct in Hugging Face layout, made once for all runs."""
    if not (BASE_MODEL / "config.json").is_file():
        command = [sys.executable, "-m", "pipeline.train.base_model", "--out", str(BASE_MODEL)]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
        if made.returncode:
            pytest.fail(f"the base model could not be made: {made.stderr.strip()[-500:]}")
    return BASE_MODEL


@pytest.fixture(scope="session")
def engines(base_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Two vLLM processes, one for the base model and one for adapters of at most rank 8."""
    logs = tmp_path_factory.mktemp("engines")
    pair = Engines(*(an_engine(serves, base_model_path, logs) for serves in ("base", "adapters")), base_model_path)
    with running(pair.base, pair.adapters):
        yield pair


@pytest.fixture(scope="session")
def mlflow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An MLflow server with an empty database, as `tuneloop up` starts it."""
    with running_server("mlflow.sh", "/health", tmp_path_factory.mktemp("mlflow")) as server:
        yield server.url


@pytest.fixture(scope="session")
def prefect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stock Prefect server with an empty database."""
    with running_server("prefect.sh", "/api/health", tmp_path_factory.mktemp("prefect")) as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stock Redis."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server on this machine; install the package of that name")
    port, folder = free_port(), tmp_path_factory.mktemp("redis")
    command = ("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()


@pytest.fixture
def redis_url(redis_server: str) -> str:
    """A Redis that answers and is empty."""
    client = redis.Redis.from_url(redis_server)
    deadline = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            client.flushall()
            return redis_server
        except redis.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="session")
def scripted_engines() -> "Iterator[ScriptedEngines]":
    """Engines that answer by rule, for many worlds one after the other."""
    from tests.controller_world import ScriptedEngines

    with ScriptedEngines() as engines:
        yield engines


@pytest.fixture
def world(tmp_path: Path, scripted_engines: "ScriptedEngines") -> "Iterator[World]":
    """A controller and all that it looks after, in one process."""
    from tests.controller_world import World

    with World(tmp_path, scripted_engines) as world:
        yield world


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Engine]:
    """An empty control database."""
    engine = open_control_in(tmp_path)
    yield engine
    engine.dispose()


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """The shipped configuration, with a state folder of its own: `var` beside it."""
    folder = shutil.copytree(ROOT / "configs", tmp_path / "configs")
    file = folder / "tuneloop.yaml"
    file.write_text(re.sub(r"(?m)^state_dir: \S+", f"state_dir: {tmp_path / 'var'}", file.read_text()))
    return folder


def an_engine(serves: str, model: Path, logs: Path, *options: str) -> Started:
    """A vLLM process that is not started yet."""
    port = free_port()
    arguments = ("--name", serves, "--port", str(port), "--model", str(model), "--served-id", MODEL_ID)
    return Started(
        url=f"http://127.0.0.1:{port}",
        command=(str(LAUNCH / "engine.sh"), *arguments, "--serves", serves, "--max-rank", str(MAX_RANK), *options),
        ready="/health",
        log=logs / f"{serves}-{port}.log",
    )


@contextmanager
def running_server(script: str, ready: str, state: Path, **environment: str) -> Iterator[Started]:
    """A server that one of the launch scripts starts, with what it keeps in `state`."""
    port = free_port()
    server = Started(
        url=f"http://127.0.0.1:{port}",
        command=(str(LAUNCH / script), "127.0.0.1", str(port), str(state)),
        ready=ready,
        log=state / "server.log",
        environment=environment,
    )
    with running(server):
        yield server
