"""One training, in a process of its own: the only module that imports torch, transformers, TRL and PEFT at its top.

TRL's trainers get token ids in the order in which they are to be learned: rendering, shortening, shuffling and
weighting are ours (`rows`, `plan`), so that what was checked is what is trained.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState  # type: ignore[import-untyped]
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PrinterCallback,
    TrainerCallback,
    set_seed,
)
from trl import (  # type: ignore[attr-defined]  # TRL loads them lazily
    DPOConfig,
    DPOTrainer,
    KTOConfig,
    KTOTrainer,
    SFTConfig,
    SFTTrainer,
)

from pipeline.dataset.snapshot import read_snapshot
from pipeline.errors import TrainingError
from pipeline.records import BaseModelRef, Method, Split
from pipeline.train.checks import LossWatch, answer_limit, check_bos, check_stops
from pipeline.train.job import Job, Outcome, Progress
from pipeline.train.plan import Phase, count_steps, draw_order, plan_phases
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, Rendered, Rendering, SftRow, VoteRow

_SMOKE_PROMPTS = 4
"""Prompts that the trained model must answer and end."""


def run(job: Job, report: Callable[[Progress], None]) -> Outcome:
    """Train one adapter and write its two files to the folder `job.output`.

    Raises:
        TrainingError: the rows, the start, the course or the result of the training are not what they must be.
        DataError: the snapshot cannot be read.
    """
    set_seed(job.recipe.seed)
    rendering = load_rendering(job.base_path, job.recipe.max_length)
    rows = _render(job.snapshot_dir, rendering)
    phases = plan_phases(job.recipe, rows.sft.rows, rows.pairs.rows, rows.votes.rows)
    check_bos((row.prompt for phase in phases for row in phase.rows), rendering.tokenizer.bos_token_id)
    model = _load_model(job)
    steps = count_steps(phases, job.recipe, PartialState().num_processes)
    metrics = rows.counts()
    for number, (phase, count) in enumerate(zip(phases, steps, strict=True)):
        follower = _Follower(phase.method, report, before=sum(steps[:number]), total=sum(steps))
        trainer = _trainer(model, rendering, phase, count, job)
        trainer.remove_callback(PrinterCallback)  # standard output is for progress
        trainer.add_callback(follower)
        trainer.train()
        if "ref" in model.peft_config:  # the copy of this phase's start that TRL took as its reference
            model.delete_adapter("ref")
        metrics |= follower.metrics()
    _smoke(model, rendering, phases)
    if PartialState().is_main_process:
        save_adapter(model, job.base, job.output)
    return Outcome(method=phases[-1].method, rank=model.peft_config["default"].r, metrics=metrics)


def load_rendering(base_path: Path, max_length: int) -> Rendering:
    """The base model's tokenizer, with the tokens at which an engine stops."""
    tokenizer = AutoTokenizer.from_pretrained(base_path)
    stops = {tokenizer.eos_token_id}
    if (base_path / "generation_config.json").is_file():
        found = GenerationConfig.from_pretrained(base_path).eos_token_id
        stops |= set(found) if isinstance(found, list) else {found}
    return Rendering(tokenizer, frozenset(stops - {None}), max_length)


@dataclass(frozen=True)
class _SnapshotRows:
    sft: Rendered[SftRow]
    pairs: Rendered[PairRow]
    votes: Rendered[VoteRow]

    def counts(self) -> dict[str, float]:
        """Rows of each kind, those shortened, and those left out by reason."""
        counts: dict[str, float] = {}
        for name, rendered in (("sft", self.sft), ("preference", self.pairs), ("unpaired", self.votes)):
            counts[f"rows_{name}"] = len(rendered.rows)
            counts["rows_shortened"] = counts.get("rows_shortened", 0) + rendered.shortened
            for reason, number in rendered.dropped.items():
                counts[f"dropped_{reason}"] = counts.get(f"dropped_{reason}", 0) + number
        return counts


def _render(snapshot_dir: Path, rendering: Rendering) -> _SnapshotRows:
    train = read_snapshot(snapshot_dir).rows[Split.TRAIN]
    return _SnapshotRows(
        sft=rendering.sft(train.sft), pairs=rendering.pairs(train.preference), votes=rendering.votes(train.unpaired)
    )


def _load_model(job: Job) -> Any:
    """The base model with one trainable adapter, `default`: the parent's, or a fresh one that changes nothing yet."""
    base = AutoModelForCausalLM.from_pretrained(
        job.base_path, dtype=torch.bfloat16 if torch.cuda.is_available() else torch.float32
    )
    if job.parent is not None:
        return PeftModel.from_pretrained(base, job.parent, is_trainable=True)
    targets = job.recipe.target_modules
    config = LoraConfig(
        r=job.recipe.rank,
        lora_alpha=job.recipe.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
        lora_dropout=0.0,
        # What engines refuse or ignore is not on offer: no bias, no DoRA, no modules saved whole.
        bias="none",
        use_dora=False,
        modules_to_save=None,
    )
    try:
        return get_peft_model(base, config)
    except ValueError as error:  # PEFT names the modules that it did not find
        raise TrainingError(f"target_modules {targets!r}: {' '.join(str(error).split())[:200]}") from error


