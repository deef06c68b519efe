"""Text as it is compared: repaired, in one width and spacing, with or without its punctuation.

Nothing here changes what is trained on except `repair_text`; normal forms exist for comparing only.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

_FENCE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_SPACE = re.compile(r"\s+")
# A separator between digits and a sign before a digit carry meaning: 1.5 is not 15, and -5 is not 5.
_MEANINGFUL = re.compile(r"(?<=\d)[.,:/\-](?=\d)|(?<![^\W_])-(?=\d)")
_KEPT_PUNCTUATION = frozenset("%‰#@&*/\\_§")


def repair_text(text: str) -> str:
    """Join surrogate pairs, turn lone surrogates into U+FFFD, and change nothing else."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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
    """`normalise` without case, spaces and sentence punctuation, for duplicates and the golden suite.

    A text of nothing but punctuation keeps it, so that "?" and "!" stay different.
    """
    normal = normalise(text).casefold()
    return _bare(normal) or normal


def edit_is_trivial(before: str, after: str) -> bool:
    """Whether an edit changes only Unicode form, width, spaces or sentence punctuation, and no code.

    Code blocks and inline code must be the same to the character: white space means something there.
    """
    if _FENCE.findall(before) != _FENCE.findall(after):
        return False
    return _bare(normalise(_FENCE.sub("", before))) == _bare(normalise(_FENCE.sub("", after)))


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


def _bare(normal: str) -> str:
    kept = {match.start() for match in _MEANINGFUL.finditer(normal)}
    return "".join(char for at, char in enumerate(normal) if at in kept or not _is_mark(char))


def _is_mark(char: str) -> bool:
    return char not in _KEPT_PUNCTUATION and unicodedata.category(char)[0] in "PZC"
