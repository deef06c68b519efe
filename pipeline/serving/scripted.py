"""A scripted engine: the honest fake of vLLM.

It is a real HTTP server that speaks the part of vLLM's API that tuneloop uses, answers from a script, and remembers,
refuses and forgets as vLLM does (statuses and bodies were copied from vLLM 0.32). A client cannot tell it from an
engine: `VllmServer(engine.url, engine.model_id)` is its `AdapterServer`, and gateways can use it as an upstream.
Log-probabilities are made up from the text and the adapter's bytes, so that the same adapter always gives the same
ones and another adapter others.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from pipeline.serving.scripted_http import EngineHttpServer, Refusal

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
    hang_loads: bool = False
    """No load is answered while this is true."""
    cut_after: int = -1
    """A stream's connection ends after so many tokens."""


@dataclass
class ScriptedEngine:
    """One engine on loopback, while it is entered: `with ScriptedEngine() as engine: engine.url`."""

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
    port: int = 0
    """0 takes a free one."""

    def __post_init__(self) -> None:
        self._adapters: dict[str, tuple[str, str]] = {}  # name to folder and digest
        self._lock = threading.Lock()
        self._server: EngineHttpServer | None = None
        self._port = self.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "ScriptedEngine":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.faults.hang = self.faults.hang_loads = False
        self.stop()

    def start(self) -> None:
        """Listen, on the port that it had before if there was one."""
        self._server = EngineHttpServer(self, self._port)
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
            raise Refusal(400, "Both 'lora_name' and 'lora_path' must be provided.")
        with self._lock:
            if name in self._adapters:
                raise Refusal(400, f"The lora adapter '{name}' has already been loaded.")
            if name == self.model_id:
                raise Refusal(400, f"The lora adapter '{name}' conflicts with a served base model.")
            self._adapters[name] = (path, self._read_adapter(name, Path(path)))
            self.loads += 1
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, body: Mapping[str, Any]) -> str:
        name = body.get("lora_name")
        with self._lock:
            if self._adapters.pop(str(name), None) is None:
                raise Refusal(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        return f"Success: LoRA adapter '{name}' removed successfully."

    def digest(self, model: str) -> str:
        """What the answers of a model come from: empty for the base model."""
        with self._lock:
            if model not in self._adapters and model != self.model_id:
                raise Refusal(404, f"The model `{model}` does not exist.", "NotFoundError")
            return "" if self.faults.serve_base else self._adapters.get(model, ("", ""))[1]

    def speaker(self, model: str) -> str:
        """The name that answers: the base model's when it serves the base under an adapter's name."""
        return model if self.digest(model) else self.model_id

    @staticmethod
    def logprob(token: str, digest: str) -> float:
        """Between -5 and -1 nats under the base model; an adapter moves it by up to 4 either way."""
        base = -1.0 - 4.0 * _share(token)
        return min(base + 8.0 * (_share(f"{digest}\0{token}") - 0.5), 0.0) if digest else base

    def _read_adapter(self, name: str, folder: Path) -> str:
        if self.faults.refuse_loads:
            raise _worker_failed(self.faults.refuse_loads)
        if not (folder / "adapter_config.json").is_file():
            message = f"Loading lora {name} failed: No adapter found for {folder}"
            raise Refusal(404, message, "NotFoundError")
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


def _worker_failed(reason: str) -> Refusal:
    message = f"Call to add_lora method failed: Worker failed with error '{reason}', please check the stack trace above"
    return Refusal(500, message, "InternalServerError")


def _share(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:4], "big") / 2**32
