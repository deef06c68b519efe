"""One training, in a process of its own: phases one after the other, each goes on where a killed attempt left it.

TRL's trainers get token ids: rendering and shortening are ours (`rows`), so that what was checked is what is trained.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState  # type: ignore[import-untyped]
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback, set_seed

from pipeline.dataset.snapshot import read_snapshot
from pipeline.records import Split
from pipeline.train.checks import AnswerCheck, LossWatch, check_bos
from pipeline.train.job import Job, Outcome, Progress
from pipeline.train.machine import Meter, device_name, package_versions
from pipeline.train.model import load_model, save_adapter
from pipeline.train.plan import Phase, Row, count_steps, plan_phases
from pipeline.train.rows import PairRow, Rendered, Rendering, SftRow, VoteRow
from pipeline.train.tokenizer import load_rendering
from pipeline.train.trainers import make_trainer

_SMOKE_PROMPTS = 4
"""Prompts that the trained model must answer and end."""
_PATIENCE = 3
"""Looks at the validation rows without a better loss, after which a phase ends."""

Report = Callable[[Progress], None]


def run(job: Job, report: Report) -> Outcome | None:
    """Train one adapter and write its two files to the folder `job.output`.

    What is written beside that folder lets a killed run go on: a checkpoint every few steps, and each phase's end.
    Of several processes the first one writes, and has the outcome.

    Raises:
        TrainingError: the rows, the start, the course or the result of the training are not what they must be.
        DataError: the snapshot cannot be read.
    """
    processes = PartialState(cpu=not torch.cuda.is_available())  # first of all: who asks later is told the same
    set_seed(job.recipe.seed)
    rendering = load_rendering(job.base_path, job.recipe.max_length)
    rows = _render(job.snapshot_dir, rendering)
    phases = plan_phases(job.recipe, rows.sft.rows, rows.pairs.rows, rows.votes.rows)
    check_bos((row.prompt for phase in phases for row in phase.rows), rendering.tokenizer.bos_token_id)
    model = load_model(job.base_path, job.recipe, job.parent)
    steps = count_steps(phases, job.recipe, processes.num_processes)
    metrics, curves, meter = rows.counts(), list[dict[str, float]](), Meter()
    for number, (phase, count) in enumerate(zip(phases, steps, strict=True)):
        done = _PhaseEnd(job.output.parent / f"phase-{number}")
        if (logs := done.restore(model)) is None:
            follower = _Follower(
                phase, job.recipe.dpo_beta, report, meter, before=sum(steps[:number]), total=sum(steps)
            )
            logs = _train(model, rendering, phase, count, job, done.folder, follower)
            done.keep(model, logs)
        metrics |= _summary(phase, logs, job.recipe.dpo_beta)
        curves += [_curve(phase, sum(steps[:number]), entry) for entry in logs]
    answers = _smoke(model, rendering, phases)
    if not processes.is_main_process:
        return None
    save_adapter(model, job.base, job.output)
    return Outcome(
        method=phases[-1].method,
        rank=model.peft_config["default"].r,
        metrics=metrics | answers,
        device=device_name(),
        packages=package_versions(),
        curves=tuple(curves),
        load=tuple(meter.readings),
    )


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


def _train(
    model: Any, rendering: Rendering, phase: Phase, steps: int, job: Job, folder: Path, follower: "_Follower"
) -> list[dict[str, float]]:
    """One phase, from its last checkpoint if there is one; returns what was logged at each step."""
    trainer = make_trainer(model, rendering.tokenizer, phase, steps, job.recipe, folder)
    trainer.remove_callback(PrinterCallback)  # standard output is for progress
    trainer.add_callback(follower)
    if phase.validation:
        trainer.add_callback(EarlyStoppingCallback(_PATIENCE))
    trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
    if "ref" in model.peft_config:  # the copy of this phase's start that TRL took as its reference
        model.delete_adapter("ref")
    return [entry for entry in trainer.state.log_history if "loss" in entry or "eval_loss" in entry]


def _last_checkpoint(folder: Path) -> str | None:
    """The newest whole one: its state is written last."""
    whole = []
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            whole.append((json.loads(path.read_bytes())["global_step"], str(path.parent)))
        except ValueError:
            continue  # the attempt was killed while it wrote
    return max(whole)[1] if whole else None


@dataclass(frozen=True)
class _PhaseEnd:
    """What a finished phase left, so that a later attempt need not repeat it."""

    folder: Path

    def restore(self, model: Any) -> list[dict[str, float]] | None:
        """Give the model the adapter as it was at the phase's end; returns the phase's logs, or None if it has not
        ended yet."""
        if not self._logs.is_file():
            return None
        set_peft_model_state_dict(model, load_file(self._weights))
        logs: list[dict[str, float]] = json.loads(self._logs.read_bytes())
        return logs

    def keep(self, model: Any, logs: list[dict[str, float]]) -> None:
        """Write both, the logs last and at once."""
        if PartialState().is_main_process:
            save_file(get_peft_model_state_dict(model), self._weights)
            partial = self._logs.with_suffix(".partial")
            partial.write_text(json.dumps(logs), encoding="utf-8")
            partial.replace(self._logs)

    @property
    def _weights(self) -> Path:
        return self.folder / "end.safetensors"

    @property
    def _logs(self) -> Path:
        return self.folder / "end.json"


class _Follower(TrainerCallback):
    """Hands each step's loss to the watch and to whoever shows progress."""

    def __init__(self, phase: Phase, beta: float, report: Report, meter: Meter, before: int, total: int) -> None:
        self._report, self._meter, self._before, self._total = report, meter, before, total
        self._watch = _watch(phase, beta)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        for logs in state.log_history:  # of the attempt that wrote the checkpoint
            if "loss" in logs:
                self._watch.see(logs["step"], logs)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if logs and "loss" in logs:  # the last log is a summary without one
            self._watch.see(state.global_step, logs)
            if state.is_world_process_zero:
                step = self._before + state.global_step
                self._meter.read(step)
                self._report(Progress(step=step, total=self._total, loss=logs["loss"]))


