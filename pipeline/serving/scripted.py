"""A scripted engine: the honest fake of vLLM.

It is a real HTTP server that speaks the part of vLLM's API that tuneloop uses, answers from a script, and remembers,
refuses and forgets as vLLM does (statuses and bodies were copied from vLLM 0.32). A client cannot tell it from an
engine: `VllmServer(engine.url, engine.model_id)` is its `AdapterServer`, and gateways can use it as an upstream.
Log-probabilities are made up from the text and the adapter's bytes, so that the same adapter always gives the same
ones and another adapter others.
"""

import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

Answer = Callable[[str, list[dict[str, Any]]], str]
"""Takes the model's name and the messages, gives the answer's text."""


def echo(model: str, messages: list[dict[str, Any]]) -> str:
    """Name the model and say the last message again."""
    return f"{model} says: {messages[-1].get('content')}"


@dataclass
class Faults:
    """What goes wrong; everything off at first."""

    refuse_loads: str = ""
    """Load calls are answered `500` with this reason."""
    serve_base: bool = False
    """Loads are answered `200`, and the base model answers under the adapter's name."""
    status: int = 0
    """Inference is answered with this status."""
    hang: bool = False
    """No request is answered while this is true."""
    cut_after: int = -1
    """A stream's connection ends after so many tokens."""


@dataclass
class _Failure(Exception):
    status: int
    message: str
    kind: str = "InvalidUserInput"


@dataclass
class ScriptedEngine:
    """One engine on a free port of loopback, while it is entered: `with ScriptedEngine() as engine: engine.url`."""

    model_id: str = "base"
    answer: Answer = echo
    max_rank: int = 16
    token_delay_s: float = 0.0
    api_key: str | None = None
    faults: Faults = field(default_factory=Faults)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the inference requests, in order of arrival."""
    loads: int = 0
    """Loads that had an effect."""

    def __post_init__(self) -> None:
        self._adapters: dict[str, tuple[str, str]] = {}  # name to folder and digest
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "ScriptedEngine":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.faults.hang = False
        self.stop()

    def start(self) -> None:
        """Listen, on the port that it had before if there was one."""
        self._server = _Server(self, self._port)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be down: connections are refused. What was loaded is forgotten, as in a real engine."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.drop_connections()
            self._server = None
        self._adapters.clear()

    def restart(self) -> None:
        self.stop()
        self.start()

    # What the handlers ask

    def models(self) -> dict[str, Any]:
        base = {"id": self.model_id, "object": "model", "root": self.model_id, "parent": None}
        with self._lock:
            adapters = [
                {"id": name, "object": "model", "root": root, "parent": self.model_id}
                for name, (root, _) in self._adapters.items()
            ]
        return {"object": "list", "data": [base, *adapters]}

    def load(self, body: Mapping[str, Any]) -> str:
        name, path = body.get("lora_name"), body.get("lora_path")
        if not name or not path:
            raise _Failure(400, "Both 'lora_name' and 'lora_path' must be provided.")
        with self._lock:
            if name in self._adapters:
                raise _Failure(400, f"The lora adapter '{name}' has already been loaded.")
            if name == self.model_id:
                raise _Failure(400, f"The lora adapter '{name}' conflicts with a served base model.")
            self._adapters[name] = (path, self._read_adapter(name, Path(path)))
            self.loads += 1
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, body: Mapping[str, Any]) -> str:
        name = body.get("lora_name")
        with self._lock:
            if self._adapters.pop(str(name), None) is None:
                raise _Failure(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        return f"Success: LoRA adapter '{name}' removed successfully."

    def digest(self, model: str) -> str:
        """What the answers of a model come from: empty for the base model."""
        with self._lock:
            if model not in self._adapters and model != self.model_id:
                raise _Failure(404, f"The model `{model}` does not exist.", "NotFoundError")
            return "" if self.faults.serve_base else self._adapters.get(model, ("", ""))[1]

    def speaker(self, model: str) -> str:
        """The name that answers: the base model's when it serves the base under an adapter's name."""
        return model if self.digest(model) else self.model_id

    def _read_adapter(self, name: str, folder: Path) -> str:
        if self.faults.refuse_loads:
            raise _worker_failed(self.faults.refuse_loads)
        if not (folder / "adapter_config.json").is_file():
            message = f"Loading lora {name} failed: No adapter found for {folder}"
            raise _Failure(404, message, "NotFoundError")
        try:
            config = json.loads((folder / "adapter_config.json").read_bytes())
            weights = (folder / "adapter_model.safetensors").read_bytes()
        except ValueError as error:
            raise _worker_failed(str(error)) from error
        except OSError as error:
            raise _worker_failed(f"{folder} doesn't contain tensors") from error
        if config["r"] > self.max_rank:
            raise _worker_failed(f"LoRA rank {config['r']} is greater than max_lora_rank {self.max_rank}.")
        return hashlib.sha256(weights).hexdigest()


def _worker_failed(reason: str) -> _Failure:
    message = f"Call to add_lora method failed: Worker failed with error '{reason}', please check the stack trace above"
    return _Failure(500, message, "InternalServerError")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, engine: ScriptedEngine, port: int) -> None:
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
    server: _Server

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
        except _Failure as failure:
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
                {str(place): {"logprob": _logprob(token, digest), "rank": 1, "decoded_token": token}}
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

    def _count(self, body: dict[str, Any]) -> ScriptedEngine:
        engine = self.server.engine
        engine.requests.append(body)
        if engine.faults.status:
            raise _Failure(engine.faults.status, "scripted failure", "InternalServerError")
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


def _logprob(token: str, digest: str) -> float:
    """Between -5 and -1 nats under the base model; an adapter moves it by up to 4 either way."""
    base = -1.0 - 4.0 * _share(token)
    return min(base + 8.0 * (_share(f"{digest}\0{token}") - 0.5), 0.0) if digest else base


def _share(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:4], "big") / 2**32
