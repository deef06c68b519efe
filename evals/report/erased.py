"""A decision's page without what users asked and were answered, for when one of them has their data erased.

The figures stay: they are averages over many. Which example is whose is not written on the page, so all of them go.
"""

import re

_EXAMPLES = re.compile(r'<div class="examples" data-erased="([^"]*)">.*?</div><!--/examples-->', re.DOTALL)


def without_examples(page: str) -> str:
    """The page with a sentence in place of each group of examples, in its language; without any it stays as it is.

    Args:
        page: as `render_gate_report` made it. Texts in it are escaped, so none of them ends a group early.
    """
    return _EXAMPLES.sub(r'<p class="none">\1</p>', page)
