"""One OpenAI-compatible endpoint, asked politely: few requests at a time, repeated when it is only busy."""

import logging
import math
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx
from pydantic import JsonValue

from pipeline.clean.text import repair_text
from pipeline.errors import EngineUnavailable, ServingError
from pipeline.records import Message, Record, canonical_json

_log = logging.getLogger(__name__)
PAUSES_S = (0.0, 0.25, 1.0, 4.0, 16.0)
"""Before each try of a request: five in all, 21 seconds from the first to the last."""
_LOOK_S = 10.0
"""For an engine to say what it serves, which takes it no computing."""
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


_TOO_LONG = re.compile(r"context length|maximum model length|max_model_len|too long|too large", re.IGNORECASE)
"""What engines say of a prompt that does not fit; the status, 400, is that of any other fault of a request."""


class PromptRefused(ServingError):
    """The engine takes no such prompt."""


class PromptTooLong(PromptRefused):
    """The prompt, with the answer it may get, does not fit into the engine's context."""


class Endpoint(Record):
    """A model behind an OpenAI-compatible URL."""

    url: str
    """Base URL without `/v1`."""
    model: str
    api_key: str = ""


def ask(
    client: httpx.Client,
    endpoint: Endpoint,
    messages: tuple[Message, ...],
    tools: tuple[dict[str, JsonValue], ...],
    decoding: dict[str, JsonValue],
    pauses_s: Sequence[float] = PAUSES_S,
) -> str:
    """The model's answer as text; a tool call is its canonical JSON.

    Raises:
        EngineUnavailable: it stayed unreachable or busy over all tries.
        PromptRefused: it takes no such prompt (400, 413 or 422); `PromptTooLong` where it says so.
        ServingError: it refused, or answered something that is no chat completion.
    """
    body: dict[str, Any] = {"model": endpoint.model, "messages": list(messages), **decoding}
    if tools:
        body["tools"] = list(tools)
    reply = complete(client, endpoint, body, pauses_s)
    try:
        message = reply["choices"][0]["message"]
        content, calls = message.get("content"), message.get("tool_calls")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ServingError(
            f"{endpoint.url}: model '{endpoint.model}' sent no chat completion; is this the URL of its engine?"
        ) from error
    if calls:
        return repair_text(canonical_json([call.get("function") for call in calls]))
    # An engine may cut an answer within a character and write half of it.
    return repair_text(content) if isinstance(content, str) else ""


class ReferenceLogprobs(NamedTuple):
    """How likely a model finds the answer that a user accepted, in nats."""

    per_token: float | None
    """Mean over the answer's tokens, with those that end the turn; None where the prompt's end is not found."""
    chosen: float | None
    rejected: float | None
    """Sums over the tokens in which the accepted and the rejected answer differ; None without a rejected one."""


def reference_logprobs(
    client: httpx.Client,
    endpoint: Endpoint,
    prompt: tuple[Message, ...],
    accepted: str,
    rejected: str | None = None,
    pauses_s: Sequence[float] = PAUSES_S,
) -> ReferenceLogprobs:
    """Log-probabilities of an accepted answer, and of the one it was preferred over.

    The engine renders the conversations with its own chat template and scores them as prompts (vLLM's
    `prompt_logprobs`), so no tokenizer is needed here. Where the answer begins is known from the length of the prompt
    alone. The tokens that both answers share at the start are left out of the two sums: they add the same to both.

    Raises:
        EngineUnavailable, PromptRefused, ServingError: as `ask`; also when the engine cannot score prompts.
    """
    first = _prompt_logprobs(client, endpoint, (*prompt, {"role": "assistant", "content": accepted}), pauses_s)
    begins = _prompt_tokens(client, endpoint, prompt, pauses_s) - 1  # of the first token nothing is known
    own = [value for _, value in first[begins:]]
    per_token = sum(own) / len(own) if begins > 0 and own else None
    if rejected is None:
        return ReferenceLogprobs(per_token, None, None)
    second = _prompt_logprobs(client, endpoint, (*prompt, {"role": "assistant", "content": rejected}), pauses_s)
    shared = 0
    for (left, _), (right, _) in zip(first, second, strict=False):
        if left != right:
            break
        shared += 1
    sums = (sum(value for _, value in side[shared:]) for side in (first, second))
    return ReferenceLogprobs(per_token, *sums)


def is_up(client: httpx.Client, endpoint: Endpoint) -> bool:
    """Whether the engine answers at all: what it could not do was then the one request."""
    try:
        response = client.get(f"{endpoint.url}/v1/models", headers=_headers(endpoint), timeout=_LOOK_S)
    except httpx.TransportError:
        return False
    return response.status_code < 500


