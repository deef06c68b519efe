"""From a template and its values to one self-contained page."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evals.report.speaker import Speaker


def render(template: str, say: Speaker, **values: object) -> str:
    """Fill a template of this folder. Every value is escaped; lone surrogates, which no file holds, become `?`."""
    style = Markup(files("evals.report").joinpath("style.css").read_text(encoding="utf-8"))
    page = _templates().get_template(template).render(say=say, style=style, **values)
    return page.encode("utf-8", "replace").decode("utf-8")


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("evals", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
