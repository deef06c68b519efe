"""One OpenAI-compatible endpoint, asked politely: few requests at a time, repeated when it is only busy."""

import logging
import time
from typing import Any

import httpx
from pydantic import JsonValue

from pipeline.clean.text import repair_text
from pipeline.errors import EngineUnavailable, ServingError
from pipeline.records import Message, Record, canonical_json

_log = logging.getLogger(__name__)
_PAUSES_S = (0.0, 0.25, 1.0, 4.0, 16.0)
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class PromptRefused(ServingError):
    """The engine takes no such prompt, for instance because it is too long for it."""


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
) -> str:
    """The model's answer as text; a tool call is its canonical JSON.

    Raises:
        EngineUnavailable: it stayed unreachable or busy over all tries.
        PromptRefused: it takes no such prompt (400, 413 or 422).
        ServingError: it refused, or answered something that is no chat completion.
    """
    body: dict[str, Any] = {"model": endpoint.model, "messages": list(messages), **decoding}
    if tools:
        body["tools"] = list(tools)
    reply = _post(client, endpoint, body)
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


def pair_logprobs(
    client: httpx.Client, endpoint: Endpoint, prompt: tuple[Message, ...], chosen: str, rejected: str
) -> tuple[float, float]:
    """Log-probabilities (nats) of two answers to one prompt, each summed over the tokens in which they differ.

    The engine renders both conversations with its own chat template and scores them as prompts (vLLM's
    `prompt_logprobs`), so no tokenizer is needed here. The tokens that both share at the start, prompt included, are
    left out: they add the same amount to both sides.

    Raises:
        EngineUnavailable, PromptRefused, ServingError: as `ask`; also when the engine cannot score prompts.
    """
    first = _prompt_logprobs(client, endpoint, (*prompt, {"role": "assistant", "content": chosen}))
    second = _prompt_logprobs(client, endpoint, (*prompt, {"role": "assistant", "content": rejected}))
    shared = 0
    for (left, _), (right, _) in zip(first, second, strict=False):
        if left != right:
            break
        shared += 1
    return sum(value for _, value in first[shared:]), sum(value for _, value in second[shared:])


def _prompt_logprobs(
    client: httpx.Client, endpoint: Endpoint, messages: tuple[Message, ...]
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
    reply = _post(client, endpoint, body)
    entries = reply.get("prompt_logprobs")
    if not isinstance(entries, list):
        raise ServingError(f"{endpoint.url}: no `prompt_logprobs` in the reply; set `max_pairs` to 0 for this engine")
    return [(token, float(info["logprob"])) for entry in entries if entry for token, info in list(entry.items())[:1]]


def _post(client: httpx.Client, endpoint: Endpoint, body: dict[str, Any]) -> dict[str, Any]:
    where = f"{endpoint.url}: model '{endpoint.model}'"
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    problem = ""
    for pause in _PAUSES_S:
        if problem:
            _log.warning("%s: %s; trying again in %s s", where, problem, pause)
            time.sleep(pause)
        try:
            response = client.post(f"{endpoint.url}/v1/chat/completions", json=body, headers=headers)
        except httpx.TransportError as error:
            problem = f"no answer ({type(error).__name__})"
            continue
        if response.status_code in _BUSY:
            problem = f"answered {response.status_code}"
            continue
        if response.status_code in (400, 413, 422):
            raise PromptRefused(f"{where} refused a prompt with {response.status_code}: {_message(response)}")
        if response.status_code != 200:
            raise ServingError(f"{where} answered {response.status_code}: {_message(response)}")
        try:
            reply = response.json()
        except ValueError:
            reply = None  # some other server: the caller misses what it needs and says so
        return reply if isinstance(reply, dict) else {}
    raise EngineUnavailable(f"{where}: {problem} in {len(_PAUSES_S)} tries; is the engine up?")


def _message(response: httpx.Response) -> str:
    """The engine's own words, cut short: they name sizes and names, never the prompt."""
    try:
        error = response.json().get("error")
        text = error.get("message") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        text = response.reason_phrase
    return " ".join(str(text).split())[:200]
