"""What a business says about personal data: the section `pii` of its file.

Apart from the recognisers it steers, because every process reads the configuration and few load recognisers.
"""

from typing import Annotated, Literal, TypeAlias

import regex
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pipeline.records import Record, Share

ScoredEntity: TypeAlias = Literal["PERSON", "LOCATION", "PHONE", "SSN", "PASSPORT", "DRIVER_LICENSE", "CRYPTO"]
"""Kinds that are found with a score below certainty. What a pattern of ours finds is certain and always goes."""

_PROBE_CHARS = 64
_PROBE_SECONDS = 0.5
"""Of processor time: a pattern that backtracks exponentially would need years on a probe, any other microseconds."""
_PROBED = 24
"""As many of a pattern's own characters are tried."""
_COMMON = "aA1 -.@中"
_MIN_CHARS, _MIN_HAN = 4, 2


def compile_pattern(source: str) -> "regex.Pattern[str]":
    """As the configuration's patterns are meant: case counts unless they say `(?i)`; texts are in half width."""
    return regex.compile(source)


def _sound_pattern(source: str) -> str:
    try:
        pattern = compile_pattern(source)
    except regex.error as error:
        raise ValueError(f"no valid regular expression ({error}); mend it, and put it in single quotes") from error
    if pattern.search(""):
        raise ValueError("it matches the empty text; make a part of it obligatory")
    own = dict.fromkeys(char for char in source if char.isalnum())
    for char in [*_COMMON, *list(own)[:_PROBED]]:
        for ending in ("", "\n", "!"):
            try:
                pattern.search(char * _PROBE_CHARS + ending, timeout=_PROBE_SECONDS)
            except TimeoutError as error:
                raise ValueError(
                    f"it does not come to an end on {_PROBE_CHARS} times {char!r}; a repetition in a repetition, such "
                    "as (a+)+, must go"
                ) from error
    return source


def _as_text(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError("put it in quotes: YAML takes it for a number")
    return value


def _distinct_value(value: str) -> str:
    signs = [char for char in value if char.isalnum()]
    if len(signs) < _MIN_CHARS and sum("\u3400" <= char <= "\u9fff" for char in signs) < _MIN_HAN:
        raise ValueError(
            f"too short to be told from a part of something else; give {_MIN_CHARS} letters or digits, or {_MIN_HAN} "
            "Chinese characters"
        )
    return value


PatternText = Annotated[str, AfterValidator(_sound_pattern)]
AllowedValue = Annotated[str, BeforeValidator(_as_text), AfterValidator(_distinct_value)]


class RecogniserConfig(Record):
    """Something that is personal data in this business only."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    """As `tuneloop pii explain` tells of it."""
    pattern: PatternText
    """Regular expression over the text in half width; the whole match goes, or its group `value`."""
    entity: Annotated[str, Field(pattern=r"^[A-Z]+(_[A-Z]+)*$", max_length=30)]
    """What stands there instead: MEMBER_ID gives <MEMBER_ID_1>."""


class PiiConfig(Record):
    """What is left alone, what goes besides, and how sure a model must be."""

    allow: tuple[AllowedValue, ...] = ()
    """Business data that looks personal, such as the hotel's own telephone: left alone in any spelling."""
    allow_patterns: tuple[PatternText, ...] = ()
    """Left alone as well: what was found and matches one of these from its first to its last character."""
    recognisers: tuple[RecogniserConfig, ...] = ()
    thresholds: dict[ScoredEntity, Share] = {}
    """Least score by kind, 0.4 where nothing is said; names of persons and places have 0.85."""
    placeholders: Literal["labels", "surrogates"] = "labels"
    """What stands where personal data stood: `<PHONE_1>`, or a number of the same form that nobody has."""

    @model_validator(mode="after")
    def _names_differ(self) -> "PiiConfig":
        names = [recogniser.name for recogniser in self.recognisers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two recognisers have the name '{twice[0]}'; rename one")
        return self
