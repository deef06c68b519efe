"""Numbers that a user dictates over several messages ("139", then "12345678"): put together, they are found."""

from collections.abc import Sequence

import regex

from pipeline.clean.pii.patterns import PatternDetector
from pipeline.records import Message

_DIGITS_AT_END = regex.compile(r"\d[\s-]*$")
_DIGITS_AT_START = regex.compile(r"\s*\d(?:[\d -]*\d)?[Xx]?(?![A-Za-z])")
_patterns = PatternDetector()


def join_split_numbers(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, with personal numbers that go over their borders moved whole into the first one.

    Only neighbouring messages of the user count, and only where a pattern finds a number over the border.
    """
    texts = [_text(message) for message in messages]
    for first in range(len(texts) - 1):
        _join_from(first, texts)
    return tuple(
        message if text is None or text == message["content"] else {**message, "content": text}
        for message, text in zip(messages, texts, strict=True)
    )


def _text(message: Message) -> str | None:
    content = message.get("content")
    return content if message.get("role") == "user" and isinstance(content, str) else None


def _join_from(first: int, texts: list[str | None]) -> None:
    """Move what a number that begins in one text goes on with; change the texts in place, or nothing."""
    begins = texts[first]
    if begins is None:
        return
    whole, rest = begins, dict[int, str]()
    for at in range(first + 1, len(texts)):
        text = texts[at]
        more = _DIGITS_AT_START.match(text) if text is not None and _DIGITS_AT_END.search(whole) else None
        if text is None or more is None:
            break
        whole = whole.rstrip() + more.group().strip()
        rest[at] = text[more.end() :]
        if rest[at].strip():
            break
    border = len(begins.rstrip())
    if rest and any(span.start < border < span.end for span in _patterns([whole])[0]):
        texts[first] = whole
        for at, text in rest.items():
            texts[at] = text
