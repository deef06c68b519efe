"""Examples become token rows, rendered as the engine renders them. No torch in here.

What is checked is what is trained: the trainers get these ids and tokenise nothing themselves. The prompt's ids are
what the engine feeds the model, and the answer's ids follow them as generated tokens would; encoding prompt and answer
in one piece may merge a token across the border that no generation can produce.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from jinja2 import TemplateError
from pydantic import JsonValue

from pipeline.errors import TrainingError
from pipeline.records import DropReason, Example, Message, PreferenceExample, SftExample, UnpairedExample


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that rendering needs."""

    bos_token_id: int | None
    eos_token_id: int | None

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any:
        """Text of a conversation (`tokenize=False`)."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text."""

    def decode(self, token_ids: Any) -> Any:
        """Text of token ids, special tokens included."""


@dataclass(frozen=True)
class SftRow:
    """Token ids of a prompt and of the answer to imitate; the answer ends with the end-of-turn token.

    The fields of all rows: `weight` scales the row's loss; `owner` is whose example it is, by a salted hash.
    """

    prompt: list[int]
    completion: list[int]
    weight: float
    owner: str


@dataclass(frozen=True)
class PairRow:
    """Token ids of a prompt and of two answers to it."""

    prompt: list[int]
    chosen: list[int]
    rejected: list[int]
    weight: float
    owner: str


@dataclass(frozen=True)
class VoteRow:
    """Token ids of a prompt and of an answer that was liked or not."""

    prompt: list[int]
    completion: list[int]
    label: bool
    weight: float
    owner: str


Row = TypeVar("Row", SftRow, PairRow, VoteRow)


@dataclass(frozen=True)
class Rendered(Generic[Row]):
    """The rows of one kind and how many examples gave none, by reason."""

    rows: tuple[Row, ...]
    dropped: Counter[DropReason]
    shortened: int
    """Rows whose oldest turns were left out to fit."""


@dataclass(frozen=True)
class Rendering:
    """How conversations become ids: the tokenizer with its chat template, and the limits."""

    tokenizer: Tokenizer
    stop_ids: frozenset[int]
    """Tokens at which the engine stops: the end of a turn."""
    max_length: int
    """Tokens of prompt and answer together."""

    def sft(self, examples: Iterable[SftExample]) -> Rendered[SftRow]:
        """Rows to imitate."""
        found = _Collector[SftRow]()
        for example in examples:
            if (tokens := found.keep(self, example, (example.completion,))) is not None:
                found.rows.append(SftRow(tokens.prompt, tokens.answers[0], *_worth(example)))
        return found.result()

    def pairs(self, examples: Iterable[PreferenceExample]) -> Rendered[PairRow]:
        """Pairs; both answers follow the same prompt."""
        found = _Collector[PairRow]()
        for example in examples:
            if (tokens := found.keep(self, example, (example.chosen, example.rejected))) is None:
                continue
            chosen, rejected = tokens.answers
            if chosen == rejected:
                found.dropped[DropReason.IDENTICAL] += 1
            else:
                found.rows.append(PairRow(tokens.prompt, chosen, rejected, *_worth(example)))
        return found.result()

    def votes(self, examples: Iterable[UnpairedExample]) -> Rendered[VoteRow]:
        """Liked and disliked answers."""
        found = _Collector[VoteRow]()
        for example in examples:
            if (tokens := found.keep(self, example, (example.completion,))) is not None:
                found.rows.append(VoteRow(tokens.prompt, tokens.answers[0], example.label, *_worth(example)))
        return found.result()

    def tokens(self, example: Example, answers: Sequence[tuple[Message, ...]]) -> "Tokens | DropReason":
        """Ids of the example's prompt and of each answer, the oldest turns left out as far as `max_length` asks.

        Raises:
            TrainingError: the chat template does not do what training relies on.
        """
        prompt = [as_rendered(message) for message in example.prompt]
        tools = [dict(tool) for tool in example.tools] or None
        rendered = [[as_rendered(message) for message in answer] for answer in answers]
        if not prompt or any(not answer or {m["role"] for m in answer} != {"assistant"} for answer in rendered):
            return DropReason.BAD_MESSAGES
        for start in _borders(prompt):
            kept = prompt[: _system_turns(prompt)] + prompt[start:]
            try:
                prompt_ids, answer_ids = self._encode(kept, rendered, tools)
            except (TemplateError, TypeError, KeyError, UnicodeError):
                return DropReason.BAD_MESSAGES  # the engine cannot render it either
            if min(map(len, answer_ids)) < 2:  # nothing but the end of the turn
                return DropReason.EMPTY_SIDE
            if len(prompt_ids) + max(map(len, answer_ids)) <= self.max_length:
                return Tokens(prompt_ids, answer_ids, shortened=start > _system_turns(prompt))
        return DropReason.TOO_LONG

    def _encode(
        self, prompt: list[Message], answers: list[list[Message]], tools: list[Any] | None
    ) -> tuple[list[int], list[list[int]]]:
        before = self._render(prompt, tools, add_generation_prompt=True)
        ids = []
        for answer in answers:
            whole = self._render(prompt + answer, tools, add_generation_prompt=False)
            if not whole.startswith(before):
                raise TrainingError(
                    "chat template: a prompt is rendered differently once it is answered, so that training and serving "
                    "would differ; mend chat_template.jinja of the base model"
                )
            if _says_none(whole, (prompt, answer, tools)):
                raise TypeError("the template writes None for an absent value")
            ids.append(self._until_stop(self.tokenizer.encode(whole[len(before) :], add_special_tokens=False)))
        return self.tokenizer.encode(before, add_special_tokens=False), ids

    def _render(self, messages: list[Message], tools: list[Any] | None, *, add_generation_prompt: bool) -> str:
        text = self.tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=False
        )
        return str(text)

    def _until_stop(self, ids: list[int]) -> list[int]:
        """Nothing is generated after the last end-of-turn token, so nothing is learned there."""
        for position in range(len(ids) - 1, -1, -1):
            if ids[position] in self.stop_ids:
                return ids[: position + 1]
        raise TrainingError(
            f"chat template: an answer ends without an end-of-turn token (one of {sorted(self.stop_ids)}), so the "
            "model would never learn to stop; mend chat_template.jinja or eos_token of the base model"
        )


