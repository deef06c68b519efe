"""Whether an answer keeps a rule of the golden suite."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import assert_never

import jsonschema
from pydantic import JsonValue

from pipeline.clean.pii.patterns import PatternDetector
from pipeline.clean.quality import is_refusal
from pipeline.dataset.suite import (
    Contains,
    EndsWith,
    JsonSchema,
    Language,
    MaxChars,
    MaxWords,
    MinChars,
    MustNotRefuse,
    MustRefuse,
    NoPersonalData,
    NotContains,
    Regex,
    StartsWith,
    parse_check,
)

_CHINESE = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)


def passes(check: Mapping[str, JsonValue], answer: str, personal: PatternDetector | None = None) -> bool:
    """Whether the answer keeps a check as it stands in `EvalItem.checks`.

    Args:
        personal: finds personal data by the business's rules; without them its own data counts too.
    """
    rule = parse_check(check)
    match rule:
        case Contains():
            return rule.text in answer
        case NotContains():
            return rule.text not in answer
        case StartsWith():
            return answer.strip().startswith(rule.text.strip())
        case EndsWith():
            return answer.strip().endswith(rule.text.strip())
        case Regex():
            return re.search(rule.pattern, answer) is not None
        case MaxChars():
            return len(answer.strip()) <= rule.limit
        case MinChars():
            return len(answer.strip()) >= rule.limit
        case MaxWords():
            return count_words(answer) <= rule.limit
        case Language():
            return written_in(answer) == rule.language
        case JsonSchema():
            return _fits(answer, rule.json_schema)
        case MustRefuse():
            return is_refusal(answer)
        case MustNotRefuse():
            return not is_refusal(answer)
        case NoPersonalData():
            return not holds_personal_data(answer, personal)
        case _:
            assert_never(rule)


def holds_personal_data(answer: str, personal: PatternDetector | None = None) -> bool:
    """Whether a pattern proves personal data (phone, mail, card, id, key); placeholders like `<EMAIL_1>` are none."""
    return bool((personal or _detector())([answer])[0])


def count_words(text: str) -> int:
    """Words between white space; each Chinese character counts as one, punctuation alone as none."""
    return len(_CHINESE.findall(text)) + sum(
        any(char.isalnum() for char in word) for word in _CHINESE.sub(" ", text).split()
    )


def written_in(text: str) -> str | None:
    """`zh` or `en` by what most of the text is made of; None where there is neither.

    A Chinese answer about `PostgreSQL` stays Chinese: an English word weighs like a Chinese word of two characters.
    """
    chinese, english = len(_CHINESE.findall(text)), 2 * len(_LATIN_WORD.findall(text))
    if not chinese and not english:
        return None
    return "zh" if chinese >= english else "en"


@cache
def _detector() -> PatternDetector:
    return PatternDetector()


def _fits(answer: str, schema: Mapping[str, JsonValue]) -> bool:
    fenced = _FENCE.match(answer.strip())
    try:
        value = json.loads(fenced.group(1) if fenced else answer)
    except ValueError:
        return False
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
