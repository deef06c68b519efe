"""The golden suite of a business: fixed questions, and what every right answer keeps.

It is read here so that its questions are never trained on; answers are scored in `evals`.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import jsonschema
import regex
import yaml
from pydantic import AfterValidator, Field, JsonValue, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

from pipeline.clean.text import comparison_key, message_text
from pipeline.errors import ConfigError
from pipeline.records import Message, Record


def _compiles(pattern: str) -> str:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"no valid regular expression ({error})") from error
    return pattern


def _is_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"no valid JSON schema ({error.message})") from error
    resolver = EMPTY_REGISTRY.resolver_with_root(DRAFT202012.create_resource(schema))
    for key, value in _keywords(schema):
        if key == "patternProperties":
            raise ValueError(
                "`patternProperties` may search an answer's keys without end; name them in `properties`, or hold them "
                "to `propertyNames: {pattern: …}`"
            )
        if key == "pattern" and isinstance(value, str):
            _compiles(value)
        if key == "$ref" and isinstance(value, str):
            try:
                resolver.lookup(value)
            except Unresolvable as error:
                raise ValueError(f"no valid JSON schema ($ref '{value}' is nowhere in it)") from error
    return schema


def _keywords(value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """All keys with their values, at any depth."""
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keywords(inner)


Text = Annotated[str, Field(min_length=1)]


class Contains(Record):
    """The answer holds the text, as written."""

    kind: Literal["contains"]
    text: Text


class NotContains(Record):
    """The answer does not hold the text."""

    kind: Literal["not_contains"]
    text: Text


class StartsWith(Record):
    """The answer opens with the text; white space around an answer does not count."""

    kind: Literal["starts_with"]
    text: Text


class EndsWith(Record):
    """The answer closes with the text; white space around an answer does not count."""

    kind: Literal["ends_with"]
    text: Text


class Regex(Record):
    """The pattern (Python's syntax) is found somewhere in the answer."""

    kind: Literal["regex"]
    pattern: Annotated[str, Field(min_length=1), AfterValidator(_compiles)]


class MaxChars(Record):
    """The answer has at most so many characters."""

    kind: Literal["max_chars"]
    limit: int = Field(ge=1)


class MinChars(Record):
    """The answer has at least so many characters."""

    kind: Literal["min_chars"]
    limit: int = Field(ge=1)


class MaxWords(Record):
    """The answer has at most so many words; a Chinese character counts as one."""

    kind: Literal["max_words"]
    limit: int = Field(ge=1)


class Language(Record):
    """The answer is written in the language."""

    kind: Literal["language"]
    language: Literal["zh", "en"]


class JsonSchema(Record):
    """The answer is JSON that fits the schema (draft 2020-12)."""

    # `schema` is a name of pydantic's own.
    kind: Literal["json_schema"]
    json_schema: Annotated[dict[str, JsonValue], AfterValidator(_is_schema)] = Field(alias="schema")


class MustRefuse(Record):
    """The answer declines to help."""

    kind: Literal["must_refuse"]


class MustNotRefuse(Record):
    """The answer does not decline to help."""

    kind: Literal["must_not_refuse"]


class NoPersonalData(Record):
    """The answer holds no personal data that a pattern proves; the business's own telephone is none."""

    kind: Literal["no_personal_data"]


AnswerCheck: TypeAlias = Annotated[
    Contains
    | NotContains
    | StartsWith
    | EndsWith
    | Regex
    | MaxChars
    | MinChars
    | MaxWords
    | Language
    | JsonSchema
    | MustRefuse
    | MustNotRefuse
    | NoPersonalData,
    Field(discriminator="kind"),
]


class GoldenItem(Record):
    """One question whose right answers are known by what they keep."""

    id: Text
    messages: tuple[Message, ...]
    """Written as `messages`, or as `prompt` when it is one user message."""
    checks: tuple[AnswerCheck, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _prompt_is_one_message(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or "prompt" not in value:
            return value
        if "messages" in value:
            raise ValueError("has both `prompt` and `messages`; leave one")
        if not isinstance(value["prompt"], str) or not value["prompt"].strip():
            raise ValueError("`prompt` must be a text")
        rest = {key: field for key, field in value.items() if key != "prompt"}
        return rest | {"messages": [{"role": "user", "content": value["prompt"]}]}

    @field_validator("messages")
    @classmethod
    def _asks_something(cls, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        if not messages or messages[-1].get("role") != "user":
            raise ValueError("must end with a message of role `user`")
        return messages


class Suite(Record):
    """A golden suite."""

    rules: tuple[AnswerCheck, ...] = ()
    """What every answer of the business is held to, on held-out questions as well."""
    items: tuple[GoldenItem, ...] = ()

    @model_validator(mode="after")
    def _ids_differ(self) -> "Suite":
        ids = [item.id for item in self.items]
        twice = sorted({item for item in ids if ids.count(item) > 1})
        if twice:
            raise ValueError(f"item ids stand twice: {', '.join(twice)}")
        unchecked = [item.id for item in self.items if not item.checks and not self.rules]
        if unchecked:
            raise ValueError(f"item '{unchecked[0]}' has no checks and the suite has no rules: it cannot fail")
        return self


_CHECK: TypeAdapter[AnswerCheck] = TypeAdapter(AnswerCheck)


def parse_check(value: Mapping[str, JsonValue]) -> AnswerCheck:
    """A check as it stands in `EvalItem.checks` (`dump_check` writes it)."""
    return _CHECK.validate_python(value)


def dump_check(check: AnswerCheck) -> dict[str, JsonValue]:
    """JSON that `parse_check` reads back."""
    dumped: dict[str, JsonValue] = check.model_dump(mode="json", by_alias=True)
    return dumped


def load_suite(path: Path) -> Suite:
    """Read a suite.

    Raises:
        ConfigError: names the file and every wrong key and value.
    """
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; write it, or take `suite` out of the business's file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: must hold `rules:` and `items:`, found {type(value).__name__}")
    try:
        suite = Suite.model_validate(value)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(path, value, e) for e in error.errors())) from error
    if not suite.rules and not suite.items:
        raise ConfigError(
            f"{path}: holds neither `rules` nor `items`: it checks nothing; add some, or take `suite` out of the "
            "business's file"
        )
    return suite


def golden_questions(suite: Suite) -> tuple[str, ...]:
    """The last user message of each item."""
    return tuple(message_text(item.messages[-1]) for item in suite.items)


def golden_prompts(questions: Iterable[str]) -> frozenset[str]:
    """Questions that the gate always asks, in the form in which `pipeline.clean` compares texts."""
    return frozenset(map(comparison_key, questions))


def _explain(path: Path, suite: Mapping[str, Any], error: ErrorDetails) -> str:
    where = ".".join(str(part) for part in error["loc"]) or "(whole file)"
    match error["loc"]:
        case ("items", int(number), *_):
            item = suite["items"][number]
            where += f" (item '{item['id']}')" if isinstance(item, Mapping) and "id" in item else ""
    if error["type"] == "extra_forbidden":
        return f"{path}: {where}: unknown key; remove it or mend its spelling"
    if error["type"] == "missing":
        return f"{path}: {where}: missing; add it"
    shown = "" if error["type"] == "value_error" else f"{error['input']!r} is impossible: "
    return f"{path}: {where}: {shown}{error['msg'].removeprefix('Value error, ')}"
