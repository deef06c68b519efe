"""TRL's trainers over rows that are token ids already, each row with a weight of its own.

TRL knows no weights of rows: its trainers drop such a column. Each trainer here brings them to the place that its
loss leaves for them, and changes nothing else: with equal weights loss and gradients are TRL's own.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState  # type: ignore[import-untyped]
from datasets import Dataset, load_from_disk
from torch.nn.functional import cross_entropy
from trl import (  # type: ignore[attr-defined]  # TRL loads them lazily
    DPOConfig,
    DPOTrainer,
    KTOConfig,
    KTOTrainer,
    SFTConfig,
    SFTTrainer,
)

from pipeline.errors import TrainingError
from pipeline.records import Method
from pipeline.train.plan import Phase, Rows, balanced_weights
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, SftRow, VoteRow

_WEIGHT = "weight"
_LOOKS = 10
"""Checkpoints of a phase, and looks at its validation rows."""
_Collate = Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]


class _TokenRows:
    """What the trainers have in common: rows pass as they are, and their weights come with them."""

    data_collator: Any
    _signature_columns: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.data_collator = _keeping_weights(self.data_collator)

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        return dataset

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()  # type: ignore[misc]  # of the trainer that this is mixed into
        if _WEIGHT not in self._signature_columns:
            self._signature_columns = [*self._signature_columns, _WEIGHT]


class WeightedSft(_TokenRows, SFTTrainer):
    """Negative log-likelihood of the answers' tokens: sum of w_row * nll_token over the number of tokens.

    A batch is one sequence without padding; positions tell the model where a row begins. Only positions that predict
    an answer's token go through the language-model head: prompts cost no logits.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The batch's share of a step's loss: a scalar."""
        weights, targets = inputs.pop(_WEIGHT), inputs.pop("labels")[0, 1:]
        predicting = (targets != -100).nonzero().flatten()
        token_weights = weights.repeat_interleave(inputs["cu_seq_lens_q"].diff())[predicting + 1]
        logits = model(**inputs, logits_to_keep=predicting, use_cache=False).logits[0]
        losses = cross_entropy(logits.float(), targets[predicting], reduction="none")
        if num_items_in_batch is None:
            return (losses * token_weights).mean()
        # The number of tokens is that of all processes, whose gradients are averaged afterwards.
        return (losses * token_weights).sum() / num_items_in_batch * self.accelerator.num_processes


class WeightedDpo(_TokenRows, DPOTrainer):
    """DPO (Rafailov et al. 2023) with an SFT term on the chosen answer, both times the pair's weight.

    TRL takes the mean over a batch before anybody could weigh, so a batch is one pair and a step accumulates several.
    That also saves the padding of pairs of unlike length.
    """

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        (weight,) = inputs.pop(_WEIGHT)
        return super()._compute_loss(model, inputs, return_outputs) * weight  # type: ignore[no-untyped-call]


