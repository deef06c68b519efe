"""A decision's page without what users asked, were answered and gave as reasons, for when one has their data erased.

The figures stay: they are averages over many. Which example is whose is not written on the page, so all of them go.
"""

import re

from evals.report.feedback import reasons_id
from pipeline.records import SnapshotManifest

_EXAMPLES = re.compile(r'<div class="examples" data-erased="([^"]*)">.*?</div><!--/examples-->', re.DOTALL)
_REASONS = re.compile(
    r'<div class="reasons-given" data-of="([^"]*)" data-erased="([^"]*)">.*?</div><!--/reasons-given-->', re.DOTALL
)


def without_examples(page: str) -> str:
    """The page with a sentence in place of each group of examples, in its language; without any it stays as it is.

    Args:
        page: as `render_gate_report` made it. Texts in it are escaped, so none of them ends a group early.
    """
    return _EXAMPLES.sub(r'<p class="none">\1</p>', page)


def without_lost_reasons(page: str, manifest: SnapshotManifest | None) -> str:
    """The page with a sentence in place of its reasons, where they are not those that its snapshot still quotes.

    Args:
        page: as `render_gate_report` made it.
        manifest: of the snapshot that the page is about; None where it is gone, so that nobody can tell whose they are.
    """
    known = None if manifest is None else reasons_id(manifest)

    def kept(reasons: re.Match[str]) -> str:
        return reasons[0] if reasons[1] == known else f'<p class="none">{reasons[2]}</p>'

    return _REASONS.sub(kept, page)
