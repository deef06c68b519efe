"""One text in both languages."""

from typing import NamedTuple


class Text(NamedTuple):
    """`{n:answer/answers}` in an English text writes the number with the right form of the noun."""

    en: str
    zh: str
