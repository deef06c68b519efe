"""What is asked of a gateway, what an engine then plays, and what comes back."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from tests.gateway_stub import Peer, delta, sse

CHAT: dict[str, Any] = {"model": "support", "messages": [{"role": "user", "content": "你好"}]}
STREAM = CHAT | {"stream": True}
WITH_USAGE = STREAM | {"stream_options": {"include_usage": True}}
HASTY = {"connect_timeout_s": 1.0, "first_token_timeout_s": 1.5, "between_tokens_timeout_s": 0.3}
"""Of a gateway that is not to wait long for its engine."""


async def read_all(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[bytes, bool]:
    """The answer's bytes, and whether it ended properly."""
    received = b""
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        try:
            async for piece in response.aiter_raw():
                received += piece
        except httpx.RemoteProtocolError:
            return received, False
    return received, True


def playing(*pieces: bytes) -> Callable[[Peer], Awaitable[None]]:
    async def script(peer: Peer) -> None:
        await peer.stream(*pieces)

    return script


async def cut_in_stream(peer: Peer) -> None:
    await peer.start()
    await peer.chunk(sse(delta("half"), done=False))
    peer.cut()


async def hang_in_stream(peer: Peer) -> None:
    await peer.start()
    await peer.chunk(sse(delta("half"), done=False))
    await peer.hung_up()


async def talk_nonsense(peer: Peer) -> None:
    await peer.start()
    await peer.chunk(sse(delta("half"), done=False))
    peer.writer.write(b"this is no chunk\r\n")
    await peer.hung_up()


async def refuse_json(peer: Peer) -> None:
    await peer.json({"error": {"message": "too long", "code": 400}}, status=400)


async def fail_json(peer: Peer) -> None:
    await peer.json({"error": {"message": "boom"}}, status=502)


async def drop(peer: Peer) -> None:
    peer.cut()


async def hang(peer: Peer) -> None:
    await peer.hung_up()


async def half_document(peer: Peer) -> None:
    peer.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n")
    await peer.writer.drain()
    peer.cut()


async def no_http(peer: Peer) -> None:
    peer.writer.write(b"SSH-2.0-OpenSSH\r\n")
    await peer.hung_up()
