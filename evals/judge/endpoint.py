"""A judge behind any OpenAI-compatible endpoint.

Its replies are held to a JSON schema where the endpoint knows how; where it refuses `response_format`, the prompt alone
asks for JSON. Either way a reply is read by the same strict rules.
"""

from collections.abc import Sequence
from typing import Any

import httpx

from evals.endpoint import PAUSES_S, Endpoint, PromptRefused, PromptTooLong, complete
from evals.judge.base import Matchup, Ruling
from evals.judge.prompt import VERDICT_SCHEMA, parse_verdict, render
from pipeline.errors import ServingError

_MAX_TOKENS = 256
_HELD_TO_SCHEMA = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "verdict", "strict": True, "schema": VERDICT_SCHEMA},
    }
}


class EndpointJudge:
    """Asks a model at temperature 0.

    Args:
        endpoint: base URL without `/v1`, model and key.
        client: for all requests; of as many connections as threads that call.
        seed: sent with every request.
        pauses_s: before each try of a request.
    """

    def __init__(
        self, endpoint: Endpoint, client: httpx.Client, seed: int, pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._seed = seed
        self._pauses_s = pauses_s
        self._knows_schemas = True

    @property
    def name(self) -> str:
        return f"{self._endpoint.model} at {self._endpoint.url}"

    def compare(self, matchup: Matchup) -> Ruling:
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": render(matchup),
            "temperature": 0,
            "seed": self._seed,
            "max_tokens": _MAX_TOKENS,
        }
        reply = self._reply(body)
        try:
            content = reply["choices"][0]["message"].get("content")
            usage = reply["usage"]
            ruling = Ruling(
                parse_verdict(content) if isinstance(content, str) else None,
                int(usage["prompt_tokens"]),
                int(usage["completion_tokens"]),
            )
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise ServingError(
                f"judge {self.name}: sent no chat completion with its `usage`, without which no cost can be counted; "
                "is this the URL of an OpenAI-compatible endpoint?"
            ) from error
        return ruling

    def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._knows_schemas:
            try:
                return complete(self._client, self._endpoint, body | _HELD_TO_SCHEMA, self._pauses_s)
            except PromptTooLong:
                raise
            except PromptRefused:
                # It may be the schema or the prompt that is refused: only the same prompt without the schema can tell.
                reply = complete(self._client, self._endpoint, body, self._pauses_s)
                self._knows_schemas = False
                return reply
        return complete(self._client, self._endpoint, body, self._pauses_s)
