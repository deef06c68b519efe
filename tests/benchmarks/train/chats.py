"""Short chats to train on, made of everyday words: their length is what matters here."""

import random
from dataclasses import dataclass

from tests.benchmarks.words import CHINESE, ENGLISH

_QUESTION, _ANSWER = (8, 60), (5, 80)
"""Words, at least and at most."""


@dataclass(frozen=True)
class Chat:
    """One question with the answer to learn and a worse one."""

    question: str
    chosen: str
    rejected: str

    @property
    def prompt(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.question}]


def make_chats(count: int, seed: int) -> list[Chat]:
    """The same seed gives the same chats; each fourth is Chinese."""
    source = random.Random(seed)
    return [_chat(source, CHINESE if number % 4 == 3 else ENGLISH) for number in range(count)]


def _chat(source: random.Random, words: list[str]) -> Chat:
    def text(least: int, most: int) -> str:
        return ("" if words is CHINESE else " ").join(source.choices(words, k=source.randint(least, most)))

    return Chat(text(*_QUESTION), text(*_ANSWER), text(*_ANSWER))