class WeightedKto(_TokenRows, KTOTrainer):
    """KTO (Ethayarajh et al. 2024): each answer's loss times its weight, liked and disliked ones in balance."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._balance = self.desirable_weight, self.undesirable_weight

    def _compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool) -> Any:
        weights, liked = inputs.pop(_WEIGHT), inputs["label"].bool()
        # TRL multiplies the losses of each side, in the batch's order, by that side's weight.
        self.desirable_weight = self._balance[0] * weights[liked]
        self.undesirable_weight = self._balance[1] * weights[~liked]
        return super()._compute_loss(model, inputs, return_outputs)  # type: ignore[no-untyped-call]


def _keeping_weights(collate: _Collate) -> _Collate:
    def collate_with_weights(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {**collate(rows), _WEIGHT: torch.tensor([row[_WEIGHT] for row in rows])}

    return collate_with_weights


def make_trainer(model: Any, tokenizer: Any, phase: Phase, steps: int, recipe: Recipe, folder: Path) -> Any:
    """The trainer of one phase.

    Args:
        steps: of the optimiser.
        folder: takes checkpoints.

    Raises:
        TrainingError: the batch is too small for the method.
    """
    given: dict[str, Any] = {
        "model": model,
        "processing_class": tokenizer,
        "train_dataset": _dataset(phase.rows, folder / "rows"),
    }
    if phase.validation:
        given["eval_dataset"] = _dataset(phase.validation, folder / "validation-rows")
    shared = _arguments(recipe, steps, folder, validates=bool(phase.validation))
    own: dict[str, Any]
    match phase.method:
        case Method.SFT:
            own = {"padding_free": True, "dataset_kwargs": {"skip_prepare_dataset": True}}
            return WeightedSft(args=SFTConfig(**own, **shared), **given)
        case Method.DPO:
            shared["gradient_accumulation_steps"] *= shared["per_device_train_batch_size"]
            shared["per_device_train_batch_size"] = shared["per_device_eval_batch_size"] = 1
            terms: dict[str, Any] = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, recipe.dpo_sft_weight]}
            own = {"beta": recipe.dpo_beta, "precompute_ref_log_probs": True, **terms}
            return WeightedDpo(args=DPOConfig(**own, **shared), **given)
        case Method.KTO:
            if recipe.batch_size < 2:
                raise TrainingError("KTO compares each answer with another of its batch: set batch_size to 2 or more")
            own = {"beta": recipe.dpo_beta, "precompute_ref_log_probs": True, **_balance(phase)}
            return WeightedKto(args=KTOConfig(**own, **shared), **given)


def _dataset(rows: Rows, folder: Path) -> Dataset:
    """The rows as files that all processes of a training share: TRL puts the reference's log-probabilities beside them,
    where an attempt that goes on finds them, too."""
    with PartialState().main_process_first():
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            Dataset.from_list(_columns(rows)).save_to_disk(partial)
            partial.rename(folder)
    return load_from_disk(folder)


def _columns(rows: Rows) -> list[dict[str, Any]]:
    """What TRL's data collators take."""
    columns: list[dict[str, Any]] = []
    own: dict[str, Any]
    for number, (row, weight) in enumerate(zip(rows, balanced_weights(rows), strict=True)):
        match row:
            case SftRow():
                own = {"input_ids": row.prompt + row.completion, "labels": [-100] * len(row.prompt) + row.completion}
            case PairRow():
                own = {"prompt_ids": row.prompt, "chosen_ids": row.chosen, "rejected_ids": row.rejected}
            case VoteRow():
                other = rows[number - 1]  # KTO's estimate of the distance to the reference takes another row's answer
                assert isinstance(other, VoteRow)
                own = {"prompt_ids": row.prompt, "completion_ids": row.completion, "label": row.label}
                own |= {"KL_completion_ids": other.completion}
        columns.append(own | {_WEIGHT: weight})
    return columns


def _balance(phase: Phase) -> dict[str, Any]:
    """KTO's class weights, so that both signs weigh alike (Ethayarajh et al. 2024, equation 8); the rarer keeps 1."""
    liked = sum(row.label for row in phase.rows if isinstance(row, VoteRow))
    disliked = len(phase.rows) - liked
    return {"desirable_weight": min(1.0, disliked / liked), "undesirable_weight": min(1.0, liked / disliked)}


def _arguments(recipe: Recipe, steps: int, folder: Path, *, validates: bool) -> dict[str, Any]:
    """What all trainers are told. Their own defaults are for other work: see each name."""
    cuda = torch.cuda.is_available()
    every = max(1, steps // _LOOKS)
    validation: dict[str, Any] = {
        "eval_strategy": "steps",
        "eval_steps": every,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
    }
    return {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": recipe.batch_size,
        "per_device_eval_batch_size": recipe.batch_size,
        "gradient_accumulation_steps": recipe.gradient_accumulation,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": "constant",
        "max_length": None,
        "bf16": cuda,
        "use_cpu": not cuda,
        "gradient_checkpointing": cuda,
        "save_strategy": "steps",
        "save_steps": every,
        "save_total_limit": 1,
        "prediction_loss_only": True,
        "report_to": "none",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # or the log shows the last finite loss in place of a NaN
        "disable_tqdm": True,
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        **(validation if validates else {}),
    }
