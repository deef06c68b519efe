"""`tuneloop pii`: what is found in a text, by which rule, and what would stand there instead.

The text goes to the terminal and nowhere else: neither to a log nor to a file.
"""

from typing import Literal

import regex
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.terminal import plain
from pipeline.clean.pii import Rules, make_detector
from pipeline.clean.pii.explain import Explanation, explain
from pipeline.config import BusinessConfig

_VALUE_CHARS = 120
_TEXT_CHARS = 20_000
_HAN = regex.compile(r"\p{Han}")


def explain_text(text: str, business: BusinessConfig | None) -> None:
    """Print what a text holds, with a business's language and rules, or by the text's script with none."""
    language: Literal["en", "zh"] = business.language if business else "zh" if _HAN.search(text) else "en"
    rules = Rules(business.pii if business else None, language)
    print_explanation(explain(text, make_detector(language, rules), rules))


def print_explanation(found: Explanation) -> None:
    """Print a table of what goes and what is left alone, and the text as it would be trained on."""
    console = Console(highlight=False, markup=False)
    if found.findings or found.left_alone:
        table = Table()
        for column in ("found", "becomes", "by", "score"):
            table.add_column(column, overflow="fold")
        for one in found.findings:
            value = Text(plain(one.value, _VALUE_CHARS))
            table.add_row(value, one.placeholder, one.rule, f"{one.score:.2f}")
        for own in found.left_alone:
            table.add_row(Text(plain(own.value, _VALUE_CHARS)), "(left alone)", own.rule, "")
        console.print(table)
    else:
        console.print("Nothing personal was found.")
    console.print(Text(plain(found.scrubbed, _TEXT_CHARS)), soft_wrap=True)
