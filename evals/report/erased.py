"""A decision's page without what users asked and were answered, for when one of them has their data erased.

The figures stay: they are averages over many. Which example is whose is not written on the page, so all of them go.
"""

import re
from html import escape

from evals.report.speaker import Speaker

_EXAMPLE = re.compile(r'<article class="example">.*?</article>\n?', re.DOTALL)


def without_examples(page: str, say: Speaker) -> str:
    """The page with a sentence in place of its examples; without any it stays as it is.

    Args:
        page: as `render_gate_report` made it. Texts in it are escaped, so none of them ends an example early.
        say: in the language of the page.
    """
    first = _EXAMPLE.search(page)
    if first is None:
        return page
    told = f'<p class="none">{escape(say("examples_erased"))}</p>\n'
    return page[: first.start()] + told + _EXAMPLE.sub("", page[first.start() :])
