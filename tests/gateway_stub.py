"""A scripted engine and a gateway for tests, on real sockets."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from pipeline.config import (
    BaseModelConfig,
    BurstConfig,
    BusinessConfig,
    Config,
    ControllerConfig,
    EngineConfig,
    GatewayConfig,
    LimitsConfig,
    RolloutConfig,
    Settings,
    SystemConfig,
)
from pipeline.control import open_control
from pipeline.gateway.auth import ApiKey, create_key, list_keys
from pipeline.gateway.gateway import Gateway
from pipeline.records import Feedback, Interaction, Route, Routes, ShadowAnswer, Target

BASE = "base-model"
ADMIN = {"authorization": "Bearer admin-key"}
NOW = datetime(2026, 3, 1, tzinfo=UTC)

Script = Callable[["Peer"], Awaitable[None]]


def sse(*events: object, done: bool = True) -> bytes:
    """Events as an engine writes them."""
    parts = [b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events]
    return b"".join(parts) + (b"data: [DONE]\n\n" if done else b"")


def delta(text: str | None = None, *, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    part = ({} if text is None else {"content": text}) | more
    choice = {"index": index, "delta": part, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


USAGE_CHUNK = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [],
    "usage": {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20},
}


def completion(text: str = "fine") -> dict[str, Any]:
    """An answer that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


@dataclass
class Peer:
    """The engine's side of one request."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    raw: bytes = b""

    async def json(self, value: object, status: int = 200) -> None:
        """Answer with a JSON document."""
        await self.raw_json(json.dumps(value, ensure_ascii=False).encode(), status)

    async def raw_json(self, data: bytes, status: int = 200) -> None:
        """Answer with these bytes as JSON."""
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        await self.writer.drain()

    async def start(self) -> None:
        """Begin an event stream in chunked encoding."""
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self.writer.write(head)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end(self) -> None:
        """The proper end of a chunked body."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def stream(self, *pieces: bytes) -> None:
        """A whole event stream, one HTTP chunk a piece."""
        await self.start()
        for piece in pieces:
            await self.chunk(piece)
        await self.end()

    def cut(self) -> None:
        """End the connection inside the answer."""
        self.writer.close()

    async def hung_up(self) -> None:
        """Return when the gateway has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            return


@dataclass
class StubEngine:
    """Serves whatever `script` does."""

    script: Script
    url: str = ""
    seen: list[Peer] = field(default_factory=list)
    open_connections: int = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection."""
        self.open_connections += 1
        try:
            while peer := await self._read(reader, writer):
                self.seen.append(peer)
                await self.script(peer)
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Peer | None:
        head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
        if not head:
            return None
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        return Peer(json.loads(raw or b"{}"), headers, lines[0].split(" ")[1], reader, writer, raw)


@asynccontextmanager
async def stub_engine(script: Script) -> AsyncIterator[StubEngine]:
    """A running stub."""
    engine = StubEngine(script)
    server = await asyncio.start_server(engine.handle, "127.0.0.1", 0, limit=1 << 26)
    engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield engine
    finally:
        server.close()


async def answer_fine(peer: Peer) -> None:
    """The usual script: a short answer in the form that was asked for."""
    if peer.body.get("stream"):
        usage = [USAGE_CHUNK] if (peer.body.get("stream_options") or {}).get("include_usage") else []
        first, second = sse(delta("", role="assistant"), done=False), sse(delta("fine"), done=False)
        await peer.stream(first, second, sse(delta(finish="stop"), *usage))
    else:
        await peer.json(completion())


