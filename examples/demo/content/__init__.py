"""What the simulated users of the demo ask and want: one YAML file per business, read by `load_content`.

The *planted preference* is `obeys`: fixed opening, the right page, fixed closing, short. It is written here once more,
apart from the product's golden checks, so that the demo does not judge the product with the product's own ruler.
"""

from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from pipeline.errors import DataError
from pipeline.records import BusinessKey, Record

FOLDER = Path(__file__).parent


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
    """A question that carries personal data."""

    topic: str
    text: str
    values: dict[str, str]
    """Kind to value; each stands in `text` word for word."""


class Planted(Record):
    """One value that must be in no snapshot, adapter, report or log of the training side."""

    kind: str
    value: str

    @property
    def structured(self) -> bool:
        """Names are found at a measured rate; everything else must be found always."""
        return self.kind != "name"


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
    language: Literal["en", "zh"]
    system: str
    style: Style
    answer: str
    """The good answer, with `{page}` where the page goes."""
    facts: dict[str, Fact]
    max_tokens: int
    questions: dict[str, tuple[str, ...]]
    """Topic to its questions, without personal data."""
    personal: tuple[Personal, ...]
    comments: Comments

    def plain(self) -> tuple[Question, ...]:
        """All questions without personal data, in the file's order."""
        return tuple(Question(topic=topic, text=text) for topic, texts in self.questions.items() for text in texts)

    def private(self) -> tuple[Question, ...]:
        """All questions with personal data, in the file's order."""
        return tuple(
            Question(
                topic=item.topic,
                text=item.text,
                personal=tuple(Planted(kind=kind, value=value) for kind, value in item.values.items()),
            )
            for item in self.personal
        )

    def ideal(self, topic: str) -> str:
        """The answer that obeys the planted preference."""
        return self.answer.format(page=self.facts[topic].page)


def load_content(business: str) -> Content:
    """Read `content/<business>.yaml`.

    Raises:
        DataError: there is no such file, or it is not as `Content` says.
    """
    path = FOLDER / f"{business}.yaml"
    try:
        return Content.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise DataError(f"demo content: no business '{business}' in {FOLDER}; known: {known}") from None
    except (yaml.YAMLError, ValidationError) as error:
        raise DataError(f"demo content: {path}: {' '.join(str(error).split())}; mend the file") from None


def obeys(answer: str, content: Content, topic: str) -> bool:
    """Whether an answer has the form that users want and names the right page, and no other page."""
    text = answer.strip()
    length = len(text.split()) if content.language == "en" else len(text)
    pages = {fact.page for fact in content.facts.values() if fact.page in text}
    return (
        text.startswith(content.style.opening)
        and text.endswith(content.style.closing)
        and length <= content.style.max_length
        and pages == {content.facts[topic].page}
    )
