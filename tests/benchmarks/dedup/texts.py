"""Texts to search, half Chinese and half English: made, seeded, and deliberately hard.

A third are new, a third are copies of earlier ones with a few words changed, dropped or added, so that very many pairs
lie about the threshold; a fifth fill the slots of templates and share most of their words; the rest are repeated as
they are.
"""

import random
from collections.abc import Callable

from tests.benchmarks.words import CHINESE, ENGLISH

_TEMPLATES = (
    "Thank you for contacting us about your {}. Please open the page of your {}, choose {} and follow the steps that "
    "are shown there. It usually takes a while until the {} is confirmed; you will get a message as soon as it is.",
    "Dear customer, we are sorry to hear that your {} did not arrive with the {}. We have asked our {} to look for it "
    "and will come back to you by {} at the latest. You need not do anything about the {} in the meantime.",
    "您好，关于您咨询的{}问题，请您登录官网，在{}页面点击{}，按照页面提示操作即可。一般需要等待一段时间，{}确认以后我们会发送短信通知。",
    "亲，非常抱歉给您带来不便，您反馈的{}和{}我们已经转交给{}处理，最晚在{}之前给您答复，在此期间您的{}不会受到影响，请您放心。",
)


def make_texts(count: int, seed: int) -> list[str]:
    """So many texts, of about 160 characters each."""
    chance = random.Random(seed)
    texts: list[str] = []
    for _ in range(count):
        kind = chance.random()
        if kind < 0.35 or len(texts) < 10:
            texts.append(_new(chance))
        elif kind < 0.70:
            texts.append(_changed(chance.choice(texts), chance))
        elif kind < 0.90:
            texts.append(_filled(chance))
        else:
            texts.append(chance.choice(texts))
    return texts


def _new(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return " ".join(_sentence(chance, ENGLISH, " ", ".").capitalize() for _ in range(chance.randint(1, 6)))
    return "".join(_sentence(chance, CHINESE, "", "。") for _ in range(chance.randint(2, 14)))


def _sentence(chance: random.Random, words: list[str], between: str, end: str) -> str:
    return between.join(chance.choices(words, k=chance.randint(4, 12))) + end


def _changed(text: str, chance: random.Random) -> str:
    """A few of its words dropped, doubled or exchanged, anywhere."""
    english = " " in text
    parts = text.split(" ") if english else list(text)
    words = ENGLISH if english else [char for word in CHINESE for char in word]
    edits: tuple[Callable[[str], list[str]], ...] = (
        lambda _: [],
        lambda part: [part, part],
        lambda _: [chance.choice(words)],
    )
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(parts))
        parts[place : place + 1] = chance.choice(edits)(parts[place]) if len(parts) > 4 else [parts[place]]
    return (" " if english else "").join(parts)


def _filled(chance: random.Random) -> str:
    template = chance.choice(_TEMPLATES)
    words = ENGLISH if template.isascii() else CHINESE
    return template.format(*(chance.choice(words) for _ in range(template.count("{}"))))