@dataclass
class RunningGateway:
    """A gateway in this event loop, its addresses and keys."""

    gateway: Gateway
    url: str
    admin_url: str
    key: str
    """Of business `support`."""
    other_key: str
    """Of business `sales`."""
    both_key: str
    state_dir: Path
    worker: str
    database: Any

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def api_keys(self) -> tuple[ApiKey, ...]:
        """The key table."""
        return list_keys(self.database)

    def generation(self) -> int:
        """Of the routes that are kept on disk."""
        file = self.state_dir / "gateway" / self.worker / "routes.json"
        return Routes.model_validate_json(file.read_bytes()).generation if file.exists() else -1

    def interactions(self) -> list[Interaction]:
        """What stands in the event log."""
        return [Interaction.model_validate(line["interaction"]) for line in self._lines() if "interaction" in line]

    def shadows(self) -> list[ShadowAnswer]:
        """What stands in the event log."""
        return [ShadowAnswer.model_validate(line["shadow"]) for line in self._lines() if "shadow" in line]

    def feedback(self) -> list[Feedback]:
        """What stands in the event log."""
        return [Feedback.model_validate(line["feedback"]) for line in self._lines() if "feedback" in line]

    async def logged(self, count: int = 1) -> list[Interaction]:
        """Wait until `count` interactions are on disk."""
        async with asyncio.timeout(10):
            while len(found := self.interactions()) < count:
                await asyncio.sleep(0.01)
        return found

    def _lines(self) -> list[dict[str, Any]]:
        """Whole lines: the last one may still be being written."""
        files = sorted((self.state_dir / "events" / "segments").glob("*.jsonl"))
        lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith(b"\n")]


@cache
def business(key: str) -> BusinessConfig:
    """A business with everything at its default."""
    return BusinessConfig(
        business=key, title=key, language="en", report_language="en", timezone="UTC", nightly="0 2 * * *"
    )


def gateway_config(directory: Path, engines: tuple[EngineConfig, ...], **section: Any) -> Config:
    """A configuration with two businesses; the controller's port is one where nobody listens."""
    burst = section.pop("burst", BurstConfig())
    controller = section.pop("controller", ControllerConfig(port=1))
    base = section.pop("base", BASE)
    limits, shadows = section.pop("limits", {}), section.pop("shadows", {})
    section.setdefault("settle_s", 0.0)  # most tests are about one gateway
    system = SystemConfig(
        base_model=BaseModelConfig(id=base, revision="r", path=Path("base")),
        engines=engines,
        gateway=GatewayConfig(**section),
        burst=burst,
        controller=controller,
    )
    businesses = {
        key: business(key).model_copy(
            update={"limits": limits.get(key, LimitsConfig()), "rollout": RolloutConfig(shadow=shadows.get(key))}
        )
        for key in ("support", "sales")
    }
    return Config(directory=directory, system=system, businesses=businesses)


def settings(redis_url: str = "") -> Settings:
    """Secrets for tests."""
    return Settings(
        redis_url=SecretStr(redis_url),
        user_salt=SecretStr("salt"),
        admin_key=SecretStr("admin-key"),
        webhook_secret=SecretStr("w"),
        report_secret=SecretStr("r"),
        engine_key=SecretStr("engine-key"),
    )


def free_socket() -> socket.socket:
    """A listening socket on a free port."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    sock.listen(128)
    return sock


@asynccontextmanager
async def running_gateway(
    tmp_path: Path, *engines: str, worker: str = "w1", redis_url: str = "", **section: Any
) -> AsyncIterator[RunningGateway]:
    """A gateway before engines at these URLs."""
    configs = tuple(EngineConfig(name=f"e{number}", url=url) for number, url in enumerate(engines))
    config = gateway_config(tmp_path, configs, **section)
    state_dir = tmp_path / "state"
    state_dir.mkdir(parents=True, exist_ok=True)
    database = open_control(f"sqlite:///{state_dir / 'control.db'}")
    suffix = os.urandom(4).hex()
    keys = [
        create_key(database, f"{name}-{suffix}", businesses, NOW)
        for name, businesses in (("a", ["support"]), ("b", ["sales"]), ("ab", ["support", "sales"]))
    ]
    data, admin = free_socket(), free_socket()
    gateway = Gateway(config, settings(redis_url), state_dir, worker, database)
    await gateway.start(data, admin)
    urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in (data, admin)]
    try:
        yield RunningGateway(gateway, *urls, *keys, state_dir, worker, database)
    finally:
        await gateway.stop()
        database.dispose()


def canary(
    replica: str, *, generation: int = 1, share: float = 0.5, salt: str = "r1", candidate: bool = True
) -> Routes:
    """Routes with a candidate for `support`."""
    stable = Target(model=BASE, version=None, replicas=(replica,))
    target = Target(model="support-v2-abcdef01", version=2, replicas=(replica,)) if candidate else None
    route = Route(business="support", stable=stable, candidate=target, share=share if candidate else 0.0, salt=salt)
    return Routes(generation=generation, routes=(route,))
