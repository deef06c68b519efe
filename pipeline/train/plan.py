"""What is trained, in which phases and in which order: pure functions over token rows. No torch in here."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.errors import TrainingError
from pipeline.records import Method
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, SftRow, VoteRow

Rows: TypeAlias = tuple[SftRow, ...] | tuple[PairRow, ...] | tuple[VoteRow, ...]


@dataclass(frozen=True)
class Phase:
    """One trainer's run. A later phase goes on from the adapter that the one before it left."""

    method: Method
    rows: Rows


def plan_phases(
    recipe: Recipe, sft: Sequence[SftRow], pairs: Sequence[PairRow], votes: Sequence[VoteRow]
) -> tuple[Phase, ...]:
    """The phases of a training.

    A named method is one phase over its own rows. `auto` uses all there is: pairs are learned by DPO with an SFT term
    on the chosen answer, else votes of both signs by KTO; targets that the preference phase does not teach are
    imitated first, in an SFT phase, whose result then is the preference phase's reference.

    Raises:
        TrainingError: there is nothing to train on, or the votes for KTO are all of one sign.
    """
    match recipe.method:
        case Method.SFT:
            phases = [Phase(Method.SFT, tuple(sft))]
        case Method.DPO:
            phases = [Phase(Method.DPO, tuple(pairs))]
        case Method.KTO:
            if len({row.label for row in votes}) < 2:
                raise TrainingError(
                    f"KTO: one_class: all {len(votes)} votes have one sign; use `method: auto`, or gather the other"
                )
            phases = [Phase(Method.KTO, tuple(votes))]
        case _:
            phases = _everything(sft, pairs, votes)
    phases = [phase for phase in phases if phase.rows]
    if not phases:
        raise TrainingError(
            f"method '{recipe.method}' has no rows (sft {len(sft)}, pairs {len(pairs)}, votes {len(votes)}) that fit "
            f"max_length {recipe.max_length}; raise it, widen the window, or use `method: auto`"
        )
    return tuple(phases)


def _everything(sft: Sequence[SftRow], pairs: Sequence[PairRow], votes: Sequence[VoteRow]) -> list[Phase]:
    if pairs:
        taught = {(*row.prompt, -1, *row.chosen) for row in pairs}
        preference = Phase(Method.DPO, tuple(pairs))
    elif len({row.label for row in votes}) == 2:
        taught = {(*row.prompt, -1, *row.completion) for row in votes if row.label}
        preference = Phase(Method.KTO, tuple(votes))
    else:
        return [Phase(Method.SFT, tuple(sft))]
    loose = tuple(row for row in sft if (*row.prompt, -1, *row.completion) not in taught)
    return [Phase(Method.SFT, loose), preference]


def count_steps(phases: Sequence[Phase], recipe: Recipe, processes: int = 1) -> tuple[int, ...]:
    """Optimiser steps of each phase; `max_steps`, when given, is shared out by rows (at least one each)."""
    if recipe.max_steps > 0:
        total = sum(len(phase.rows) for phase in phases)
        return tuple(max(1, round(recipe.max_steps * len(phase.rows) / total)) for phase in phases)
    batch = recipe.batch_size * recipe.gradient_accumulation * processes
    return tuple(max(1, math.ceil(len(phase.rows) * recipe.epochs / batch)) for phase in phases)


def draw_order(weights: Sequence[float], count: int, seed: int) -> list[int]:
    """Row numbers in the order in which they are trained on, `count` of them.

    Each pass draws as many rows as there are, row i floor or ceil of `w_i / mean(w)` times (systematic resampling), in
    random order: with equal weights every row once a pass. A weight is thus how often a row is seen; it works for
    every method alike, while no trainer has weights per row.

    Raises:
        TrainingError: a weight is negative, or all are zero.
    """
    total = math.fsum(weights)
    if not weights or min(weights) < 0 or not 0 < total < math.inf:
        raise TrainingError("row weights: must be finite, not negative and not all zero; mend the snapshot")
    generator = random.Random(seed)
    order: list[int] = []
    while len(order) < count:
        drawn = _resample(weights, total, generator.random())
        generator.shuffle(drawn)
        order.extend(drawn)
    return order[:count]


def _resample(weights: Sequence[float], total: float, start: float) -> list[int]:
    """As many row numbers as there are weights, at evenly spaced marks on the weights' cumulative sum."""
    size = len(weights)
    drawn: list[int] = []
    reached = 0.0
    for row, weight in enumerate(weights):
        reached += weight * size / total
        while len(drawn) < size and len(drawn) + start < reached:
            drawn.append(row)
    drawn.extend([max(range(size), key=weights.__getitem__)] * (size - len(drawn)))  # the sum's rounding error
    return drawn
