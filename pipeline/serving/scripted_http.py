"""The HTTP side of the scripted engine: paths, bodies and streams as vLLM writes them."""

import contextlib
import hashlib
import json
import socket
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.serving.scripted import ScriptedEngine


@dataclass
class Refusal(Exception):
    """An answer that is an error."""

    status: int
    message: str
    kind: str = "InvalidUserInput"


class EngineHttpServer(ThreadingHTTPServer):
    """Answers for one engine on loopback; port 0 takes a free one."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, engine: "ScriptedEngine", port: int) -> None:
        self.engine = engine
        self.open_handlers: set[_Handler] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def drop_connections(self) -> None:
        for handler in tuple(self.open_handlers):
            handler.drop()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: EngineHttpServer

    def setup(self) -> None:
        super().setup()
        self.server.open_handlers.add(self)

    def finish(self) -> None:
        self.server.open_handlers.discard(self)
        super().finish()

    def drop(self) -> None:
        """End the connection in the middle of whatever is going on."""
        self.close_connection = True
        with contextlib.suppress(OSError):  # it is gone already
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._wait_while_hanging()
        match self.path:
            case "/health":
                self._send(200, b"")
            case "/v1/models" if self._authorised():
                self._send_json(200, self.server.engine.models())
            case "/v1/models":
                self._send_json(401, {"error": "Unauthorized"})
            case _:
                self._send_json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        engine = self.server.engine
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._wait_while_hanging()
        while self.path == "/v1/load_lora_adapter" and engine.faults.hang_loads:
            time.sleep(0.01)
        if not self._authorised():
            self._send_json(401, {"error": "Unauthorized"})
            return
        try:
            body = json.loads(raw)
            match self.path:
                case "/v1/load_lora_adapter":
                    self._send(200, engine.load(body).encode())
                case "/v1/unload_lora_adapter":
                    self._send(200, engine.unload(body).encode())
                case "/v1/completions":
                    self._complete(body)
                case "/v1/chat/completions":
                    self._chat(body)
                case _:
                    self._send_json(404, {"detail": "Not Found"})
        except Refusal as failure:
            error = {"message": failure.message, "type": failure.kind, "param": None, "code": failure.status}
            self._send_json(failure.status, {"error": error})
        except json.JSONDecodeError:
            self._send_json(400, {"error": {"message": "1 validation error", "type": "Bad Request", "code": 400}})

    def _complete(self, body: dict[str, Any]) -> None:
        engine = self._count(body)
        digest, prompt = engine.digest(body["model"]), str(body["prompt"])
        text = engine.answer(engine.speaker(body["model"]), [{"role": "user", "content": prompt}])
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "stop"}
        if body.get("prompt_logprobs") is not None:
            tokens = prompt.split()
            choice["prompt_logprobs"] = [None] + [
                {str(place): {"logprob": engine.logprob(token, digest), "rank": 1, "decoded_token": token}}
                for place, token in enumerate(tokens[1:], start=1)
            ]
        self._send_json(200, self._envelope("text_completion", body["model"], [choice]))

    def _chat(self, body: dict[str, Any]) -> None:
        engine = self._count(body)
        text = engine.answer(engine.speaker(body["model"]), body["messages"])
        tokens = [word if place == 0 else f" {word}" for place, word in enumerate(text.split(" "))] if text else []
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or len(tokens)
        reason = "length" if len(tokens) > limit else "stop"
        tokens = tokens[:limit]
        usage = {"prompt_tokens": 1 + sum(len(str(m.get("content")).split()) for m in body["messages"])}
        usage |= {"completion_tokens": len(tokens), "total_tokens": usage["prompt_tokens"] + len(tokens)}
        if body.get("stream"):
            self._stream(body, tokens, reason, usage)
            return
        time.sleep(engine.token_delay_s * len(tokens))
        message = {"role": "assistant", "content": "".join(tokens)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        self._send_json(200, self._envelope("chat.completion", body["model"], [choice]) | {"usage": usage})

    def _stream(self, body: dict[str, Any], tokens: list[str], reason: str, usage: dict[str, int]) -> None:
        engine = self.server.engine
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        frame = self._envelope("chat.completion.chunk", body["model"], [])
        self._event(frame | {"choices": [_delta({"role": "assistant", "content": ""})]})
        for place, token in enumerate(tokens):
            if place == engine.faults.cut_after:
                self.drop()
                return
            time.sleep(engine.token_delay_s)
            self._event(frame | {"choices": [_delta({"content": token})]})
        self._event(frame | {"choices": [_delta({}, reason)]})
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event(frame | {"usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _count(self, body: dict[str, Any]) -> "ScriptedEngine":
        engine = self.server.engine
        engine.requests.append(body)
        if engine.faults.status:
            raise Refusal(engine.faults.status, "scripted failure", "InternalServerError")
        return engine

    def _envelope(self, kind: str, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        number = self.headers.get("X-Request-Id") or hashlib.sha256(str(time.time_ns()).encode()).hexdigest()[:32]
        return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": model, "choices": choices}

    def _authorised(self) -> bool:
        key = self.server.engine.api_key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def _wait_while_hanging(self) -> None:
        while self.server.engine.faults.hang:
            time.sleep(0.01)

    def _send_json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value, ensure_ascii=False).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str | None = None) -> None:
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _event(self, value: object) -> None:
        self._chunk(b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()


def _delta(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