def answers_of(example: Example) -> tuple[tuple[Message, ...], ...]:
    """What the example teaches about, the better answer first."""
    if isinstance(example, PreferenceExample):
        return example.chosen, example.rejected
    return (example.completion,)


def _worth(example: Example) -> tuple[float, str]:
    """Weight and owner."""
    return example.source.weight, " ".join(example.source.user_keys) or example.source.session


@dataclass(frozen=True)
class Tokens:
    """Ids of one prompt and of the answers to it."""

    prompt: list[int]
    answers: list[list[int]]
    shortened: bool


class _Collector(Generic[Row]):
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.dropped: Counter[DropReason] = Counter()
        self.shortened = 0

    def keep(self, rendering: Rendering, example: Example, answers: Sequence[tuple[Message, ...]]) -> Tokens | None:
        match rendering.tokens(example, answers):
            case Tokens() as tokens:
                self.shortened += tokens.shortened
                return tokens
            case reason:
                self.dropped[reason] += 1
                return None

    def result(self) -> Rendered[Row]:
        return Rendered(tuple(self.rows), self.dropped, self.shortened)


def as_rendered(message: Message) -> Message:
    """A message in the form in which vLLM hands it to the chat template: text content (absent content, as in a turn
    of tool calls, is empty), and tool-call arguments as objects."""
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    rendered: Message = {**message, "content": "" if content is None else content}
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        rendered["tool_calls"] = [_parsed_call(call) for call in calls]
    else:
        rendered.pop("tool_calls", None)
    return rendered


def _parsed_call(call: JsonValue) -> JsonValue:
    if not (isinstance(call, dict) and isinstance(function := call.get("function"), dict)):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments else {}
        except ValueError:
            return call
    return {**call, "function": {**function, "arguments": arguments}}


def _system_turns(prompt: Sequence[Message]) -> int:
    return next((i for i, message in enumerate(prompt) if message.get("role") not in ("system", "developer")), 0)


def _borders(prompt: Sequence[Message]) -> Iterator[int]:
    """Where the kept turns may begin: at the first after the system's, else at a later turn of the user."""
    first = _system_turns(prompt)
    yield first
    yield from (i for i in range(first + 1, len(prompt)) if prompt[i].get("role") == "user")


def _says_none(text: str, values: object) -> bool:
    return text.count("None") > sum(leaf.count("None") for leaf in _strings(values))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (str(key), *_strings(inner))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)
