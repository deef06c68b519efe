"""What is trained, in which phases, and what is kept back to see when to stop: pure functions over token rows."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pipeline.errors import TrainingError
from pipeline.records import Method
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, SftRow, VoteRow

Row: TypeAlias = SftRow | PairRow | VoteRow
Rows: TypeAlias = Sequence[SftRow] | Sequence[PairRow] | Sequence[VoteRow]
_ENOUGH_TO_VALIDATE = 200
"""Rows of a phase below which none is kept back: a tenth of fewer says nothing about when to stop."""


@dataclass(frozen=True)
class Phase:
    """One trainer's run. A later phase goes on from the adapter that the one before it left."""

    method: Method
    rows: Rows
    validation: Rows = ()
    """Rows that are not trained on: training stops when it gets worse on them."""


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
    sft, pairs, votes = _that_weigh(sft), _that_weigh(pairs), _that_weigh(votes)
    match recipe.method:
        case Method.SFT:
            phases = [Phase(Method.SFT, sft)]
        case Method.DPO:
            phases = [Phase(Method.DPO, pairs)]
        case Method.KTO:
            if len({row.label for row in votes}) < 2:
                raise TrainingError(
                    f"KTO: one_class: all {len(votes)} votes have one sign; use `method: auto`, or gather the other"
                )
            phases = [Phase(Method.KTO, votes)]
        case _:
            phases = _everything(sft, pairs, votes)
    phases = [keep_back(phase, recipe.validation_share) for phase in phases if phase.rows]
    if not phases:
        raise TrainingError(
            f"method '{recipe.method}' has no rows (sft {len(sft)}, pairs {len(pairs)}, votes {len(votes)}) that fit "
            f"max_length {recipe.max_length}; raise it, widen the window, or use `method: auto`"
        )
    return tuple(phases)


_SomeRow = TypeVar("_SomeRow", SftRow, PairRow, VoteRow)


def _that_weigh(rows: Sequence[_SomeRow]) -> tuple[_SomeRow, ...]:
    """Without rows of weight zero, which teach nothing.

    Raises:
        TrainingError: a weight is negative or not finite.
    """
    for number, row in enumerate(rows):
        if not 0 <= row.weight < math.inf:
            raise TrainingError(f"row {number}: weight {row.weight} must be finite and not negative; mend the snapshot")
    return tuple(row for row in rows if row.weight > 0)


def _everything(sft: Sequence[SftRow], pairs: Sequence[PairRow], votes: Sequence[VoteRow]) -> list[Phase]:
    if pairs:
        taught = {(*row.prompt, -1, *row.chosen) for row in pairs}
        preference = Phase(Method.DPO, pairs)
    elif len({row.label for row in votes}) == 2:
        taught = {(*row.prompt, -1, *row.completion) for row in votes if row.label}
        preference = Phase(Method.KTO, votes)
    else:
        return [Phase(Method.SFT, sft)]
    loose = tuple(row for row in sft if (*row.prompt, -1, *row.completion) not in taught)
    return [Phase(Method.SFT, loose), preference]


def count_steps(phases: Sequence[Phase], recipe: Recipe, processes: int = 1) -> tuple[int, ...]:
    """Optimiser steps of each phase; `max_steps`, when given, is shared out by rows (at least one each)."""
    if recipe.max_steps > 0:
        total = sum(len(phase.rows) for phase in phases)
        return tuple(max(1, round(recipe.max_steps * len(phase.rows) / total)) for phase in phases)
    batch = recipe.batch_size * recipe.gradient_accumulation * processes
    return tuple(max(1, math.ceil(len(phase.rows) * recipe.epochs / batch)) for phase in phases)


def keep_back(phase: Phase, share: float) -> Phase:
    """The phase with about this share of its owners' rows as validation; with too few rows as it is.

    An owner's rows stay together, chosen by a hash: the same ones in every training of a business. The gate's
    held-out users are no part of this, for what chose the model cannot judge it.
    """
    if share == 0 or len(phase.rows) < _ENOUGH_TO_VALIDATE:
        return phase
    kept: Any = tuple(row for row in phase.rows if _position(row.owner) >= share)
    back: Any = tuple(row for row in phase.rows if _position(row.owner) < share)
    enough = bool(kept and back) and (phase.method is not Method.KTO or len({row.label for row in kept}) == 2)
    return Phase(phase.method, kept, back) if enough else phase


def _position(owner: str) -> float:
    """Uniform in [0, 1)."""
    return int.from_bytes(hashlib.sha256(owner.encode()).digest()[:6], "big") / (1 << 48)


def balanced_weights(rows: Rows) -> list[float]:
    """The rows' weights, scaled to a mean of 1: what one row weighs against another is kept, and a business whose
    signals are all weak does not learn more slowly for it."""
    total = math.fsum(row.weight for row in rows)
    return [row.weight * len(rows) / total for row in rows]
