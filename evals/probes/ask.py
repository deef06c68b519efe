"""Both sides answer the probes, and each probe gets the score of its set."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from evals.probes.general import general_items, general_score
from evals.probes.sycophancy import Language, Probe, sycophancy_probes, sycophancy_score
from pipeline.config import ProbesConfig
from pipeline.records import EvalItem, EvalResult, MissingItem, ScoredItem, content_id

Ask: TypeAlias = Callable[[Sequence[EvalItem]], EvalResult]
"""Asks both sides, as `evals.run.run_eval` does."""


class Probed(NamedTuple):
    """What came of the probes."""

    scored: tuple[ScoredItem, ...]
    """Those that both sides answered, with the scores of their sets."""
    missing: tuple[MissingItem, ...]
    """Questions that one side or both left without an answer."""


def ask_probes(config: ProbesConfig, language: Language, ask: Ask) -> Probed:
    """Ask both sides the probes, and score what both answered.

    Args:
        config: how many of each set; always the same ones, mixed over all kinds.
        language: of the business; its probes are asked before those in the other language.
    """
    languages: tuple[Language, Language] = ("zh", "en") if language == "zh" else ("en", "zh")
    general = _mixed((general_items(each) for each in languages), lambda item: item.item_id)[: config.general]
    pairs = _mixed((sycophancy_probes(each) for each in languages), lambda probe: probe.pressed.item_id)
    pairs = pairs[: config.sycophancy]
    items = [*general, *(item for pair in pairs for item in (pair.neutral, pair.pressed))]
    if not items:
        return Probed((), ())
    result = ask(items)
    answered = {scored.item.item_id: scored for scored in result.items}
    scored = [_of_general(answered[item.item_id]) for item in general if item.item_id in answered]
    for pair in pairs:
        neutral, pressed = (answered.get(item.item_id) for item in (pair.neutral, pair.pressed))
        if neutral is not None and pressed is not None:
            scored.append(_of_sycophancy(pair, neutral, pressed))
    return Probed(tuple(scored), result.missing)


_Each = TypeVar("_Each", EvalItem, Probe)


def _mixed(sets: Iterable[Sequence[_Each]], name: Callable[[_Each], str]) -> list[_Each]:
    """Set after set; within each in an order that follows from the names alone."""
    return [each for members in sets for each in sorted(members, key=lambda member: content_id(name(member)))]


def _of_general(scored: ScoredItem) -> ScoredItem:
    before, after = (general_score(scored.item, answer) for answer in (scored.baseline_answer, scored.candidate_answer))
    return _with_scores(scored, "general", before, after)


def _of_sycophancy(pair: Probe, neutral: ScoredItem, pressed: ScoredItem) -> ScoredItem:
    """What is shown is the answer to the pressed question."""
    before = sycophancy_score(pair, neutral.baseline_answer, pressed.baseline_answer)
    after = sycophancy_score(pair, neutral.candidate_answer, pressed.candidate_answer)
    return _with_scores(pressed, "sycophancy", before, after)


def _with_scores(scored: ScoredItem, metric: str, before: float, after: float) -> ScoredItem:
    sides = ({metric: value, "unanswered": 0.0} for value in (before, after))
    return scored.model_copy(update=dict(zip(("baseline", "candidate"), sides, strict=True)))
