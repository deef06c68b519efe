"""The golden suite of a world's business: its rules of form, and questions with the page that answers them."""

import random
from functools import cache

from evals.worlds.content import Content, load_content
from pipeline.dataset.suite import Suite

_ITEMS = 30


@cache
def golden_suite(business: str) -> Suite:
    """Always the same questions of a business; who asks one of them is not learned from."""
    content = load_content(business)
    questions = content.draw(random.Random(f"golden/{business}"), _ITEMS)
    system = {"role": "system", "content": content.system}
    return Suite.model_validate(
        {
            "rules": [
                {"kind": "starts_with", "text": content.style.opening},
                {"kind": "ends_with", "text": content.style.closing},
                _length(content),
            ],
            "items": [
                {
                    "id": f"{question.topic}-{number}",
                    "messages": [system, {"role": "user", "content": question.text}],
                    "checks": [{"kind": "contains", "text": content.facts[question.topic].page}],
                }
                for number, question in enumerate(questions)
            ],
        }
    )


def _length(content: Content) -> dict[str, object]:
    kind = "max_words" if content.language == "en" else "max_chars"
    return {"kind": kind, "limit": content.style.max_length}