def _watch(phase: Phase, beta: float) -> LossWatch:
    chosen = [len(row.chosen) for row in phase.rows if isinstance(row, PairRow)]
    tolerance = 0.05 if torch.cuda.is_available() else 1e-3  # bf16 rounds
    return LossWatch(phase.method, tolerance, lowest_reward=-beta * sum(chosen) / len(chosen) if chosen else None)


def _curve(phase: Phase, before: int, entry: dict[str, float]) -> dict[str, float]:
    """An entry of a phase's log: its step counted over all phases, its figures named by the phase's method."""
    figures = {f"{phase.method}/{name}": value for name, value in entry.items() if name not in ("step", "epoch")}
    return {"step": before + entry["step"], **figures}


def _summary(phase: Phase, logs: Iterable[dict[str, float]], beta: float) -> dict[str, float]:
    """The phase's figures, named by its method."""
    watch = _watch(phase, beta)
    validation = [entry["eval_loss"] for entry in logs if "eval_loss" in entry]
    for entry in logs:
        if "loss" in entry:
            watch.see(int(entry["step"]), entry)
    figures = watch.summary() | ({"validation_loss": min(validation)} if validation else {})
    return {f"{phase.method}_{name}": value for name, value in figures.items()}


def _smoke(model: Any, rendering: Rendering, phases: Iterable[Phase]) -> dict[str, float]:
    """Answer a few training prompts greedily: a model that learned to babble runs into the limit."""
    rows: list[Row] = [row for phase in phases for row in phase.rows]
    check = AnswerCheck.of([row.chosen if isinstance(row, PairRow) else row.completion for row in rows])
    prompts = list({tuple(row.prompt): None for row in rows})[:: max(1, len(rows) // _SMOKE_PROMPTS)][:_SMOKE_PROMPTS]
    model.eval()
    answers = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=model.device)
        answer = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=check.limit,
            do_sample=False,
            eos_token_id=sorted(rendering.stop_ids),
        )
        answers.append(answer[0, len(prompt) :].tolist())
    return check.judge(answers, rendering.stop_ids)
