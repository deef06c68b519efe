"""From templates and values to one self-contained page that holds both languages.

The business's own language is shown. The other one stands before it, hidden, until the page's address ends in `#en` or
`#zh`: the style sheet does that. A small script does the same where it may run: it knows no address in the registry's
sandboxed viewer, and tells the language to who has the page read aloud. A printer prints what is shown.
"""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evals.report.entry import Entry
from evals.report.speaker import Lang, Speaker
from pipeline.config import BusinessConfig

LANGUAGES: tuple[Lang, Lang] = ("en", "zh")


def render(
    template: str,
    tell: Callable[[Speaker], dict[str, object]],
    *,
    business: BusinessConfig,
    generated_at: datetime,
    entry: Entry | None,
) -> str:
    """Fill a template of this folder in both languages.

    Every value is escaped; lone surrogates, which no file holds, become `?`.

    Args:
        tell: the template's values in one language; `title` is the page's.
        entry: what the business's overview says about the page; None for one that stands in no overview.
    """
    spoken = sorted(LANGUAGES, key=lambda lang: lang == business.report_language)
    told = [tell(say) for say in (Speaker(lang, business.zone) for lang in spoken)]
    page = (
        _templates()
        .get_template("base.html")
        .render(
            style=Markup(_own("style.css")),
            script=Markup(_own("language.js")),
            script_hash=b64encode(hashlib.sha256(_own("language.js").encode()).digest()).decode(),
            title=told[-1]["title"],
            business=business,
            entry=None if entry is None else entry.model_dump_json(),
            bodies=[
                (say, fragment(template, say, business=business, **values))
                for say, values in zip((Speaker(lang, business.zone) for lang in spoken), told, strict=True)
            ],
            generated_at=generated_at,
        )
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def fragment(template: str, say: Speaker, **values: object) -> Markup:
    """A part of a page in one language."""
    return Markup(_templates().get_template(template).render(say=say, **values))


@cache
def _own(name: str) -> str:
    return files("evals.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("evals", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
