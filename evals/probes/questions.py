"""What the probes ask, so that nobody learns it: asked by users, it is left out like a golden question."""

from functools import cache

from evals.probes.general import general_items
from evals.probes.sycophancy import Language, sycophancy_probes
from pipeline.clean.text import last_user_text

_LANGUAGES: tuple[Language, Language] = ("en", "zh")


@cache
def probe_questions() -> tuple[str, ...]:
    """The last user message of each probe, in every language: which ones are asked is the business's choice."""
    items = [item for language in _LANGUAGES for item in general_items(language)]
    pairs = [pair for language in _LANGUAGES for pair in sycophancy_probes(language)]
    items += [item for pair in pairs for item in (pair.neutral, pair.pressed)]
    return tuple(dict.fromkeys(last_user_text(item.messages) for item in items))