def base_model(client: httpx.Client, endpoint: Endpoint) -> Endpoint:
    """The endpoint with the name of the base model that its engine serves.

    Raises:
        EngineUnavailable: nobody answers there.
        ServingError: it is no engine that lists its models, or serves several that are no adapters.
    """
    try:
        response = client.get(f"{endpoint.url}/v1/models", headers=_headers(endpoint), timeout=_LOOK_S)
    except httpx.TransportError as error:
        raise EngineUnavailable(f"{endpoint.url}: no answer ({type(error).__name__}); is the engine up?") from error
    try:
        models = response.raise_for_status().json()["data"]
        names = [model["id"] for model in models if not model.get("parent")]
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServingError(
            f"{endpoint.url}: no list of models at /v1/models (status {response.status_code}); is this an engine's URL?"
        ) from error
    if len(names) != 1:
        raise ServingError(f"{endpoint.url} serves {len(names)} base models ({', '.join(names)}); name one: URL#MODEL")
    return endpoint.model_copy(update={"model": names[0]})


def _prompt_tokens(
    client: httpx.Client, endpoint: Endpoint, prompt: tuple[Message, ...], pauses_s: Sequence[float]
) -> int:
    """Tokens up to where an answer begins; 0 where the engine does not count them."""
    body = {"model": endpoint.model, "messages": list(prompt), "max_tokens": 1, "temperature": 0}
    usage = complete(client, endpoint, body, pauses_s).get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) else 0


def _prompt_logprobs(
    client: httpx.Client, endpoint: Endpoint, messages: tuple[Message, ...], pauses_s: Sequence[float]
) -> list[tuple[str, float]]:
    """Token ids and log-probabilities of a rendered conversation, without its first token, which has none."""
    body = {
        "model": endpoint.model,
        "messages": list(messages),
        "add_generation_prompt": False,
        "prompt_logprobs": 0,
        "max_tokens": 1,
        "temperature": 0,
    }
    entries = complete(client, endpoint, body, pauses_s).get("prompt_logprobs")
    if not isinstance(entries, list):
        raise ServingError(f"{endpoint.url}: no `prompt_logprobs` in the reply; set `max_pairs` to 0 for this engine")
    found = [(token, info["logprob"]) for entry in entries if entry for token, info in list(entry.items())[:1]]
    if not all(isinstance(value, int | float) and math.isfinite(value) for _, value in found):
        raise ServingError(
            f"{endpoint.url}: model '{endpoint.model}' gave a log-probability that is no number; its weights are broken"
        )
    return found


def complete(
    client: httpx.Client, endpoint: Endpoint, body: dict[str, Any], pauses_s: Sequence[float] = PAUSES_S
) -> dict[str, Any]:
    """The reply to a chat completion's request, unread; empty where another server answers something else.

    Raises:
        EngineUnavailable, PromptRefused, ServingError: as `ask`.
    """
    where = f"{endpoint.url}: model '{endpoint.model}'"
    problem = ""
    for pause in pauses_s:
        if problem:
            _log.warning("%s: %s; trying again in %s s", where, problem, pause)
            time.sleep(pause)
        try:
            response = client.post(f"{endpoint.url}/v1/chat/completions", json=body, headers=_headers(endpoint))
        except httpx.TransportError as error:
            problem = f"no answer ({type(error).__name__})"
            continue
        if response.status_code in _BUSY:
            problem = f"answered {response.status_code}"
            continue
        if response.status_code in (400, 413, 422):
            told = _message(response)
            kind = PromptTooLong if response.status_code == 413 or _TOO_LONG.search(told) else PromptRefused
            raise kind(f"{where} refused a prompt with {response.status_code}: {told}")
        if response.status_code != 200:
            raise ServingError(f"{where} answered {response.status_code}: {_message(response)}")
        try:
            reply = response.json()
        except ValueError:
            reply = None  # some other server: the caller misses what it needs and says so
        return reply if isinstance(reply, dict) else {}
    raise EngineUnavailable(f"{where}: {problem} in {len(pauses_s)} tries; is the engine up?")


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}


def _message(response: httpx.Response) -> str:
    """The engine's own words, cut short and without the key: they name sizes and names, never the prompt."""
    try:
        error = response.json().get("error")
        text = error.get("message") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        text = response.reason_phrase
    said = " ".join(str(text).split())
    key = response.request.headers.get("authorization", "").removeprefix("Bearer ")
    return (said.replace(key, "…") if key else said)[:200]
