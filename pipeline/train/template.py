"""Whether the engine reads a prompt as training does: else what was learned is asked in other words."""

from collections.abc import Callable, Sequence

import httpx

from pipeline.errors import EngineUnavailable, ServingError, TrainingError
from pipeline.records import Example
from pipeline.train.rows import Rendering, Tokens, answers_of

EngineIds = Callable[[Example], Sequence[int]]
"""Token ids of an example's prompt, with what opens the answer, as an engine renders it."""


def check_template(rendering: Rendering, examples: Sequence[Example], engine_ids: EngineIds) -> None:
    """Compare the prompts of some examples.

    Raises:
        TrainingError: names the first one that differs, and where.
    """
    for number, example in enumerate(examples):
        ours = rendering.tokens(example, answers_of(example))
        if not isinstance(ours, Tokens) or ours.shortened:
            continue  # not trained on, or not as it was sent
        theirs = list(engine_ids(example))
        if ours.prompt != theirs:
            at = _first_difference(ours.prompt, theirs)
            raise TrainingError(
                f"row {number} (interaction {example.source.interaction_ids[0]}): training and engine render its "
                f"prompt differently from token {at} on ({_around(ours.prompt, at)} against {_around(theirs, at)}, "
                f"{len(ours.prompt)} and {len(theirs)} tokens): start the engine with the base model's own "
                "chat_template.jinja and tokenizer"
            )


def engine_tokenizer(url: str, model: str, api_key: str) -> EngineIds:
    """Token ids by vLLM's `/tokenize`.

    The returned function raises `EngineUnavailable` when the engine does not answer, `ServingError` when it refuses.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def ids(example: Example) -> Sequence[int]:
        body = {"model": model, "messages": list(example.prompt), "add_generation_prompt": True}
        if example.tools:
            body["tools"] = list(example.tools)
        try:
            answer = httpx.post(f"{url}/tokenize", json=body, headers=headers, timeout=30.0, trust_env=False)
        except httpx.TransportError as error:
            raise EngineUnavailable(f"engine {url}: {type(error).__name__}; is it running?") from error
        if not answer.is_success:
            raise ServingError(f"engine {url} does not tokenise: {answer.status_code} {answer.text[:200]}")
        tokens: list[int] = answer.json()["tokens"]
        return tokens

    return ids


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(ours), len(theirs)))


def _around(ids: Sequence[int], place: int) -> str:
    return f"…{list(ids[max(0, place - 1) : place + 2])}"
