"""Spans as a collector gets them: OTLP over HTTP."""

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from pipeline.config import TracingConfig
from tests.gateway_stub import Peer, answer_fine, delta, running_gateway, sse, stub_engine

pytestmark = pytest.mark.anyio
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SECRET = "my number is 13812345678"


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent."""

    bodies: list[bytes]

    @property
    def spans(self) -> list[Span]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Receive(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector(("127.0.0.1", 0), Receive)
    server.bodies = []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def test_a_span_continues_the_clients_trace_and_goes_on_to_the_engine(
    tmp_path: Path, collector: Collector
) -> None:
    tracing = TracingConfig(endpoint=f"http://127.0.0.1:{collector.server_port}")
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path, engine.url, tracing=tracing) as gateway,
        httpx.AsyncClient(headers=gateway.auth | {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}) as client,
    ):
        body = {"messages": [{"role": "user", "content": SECRET}]}
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body)
        sent_on = engine.seen[0].headers["traceparent"]
    (span,) = collector.spans
    assert span.trace_id.hex() == TRACE_ID
    assert span.parent_span_id.hex() == "b7ad6b7169203331"
    assert sent_on == f"00-{TRACE_ID}-{span.span_id.hex()}-01"
    found = attributes(span)
    assert found["tuneloop.interaction_id"] == answer.headers["x-interaction-id"]
    assert found["gen_ai.usage.input_tokens"] == 3
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.response.model"] == answer.headers["x-model-version"]
    assert span.start_time_unix_nano < span.end_time_unix_nano
    assert SECRET.encode() not in b"".join(collector.bodies)


async def test_a_cut_stream_is_an_error_span(tmp_path: Path, collector: Collector) -> None:
    async def cut(peer: Peer) -> None:
        await peer.start()
        await peer.chunk(sse(delta("half"), done=False))
        peer.cut()

    tracing = TracingConfig(endpoint=f"http://127.0.0.1:{collector.server_port}")
    async with (
        stub_engine(cut) as engine,
        running_gateway(tmp_path, engine.url, tracing=tracing) as gateway,
        httpx.AsyncClient(headers=gateway.auth) as client,
    ):
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(f"{gateway.url}/v1/chat/completions", json=body)
        await asyncio.wait_for(gateway.logged(), 10)
    (span,) = collector.spans
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes(span)["error.type"] == "upstream_cut"
