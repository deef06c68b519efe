"""What any model should still be able to do: short questions with checks that no judgement is needed for.

They have no system prompt of the business: an adapter that answers everything in its own form has forgotten something,
and that is what shows here.
"""

from pathlib import Path
from typing import Literal

from evals.checks import passes
from pipeline.dataset.suite import dump_check, load_suite
from pipeline.records import EvalItem, content_id

_HERE = Path(__file__).parent


def general_items(language: Literal["en", "zh"]) -> list[EvalItem]:
    """All questions of one language."""
    items = []
    for item in load_suite(_HERE / f"general.{language}.yaml").items:
        checks = tuple(dump_check(check) for check in item.checks)
        items.append(
            EvalItem(
                item_id=content_id(["general", language, list(item.messages), list(checks)]),
                set_name="general",
                user_key=f"general:{language}:{item.id}",
                messages=item.messages,
                checks=checks,
            )
        )
    return items


def general_score(item: EvalItem, answer: str) -> float:
    """1 when the answer passes every check, else 0."""
    return float(bool(answer.strip()) and all(passes(check, answer) for check in item.checks))
