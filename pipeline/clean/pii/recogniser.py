"""What a recogniser is: the look of one kind of personal data, and what makes a match count."""

from collections.abc import Callable
from dataclasses import dataclass

import regex

_FLAGS = regex.IGNORECASE | regex.MULTILINE

HAN = "\u4e00-\u9fa5"
"""For use inside brackets."""
LETTERS_BEFORE = r"(?<![A-Za-z0-9])"
LETTERS_AFTER = r"(?![A-Za-z0-9])"
"""Borders of codes of letters and digits. `\b` fails beside Chinese, whose characters are word characters."""
DIGITS_BEFORE = r"(?<!\d)(?<!\d[.])"
DIGITS_AFTER = r"(?!\d)(?![.]\d)"
"""Borders of numbers: no further digit, also not beyond a decimal point. Letters may be glued to them."""


@dataclass(frozen=True)
class Recogniser:
    """What an entity looks like: the whole pattern, or its group `value`.

    A match counts when `check` holds for it, or `context` stands shortly before it, or it has neither.
    """

    entity: str
    pattern: "regex.Pattern[str]"
    trigger: tuple[str, ...]
    """One of these stands in the `shape` of every text that the pattern matches in."""
    check: Callable[[str], bool] | None = None
    context: "regex.Pattern[str] | None" = None


def look(
    entity: str, pattern: str, trigger: str, check: Callable[[str], bool] | None = None, context: str | None = None
) -> Recogniser:
    """A recogniser from the sources of its patterns, in which case does not count.

    Args:
        entity: what it finds.
        pattern: what that looks like.
        trigger: literals of the text's shape, with | between them.
        check: of a match.
        context: to stand before a match.
    """
    near = regex.compile(context, _FLAGS) if context else None
    return Recogniser(entity, regex.compile(pattern, _FLAGS), tuple(shape(trigger).split("|")), check, near)


FOREIGN_LETTER = "é"
_SHAPES = {code: FOREIGN_LETTER for code in range(0xC0, 0x250) if chr(code).isalpha()}
_SHAPES |= dict.fromkeys(map(ord, "123456789"), "0")


def shape(folded: str) -> str:
    """A text without case, with 0 for every digit and é for every Latin letter that English does not have.

    Whether a literal stands in it costs next to nothing to know.
    """
    return folded.casefold().translate(_SHAPES)


def never(_: str) -> bool:
    """The check of shapes that say nothing without their context."""
    return False