def _trainer(model: Any, rendering: Rendering, phase: Phase, steps: int, job: Job) -> Any:
    recipe = job.recipe
    count = steps * recipe.batch_size * recipe.gradient_accumulation * PartialState().num_processes
    order = draw_order([row.weight for row in phase.rows], count, recipe.seed)
    data = Dataset.from_list(_columns(phase, [phase.rows[i] for i in order], recipe))
    given = {"model": model, "train_dataset": data, "processing_class": rendering.tokenizer}
    shared = _arguments(recipe, steps, job.output.parent / "trainer")
    match phase.method:
        case Method.SFT:
            return SFTTrainer(args=SFTConfig(dataset_kwargs={"skip_prepare_dataset": True}, **shared), **given)
        case Method.DPO:
            terms: dict[str, Any] = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, recipe.dpo_sft_weight]}
            return _PreparedDpo(args=DPOConfig(beta=recipe.dpo_beta, **terms, **shared), **given)
        case Method.KTO:
            return _PreparedKto(args=KTOConfig(beta=recipe.dpo_beta, **_balance(phase), **shared), **given)


class _PreparedDpo(DPOTrainer):
    """DPO over rows that are token ids already."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        return dataset


class _PreparedKto(KTOTrainer):
    """KTO over rows that are token ids already."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any, **__: Any) -> Dataset:
        return dataset


def _columns(phase: Phase, rows: Sequence[SftRow | PairRow | VoteRow], recipe: Recipe) -> list[dict[str, Any]]:
    if phase.method is Method.KTO and recipe.batch_size < 2:
        raise TrainingError("KTO compares each answer with another of its batch: set batch_size to 2 or more")
    columns: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        match row:
            case SftRow():
                ids = row.prompt + row.completion
                columns.append({"input_ids": ids, "labels": [-100] * len(row.prompt) + row.completion})
            case PairRow():
                columns.append({"prompt_ids": row.prompt, "chosen_ids": row.chosen, "rejected_ids": row.rejected})
            case VoteRow():
                # KTO's estimate of the distance to the reference takes another row's answer, of the same batch.
                first = number - number % recipe.batch_size
                other = rows[first + (number - first - 1) % recipe.batch_size]
                assert isinstance(other, VoteRow)
                columns.append(
                    {"prompt_ids": row.prompt, "completion_ids": row.completion, "label": row.label}
                    | {"KL_completion_ids": other.completion}
                )
    return columns


def _balance(phase: Phase) -> dict[str, Any]:
    """KTO's class weights, so that both signs weigh alike (Ethayarajh et al. 2024, equation 8); the rarer keeps 1."""
    liked = sum(row.label for row in phase.rows if isinstance(row, VoteRow))
    disliked = len(phase.rows) - liked
    return {"desirable_weight": min(1.0, disliked / liked), "undesirable_weight": min(1.0, liked / disliked)}


def _arguments(recipe: Recipe, steps: int, scratch: Path) -> dict[str, Any]:
    """What all trainers are told. Their own defaults are for other work: see each name."""
    cuda = torch.cuda.is_available()
    return {
        "output_dir": str(scratch),
        "max_steps": steps,
        "per_device_train_batch_size": recipe.batch_size,
        "gradient_accumulation_steps": recipe.gradient_accumulation,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "max_length": None,
        "bf16": cuda,
        "use_cpu": not cuda,
        "gradient_checkpointing": cuda,
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # or the log shows the last finite loss in place of a NaN
        "disable_tqdm": True,
        "seed": recipe.seed,
    }


class _Follower(TrainerCallback):
    """Hands each step's loss to the watch and to whoever shows progress."""

    def __init__(self, method: Method, report: Callable[[Progress], None], before: int, total: int) -> None:
        self._method, self._report, self._before, self._total = method, report, before, total
        self._watch = LossWatch(method, tolerance=0.05 if torch.cuda.is_available() else 1e-3)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "loss" in logs:  # the last log is a summary without one
            self._watch.see(state.global_step, logs)
            if state.is_world_process_zero:
                self._report(Progress(step=self._before + state.global_step, total=self._total, loss=logs["loss"]))

    def metrics(self) -> dict[str, float]:
        """The phase's figures, named by its method."""
        return {f"{self._method}_{name}": value for name, value in self._watch.summary().items()}


def _smoke(model: Any, rendering: Rendering, phases: Iterable[Phase]) -> None:
    """Answer a few training prompts greedily: a model that learned to babble runs into the limit."""
    rows: list[SftRow | PairRow | VoteRow] = [row for phase in phases for row in phase.rows]
    limit = answer_limit(row.chosen if isinstance(row, PairRow) else row.completion for row in rows)
    prompts = list({tuple(row.prompt): None for row in rows})[:: max(1, len(rows) // _SMOKE_PROMPTS)][:_SMOKE_PROMPTS]
    model.eval()
    stopped = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=model.device)
        answer = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=sorted(rendering.stop_ids),
        )
        stopped.append(int(answer[0, -1]) in rendering.stop_ids)
    check_stops(stopped, limit)


def save_adapter(model: Any, base: BaseModelRef, folder: Path) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`, and nothing else.

    The configuration names the base by its id and revision instead of a path of this machine, and is written in one
    canonical form: the same training gives the same bytes.

    Raises:
        TrainingError: a tensor is not finite, or the adapter still changes nothing.
    """
    moved = False
    for name, tensor in model.named_parameters():
        if ".default." in name and not torch.isfinite(tensor).all():
            raise TrainingError(f"after training {name} holds values that are not finite; lower learning_rate")
        moved = moved or ("lora_B.default" in name and bool(tensor.any()))
    if not moved:
        raise TrainingError("training changed nothing: every update was zero; raise learning_rate or the steps")
    model.save_pretrained(folder, selected_adapters=["default"])
    for path in folder.iterdir():
        if path.name not in ("adapter_config.json", "adapter_model.safetensors"):
            path.unlink()
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"base_model_name_or_path": base.id, "revision": base.revision, "inference_mode": True}
    for key, value in config.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            config[key] = sorted(value)  # PEFT keeps them in a set, whose order changes from process to process
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
