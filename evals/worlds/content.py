"""What a business's users ask and want: one YAML file each in `businesses/`, read by `load_content`.

Questions are templates: `{slot}` stands for any value of that slot list, so that a business has thousands of questions
that are not near each other. The *planted preference* is `truth`: fixed opening, the right page, fixed closing, short.
It is written here apart from the product's golden checks, so that no proof judges the product by its own ruler.
"""

import itertools
import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from evals.worlds.personal import Planted, new_value
from pipeline.errors import DataError
from pipeline.records import BusinessKey, Record

FOLDER = Path(__file__).parent / "businesses"
_FIELD = re.compile(r"\{(\w+)\}")


class Style(Record):
    """The form that users want of every answer."""

    opening: str
    closing: str
    max_length: int
    """Words in English, characters in Chinese."""


class Fact(Record):
    """Where one kind of question is answered."""

    page: str
    about: str


class Personal(Record):
    """A question that carries personal data: written out in `values`, or made for each asking by `{kind}`."""

    topic: str
    text: str
    values: dict[str, str] = {}
    """Kind to value; each stands in `text` word for word."""


class Question(Record):
    """One question of a user and the topic that it belongs to."""

    topic: str
    text: str
    personal: tuple[Planted, ...] = ()


class Comments(Record):
    """What users write beside a vote."""

    up: tuple[str, ...]
    down: tuple[str, ...]


class Content(Record):
    """One business: what is asked, what is wanted."""

    business: BusinessKey
    kind: Literal["retail", "software", "medical", "legal", "finance", "travel"]
    language: Literal["en", "zh"]
    system: str
    style: Style
    answer: str
    """The good answer, with `{page}` where the page goes."""
    facts: dict[str, Fact]
    max_tokens: int
    slots: dict[str, tuple[str, ...]] = {}
    """Name to the values that may stand for it in questions and rambles."""
    questions: dict[str, tuple[str, ...]]
    """Topic to the templates of its questions, without personal data."""
    personal: tuple[Personal, ...]
    comments: Comments
    rambles: tuple[str, ...]
    """Templates of what the untaught model says; `{about}` is the topic's."""

    def plain(self) -> tuple[Question, ...]:
        """All questions without personal data, in the file's order; of a template, all of its fillings."""
        return tuple(
            Question(topic=topic, text=text)
            for topic, templates in self.questions.items()
            for template in templates
            for text in self._fillings(template)
        )

    def private(self) -> tuple[Question, ...]:
        """All questions whose personal data is written out, in the file's order."""
        return tuple(
            Question(topic=item.topic, text=item.text, personal=_planted(item.values))
            for item in self.personal
            if item.values
        )

    def draw(self, rng: random.Random, count: int) -> list[Question]:
        """So many different questions, templates taking turns; fewer where there are no more."""
        templates = [(topic, text) for topic, texts in self.questions.items() for text in texts]
        rng.shuffle(templates)
        known: dict[str, Question] = {}
        most = min(count, sum(len(self._combinations(text)) for _, text in templates))
        while len(known) < most:
            for topic, template in templates:
                text = self.fill(template, rng)
                known.setdefault(text, Question(topic=topic, text=text))
                if len(known) == most:
                    break
        return list(known.values())

    def draw_private(self, rng: random.Random) -> Question:
        """A question with personal data that nobody else has, where its values are not written out."""
        item = rng.choice(self.personal)
        values = item.values or {kind: new_value(kind, self.language, rng) for kind in self.personal_kinds(item)}
        text = self.fill(item.text, rng, values)
        return Question(topic=item.topic, text=text, personal=_planted(values))

    def personal_kinds(self, item: Personal) -> tuple[str, ...]:
        """Which kinds of personal data a template is to be filled with."""
        return tuple(name for name in _FIELD.findall(item.text) if name not in self.slots)

    def fill(self, template: str, rng: random.Random, values: Mapping[str, str] | None = None) -> str:
        """The template with its slots drawn and `values` in their places; an English text begins with a capital."""
        names = dict.fromkeys(_FIELD.findall(template))
        drawn = {name: rng.choice(self.slots[name]) for name in names if name in self.slots}
        return _sentence(template.format_map({**drawn, **(values or {})}))

    def ramble(self, topic: str, rng: random.Random) -> str:
        """What a model says that knows nothing of the planted preference."""
        return self.fill(rng.choice(self.rambles), rng, {"about": self.facts[topic].about})

    def ideal(self, topic: str) -> str:
        """The answer that obeys the planted preference."""
        return self.answer.format(page=self.facts[topic].page)

    def _combinations(self, template: str) -> range:
        size = 1
        for name in dict.fromkeys(_FIELD.findall(template)):
            size *= len(self.slots[name])
        return range(size)

    def _fillings(self, template: str) -> Iterator[str]:
        names = list(dict.fromkeys(_FIELD.findall(template)))
        for values in itertools.product(*(self.slots[name] for name in names)):
            yield _sentence(template.format_map(dict(zip(names, values, strict=True))))


def truth(answer: str, content: Content, topic: str) -> float:
    """How well an answer keeps the planted preference: the share of its four parts, in [0, 1]; nothing said is 0.

    The parts: the opening, the closing, at most `max_length`, and the right page and no other.
    """
    text = answer.strip()
    if not text:
        return 0.0
    length = len(text.split()) if content.language == "en" else len(text)
    pages = {fact.page for fact in content.facts.values() if fact.page in text}
    kept = (
        text.startswith(content.style.opening),
        text.endswith(content.style.closing),
        length <= content.style.max_length,
        pages == {content.facts[topic].page},
    )
    return sum(kept) / len(kept)


def obeys(answer: str, content: Content, topic: str) -> bool:
    """Whether an answer has the form that users want and names the right page, and no other page."""
    return truth(answer, content, topic) == 1.0


@cache
def load_content(business: str) -> Content:
    """Read `businesses/<business>.yaml`.

    Raises:
        DataError: there is no such file, or it is not as `Content` says.
    """
    path = FOLDER / f"{business}.yaml"
    try:
        return Content.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"worlds: no business '{business}' in {FOLDER}; known: {', '.join(businesses())}") from None
    except (yaml.YAMLError, ValidationError) as error:
        raise DataError(f"worlds: {path}: {' '.join(str(error).split())}; mend the file") from None


def businesses() -> list[str]:
    """The keys of all businesses that are described."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def _planted(values: Mapping[str, str]) -> tuple[Planted, ...]:
    return tuple(Planted(kind=kind, value=value) for kind, value in values.items())


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
