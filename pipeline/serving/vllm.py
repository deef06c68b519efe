"""vLLM's HTTP API as an `AdapterServer`.

vLLM answers `500` to most adapters that it will never take, so a status says little about whether to repeat: what is
told apart is an engine that refuses an adapter from one that is dead or overloaded.
"""

import threading
from collections import defaultdict
from pathlib import Path

import httpx

from pipeline.errors import EngineUnavailable, ServingError

_LOOK_S = 15.0
"""Limit of a call that only looks: an engine that hangs must not keep the controller from the others."""
_ALREADY = "has already been loaded"
_NOT_LOADED = "cannot be found"
_DEAD = "EngineCore encountered an issue"


class VllmServer:
    """One vLLM server. Safe to use from several threads."""

    def __init__(self, url: str, model_id: str, *, api_key: str | None = None, timeout_s: float = 120.0) -> None:
        """
        Args:
            url: base URL without a path.
            model_id: the base model's name on the engine.
            api_key: the engine's key, if it was started with one.
            timeout_s: limit of a load, an unload or a probe, in seconds.
        """
        self._url = url.rstrip("/")
        self._model_id = model_id
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._client = httpx.Client(
            base_url=self._url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=5.0),
            # uvicorn closes idle connections after 5 s; letting go of them earlier avoids sending into a closing one.
            limits=httpx.Limits(keepalive_expiry=2.0),
            trust_env=False,  # engines are inside: no proxy
        )

    @property
    def url(self) -> str:
        return self._url

    def load(self, name: str, path: Path) -> None:
        folder = str(path.resolve())
        with self._locks[name]:
            loaded = self._loaded()
            if name not in loaded:
                answer = self._send("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder})
                if answer.is_success:
                    return
                if _ALREADY not in answer.text:  # by another process, since we looked
                    raise ServingError(f"engine {self._url} does not load '{name}' from {folder}: {_reason(answer)}")
                loaded = self._loaded()
            if loaded.get(name, folder) != folder:
                raise ServingError(
                    f"engine {self._url} holds '{name}' from {loaded[name]}, not from {folder}; a name is never used "
                    "twice: unload it, and find out who loaded it"
                )

    def unload(self, name: str) -> None:
        with self._locks[name]:
            answer = self._send("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        if not answer.is_success and _NOT_LOADED not in answer.text:
            raise ServingError(f"engine {self._url} does not unload '{name}': {_reason(answer)}")

    def list(self) -> tuple[str, ...]:
        return tuple(sorted(self._loaded()))

    def probe(self, model: str, texts: tuple[str, ...]) -> tuple[float, ...]:
        return tuple(self._score(model, text) for text in texts)

    def health(self) -> bool:
        try:
            return self._send("GET", "/health").is_success
        except ServingError:
            return False

    def _loaded(self) -> dict[str, str]:
        """Adapter to the folder that the engine read it from."""
        answer = self._send("GET", "/v1/models")
        if not answer.is_success:
            raise ServingError(f"engine {self._url} does not list its models: {_reason(answer)}")
        models = answer.json()["data"]
        bases = [model["id"] for model in models if not model.get("parent")]
        if self._model_id not in bases:
            raise ServingError(f"engine {self._url} serves {', '.join(bases)}, not the base model '{self._model_id}'")
        return {model["id"]: model["root"] for model in models if model.get("parent")}

    def _score(self, model: str, text: str) -> float:
        body = {
            "model": model,
            "prompt": text,
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
            "add_special_tokens": False,
        }
        answer = self._send("POST", "/v1/completions", body)
        if not answer.is_success:
            raise ServingError(f"engine {self._url} does not score a text under '{model}': {_reason(answer)}")
        # One entry per token: none for the first, else the token itself and nothing beside it.
        scored = answer.json()["choices"][0]["prompt_logprobs"][1:]
        return float(sum(entry["logprob"] for token in scored for entry in token.values()))

    def _send(self, method: str, path: str, body: dict[str, object] | None = None) -> httpx.Response:
        limit = httpx.Timeout(_LOOK_S) if method == "GET" else httpx.USE_CLIENT_DEFAULT
        try:
            answer = self._client.request(method, path, json=body, timeout=limit)
        except httpx.TransportError as error:
            raise EngineUnavailable(
                f"engine {self._url} does not answer ({type(error).__name__}); see its log, or start it"
            ) from error
        if answer.status_code in (429, 502, 503, 504) or (answer.status_code == 500 and _DEAD in answer.text):
            raise EngineUnavailable(f"engine {self._url} cannot take requests now: {_reason(answer)}")
        return answer


def _reason(answer: httpx.Response) -> str:
    """What the engine said, in one line."""
    if answer.status_code == 401:
        return "401 Unauthorized; TUNELOOP_ENGINE_KEY must be the key that it was started with"
    if answer.status_code == 404 and '"detail"' in answer.text:
        return "404, no such path; it was started without loading at run time (see infra/launch/engine.sh)"
    try:
        said = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        said = answer.text
    return f"{answer.status_code} {' '.join(str(said).split())[:300]}"
