"""Text as it is compared: repaired, in one width and spacing, with or without its punctuation.

Nothing here changes what is trained on except `repair_text`; normal forms exist for comparing only.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache

import regex
from pydantic import JsonValue

from pipeline.records import canonical_json

CODE = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`|(?:\A|(?<=\n)[ \t]*\n)(?:(?: {4}|\t)[^\n]*(?:\n|\Z))+", re.DOTALL
)
"""What Markdown shows as code: fenced, inline, or indented below a blank line."""
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_HAN = ((0x3400, 0xA000), (0xF900, 0xFB00), (0x20000, 0x32000))
_SPACE = re.compile(r"\s+")
# A separator between digits and a sign before a digit carry meaning: 1.5 is not 15, and -5 is not 5.
_MEANINGFUL = r"(?<=\d)[.,:/\-](?=\d)|(?<![^\W_])-(?=\d)"
_MARK = regex.compile(rf"(?V1)(?:{_MEANINGFUL})(*SKIP)(*FAIL)|[[\p{{P}}\p{{Z}}\p{{C}}]--[%‰#@&*/\\_§]]")


def repair_text(text: str) -> str:
    """Join surrogate pairs, turn lone surrogates into U+FFFD, and change nothing else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def repair_json(value: JsonValue) -> JsonValue:
    """`repair_text` on every string of a JSON value, keys included."""
    if isinstance(value, str):
        return repair_text(value)
    if isinstance(value, list):
        return [repair_json(item) for item in value]
    if isinstance(value, dict):
        return {repair_text(key): repair_json(item) for key, item in value.items()}
    return value


def normalise(text: str) -> str:
    """The form for comparing: NFKC (so full width equals half width), nothing invisible, single spaces, stripped."""
    return _SPACE.sub(" ", _INVISIBLE.sub("", unicodedata.normalize("NFKC", repair_text(text)))).strip()


def comparison_key(text: str) -> str:
    """`normalise` without case, script, spaces and sentence punctuation, for duplicates and the golden suite.

    A text of nothing but punctuation keeps it, so that "?" and "!" stay different.
    """
    normal = fold_script(normalise(text).casefold())
    return _bare(normal) or normal


def edit_is_trivial(before: str, after: str) -> bool:
    """Whether an edit changes only Unicode form, width, spaces or sentence punctuation, and no code.

    Code blocks and inline code must be the same to the character: white space means something there.
    """
    if CODE.findall(before) != CODE.findall(after):
        return False
    return _bare(normalise(CODE.sub("", before))) == _bare(normalise(CODE.sub("", after)))


def message_text(message: Mapping[str, JsonValue]) -> str:
    """The text of a message: its string content, or its text parts joined by line breaks; "" where there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def is_system(message: Mapping[str, JsonValue]) -> bool:
    """Whether it is an instruction of the business and no turn of the conversation."""
    return message.get("role") in ("system", "developer")


def last_user_text(messages: Sequence[Mapping[str, JsonValue]]) -> str:
    """The text of the last user message; "" where there is none."""
    return next((message_text(m) for m in reversed(messages) if m.get("role") == "user"), "")


def compared_texts(
    messages: Sequence[Mapping[str, JsonValue]], answer: Mapping[str, JsonValue], edited: str | None
) -> tuple[str, str, str, str]:
    """What must be alike in duplicates: answer (with its tool calls), last question, edit, what was said before."""
    calls = answer.get("tool_calls")
    last = max((at for at, message in enumerate(messages) if message.get("role") == "user"), default=len(messages))
    before = "\n".join(message_text(message) for message in messages[:last] if not is_system(message))
    said = message_text(answer) + (canonical_json(calls) if calls else "")
    return said, last_user_text(messages), edited or "", before


def fold_script(text: str) -> str:
    """Traditional characters as simplified ones, one for one."""
    return text if text.isascii() else text.translate(simplified())


@cache
def simplified() -> dict[int, str]:
    """Code point of each traditional character to its simplified one."""
    from opencc import OpenCC  # the gateway reads texts as well, and never compares any

    han = [chr(code) for first, end in _HAN for code in range(first, end)]
    simple = OpenCC("t2s").convert("\n".join(han)).split("\n")
    return {ord(char): other for char, other in zip(han, simple, strict=True) if char != other}


def _bare(normal: str) -> str:
    bare: str = _MARK.sub("", normal)
    return bare
