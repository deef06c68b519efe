"""A gateway as a process: it starts, stops and dies without losing what it promised."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from pipeline.control import open_control_in
from pipeline.events.segment import SegmentLog
from pipeline.gateway.auth import create_key
from tests.gateway_stub import NOW, Peer, answer_fine, delta, sse, stub_engine

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]
SECRETS = {f"TUNELOOP_{name}": "secret" for name in ("USER_SALT", "ADMIN_KEY", "WEBHOOK_SECRET", "REPORT_SECRET")}
BUSINESS = 'business: support\ntitle: s\nlanguage: en\nreport_language: en\ntimezone: UTC\nnightly: "0 2 * * *"\n'


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def free_row_of_ports(count: int) -> list[int]:
    """Ports that follow one another."""
    while True:
        (first,) = free_ports(1)
        try:
            sockets = [socket.create_server(("127.0.0.1", first + number)) for number in range(count)]
        except OSError:
            continue
        for sock in sockets:
            sock.close()
        return list(range(first, first + count))


@dataclass
class Installed:
    """A configuration, a state folder and a key."""

    configs: Path
    state_dir: Path
    port: int
    admin_ports: list[int]
    key: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def command(self, *more: str) -> list[str]:
        arguments = ["--configs", str(self.configs), "--state-dir", str(self.state_dir), *more]
        return [sys.executable, "-m", "pipeline.gateway", *arguments]

    def lines(self) -> list[dict[str, dict[str, str]]]:
        files = (self.state_dir / "events" / "segments").glob("*.jsonl")
        whole = [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]
        return [json.loads(line) for line in whole]


def install(tmp_path: Path, engine: str, workers: int = 1) -> Installed:
    port, controller = free_ports(2)
    admin = free_row_of_ports(workers)
    configs = tmp_path / "configs"
    (configs / "businesses").mkdir(parents=True)
    (configs / "businesses" / "support.yaml").write_text(BUSINESS)
    (configs / "tuneloop.yaml").write_text(
        f"base_model: {{id: m, revision: r, path: models/m}}\n"
        f"gateway: {{port: {port}, admin_port: {admin[0]}, workers: {workers}}}\n"
        f"controller: {{port: {controller}}}\n"
        f'engines: [{{name: e0, url: "{engine}"}}]\n'
    )
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    database = open_control_in(state_dir)
    key = create_key(database, "app", ["support"], NOW)
    database.dispose()
    return Installed(configs, state_dir, port, admin, key)


@contextmanager
def process(installed: Installed, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | SECRETS
    with (installed.state_dir / "log").open("ab") as log:
        running = subprocess.Popen(installed.command(*more), cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield running
    finally:
        running.kill()
        running.wait(10)


async def ready(client: httpx.AsyncClient, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if (await client.get(url + "/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.05)


async def post_feedback(
    client: httpx.AsyncClient, installed: Installed, prefix: str, acknowledged: set[str], enough: asyncio.Event
) -> None:
    """Post, over every crash, until it is enough; note what was acknowledged."""
    number = 0
    while not enough.is_set():
        number += 1
        event_id = f"{prefix}-{number}"
        event = {"event_id": event_id, "interaction_id": "i", "kind": "comment", "value": "x" * 500}
        try:
            response = await client.post(installed.url + "/v1/feedback", json=event, headers=installed.auth)
        except httpx.TransportError:
            continue
        if response.status_code == 202:
            acknowledged.add(event_id)


def worker_pids(running: subprocess.Popen[bytes]) -> list[int]:
    return [child.pid for child in psutil.Process(running.pid).children()]


async def test_50_kills_under_load_lose_no_acknowledged_feedback(tmp_path: Path) -> None:
    installed = install(tmp_path, "http://127.0.0.1:1", workers=2)
    acknowledged: set[str] = set()
    enough = asyncio.Event()
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=8, max_keepalive_connections=0)) as client:
        with process(installed) as running:
            await ready(client, installed.url)
            posting = [
                asyncio.create_task(post_feedback(client, installed, str(number), acknowledged, enough))
                for number in range(4)
            ]
            for kill in range(50):
                before = len(acknowledged)
                while len(acknowledged) < before + 5 + kill % 7:
                    await asyncio.sleep(0.002)
                os.kill(random.Random(kill).choice(worker_pids(running)), signal.SIGKILL)
            enough.set()
            await asyncio.wait_for(asyncio.gather(*posting), 30)
            running.terminate()
            assert running.wait(30) == 0
    stored = [line["feedback"]["event_id"] for line in installed.lines()]
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))


async def test_workers_share_the_port_and_are_steered_one_by_one(tmp_path: Path) -> None:
    admin = {"authorization": "Bearer secret"}
    async with stub_engine(answer_fine) as engine:
        installed = install(tmp_path, engine.url, workers=2)
        with process(installed) as running:
            async with httpx.AsyncClient() as client:
                await ready(client, installed.url)
                route = {"business": "support", "stable": {"model": "m", "version": None, "replicas": [engine.url]}}
                for port in installed.admin_ports:
                    routes = {"generation": 7, "routes": [route]}
                    put = await client.put(f"http://127.0.0.1:{port}/admin/routes", json=routes, headers=admin)
                    assert put.json() == {"generation": 7, "taken": True}
                for number in range(40):  # a connection each: the kernel deals them out
                    async with httpx.AsyncClient() as stranger:
                        body = {"messages": [{"role": "user", "content": str(number)}]}
                        url = f"{installed.url}/v1/chat/completions"
                        assert (await stranger.post(url, json=body, headers=installed.auth)).status_code == 200
            running.terminate()
            assert running.wait(30) == 0
    segments = (installed.state_dir / "events" / "segments").glob("*.jsonl")
    assert {segment.name.rsplit("-", 1)[0] for segment in segments} == {"gateway", "gateway-1"}
    assert len(installed.lines()) == 40


async def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    installed = install(tmp_path, "http://127.0.0.1:1", workers=2)
    async with httpx.AsyncClient() as client:
        with process(installed) as running:
            await ready(client, installed.url)
            workers = [psutil.Process(pid) for pid in worker_pids(running)]
    gone, alive = psutil.wait_procs(workers, timeout=30)
    assert (len(gone), alive) == (2, [])


def test_workers_that_cannot_start_are_not_started_for_ever(tmp_path: Path) -> None:
    installed = install(tmp_path, "http://127.0.0.1:1", workers=2)
    log = SegmentLog(installed.state_dir / "events" / "segments", "gateway-1")
    try:
        finished = subprocess.run(
            installed.command(), cwd=ROOT, env=os.environ | SECRETS, capture_output=True, text=True, timeout=60
        )
    finally:
        log.close()
    assert finished.returncode == 2
    assert "worker 'gateway-1' is written by another process" in finished.stderr


async def test_sigterm_lets_a_stream_finish_and_writes_everything_down(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.start()
        await peer.chunk(sse(delta("one"), done=False))
        await go_on.wait()
        await peer.chunk(sse(delta("two"), delta(finish="stop")))
        await peer.end()

    async with stub_engine(script) as engine, httpx.AsyncClient(timeout=30) as client:
        installed = install(tmp_path, engine.url)
        with process(installed) as running:
            await ready(client, installed.url)
            body = {"stream": True, "messages": [{"role": "user", "content": "hi"}]}
            url = installed.url + "/v1/chat/completions"
            async with client.stream("POST", url, json=body, headers=installed.auth) as response:
                received = b""
                async for piece in response.aiter_raw():
                    received += piece
                    if not go_on.is_set():
                        running.send_signal(signal.SIGTERM)
                        async with asyncio.timeout(20):
                            while not _refuses(installed.port):
                                await asyncio.sleep(0.02)
                        go_on.set()
            assert received == sse(delta("one"), delta("two"), delta(finish="stop"))
            assert await asyncio.to_thread(running.wait, 20) == 0
        (line,) = installed.lines()
        assert line["interaction"]["stream_end"] == "complete"


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def test_a_second_gateway_on_the_port_or_the_worker_name_says_so_in_one_line(tmp_path: Path) -> None:
    async with stub_engine(answer_fine) as engine, httpx.AsyncClient() as client:
        installed = install(tmp_path, engine.url)
        with process(installed):
            await ready(client, installed.url)
            busy = await asyncio.to_thread(start_and_read, installed.command("--worker", "w2"))
            port, admin = free_ports(2)
            config = installed.configs / "tuneloop.yaml"
            text = config.read_text().replace(
                f"port: {installed.port}, admin_port: ", f"port: {port}, admin_port: {admin} # "
            )
            config.write_text(text.replace(f"{admin} # ", f"{admin}}} # "))
            same_name = await asyncio.to_thread(start_and_read, installed.command())
    assert str(installed.port) in busy
    assert "worker 'gateway'" in same_name


def start_and_read(command: list[str]) -> str:
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | SECRETS, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    return line


def test_missing_secrets_and_configuration_say_so_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.gateway", "--configs", str(tmp_path)]
    assert "tuneloop.yaml" in start_and_read(command)


def test_a_gateway_needs_no_torch() -> None:
    code = (
        "import sys, pipeline.gateway.__main__; sys.exit(any(m in sys.modules for m in ('torch', 'mlflow', 'prefect')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0
