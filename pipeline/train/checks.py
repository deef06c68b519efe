"""What must hold before, while and after a model learns, else the training failed. No torch in here."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.errors import TrainingError
from pipeline.records import Method

LN2 = math.log(2)
_WINDOW = 8
"""Logged losses that are averaged before they are compared."""
_EXPLODED = 4
"""Times the length taught, from which answers are too long to be what was asked for."""


def check_bos(prompts: Iterable[Sequence[int]], bos_id: int | None) -> None:
    """The beginning-of-sequence token is the chat template's business alone; twice in a row means that template and
    tokenizer both added it.

    Raises:
        TrainingError: a prompt begins with two of them.
    """
    for number, prompt in enumerate(prompts):
        if bos_id is not None and list(prompt[:2]) == [bos_id, bos_id]:
            raise TrainingError(
                f"row {number} begins with two beginning-of-sequence tokens ({bos_id}); the tokenizer adds one to the "
                "chat template's: set add_bos_token to false in tokenizer_config.json"
            )


_SERVED = re.compile(r".+\.layers\.\d+\..+\.lora_[AB]\..+")


def check_targets(trainable: Iterable[str]) -> None:
    """Before an hour is spent on what `pipeline.serving.validate` would refuse.

    Args:
        trainable: names of the parameters that are trained.

    Raises:
        TrainingError: one of them is outside the transformer's layers, or no part of a LoRA pair.
    """
    for name in trainable:
        if not _SERVED.fullmatch(name):
            raise TrainingError(
                f"target_modules: they reach {name}, which engines do not serve; name linear modules of the layers, "
                "such as q_proj, or all-linear"
            )


class LossWatch:
    """Reads a trainer's logs, one `see` per optimiser step, and stops a training that goes wrong."""

    def __init__(self, method: Method, tolerance: float, lowest_reward: float | None = None) -> None:
        """Begin to watch one phase.

        Args:
            tolerance: how far the first rewards may be from zero (nats); rounding in bf16 needs more than fp32.
            lowest_reward: of chosen answers, below which preferring has become unlearning; beta times a nat for each
                token is a good one.
        """
        self.method = method
        self.losses: list[float] = []
        self._rewards: list[float] = []
        self._tolerance = tolerance
        self._lowest_reward = lowest_reward

    def see(self, step: int, logs: Mapping[str, float]) -> None:
        """Take the logs of one step.

        Raises:
            TrainingError: a loss or gradient is not finite, the loss diverges, training did not start at its
                reference, or the chosen answers become ever less likely.
        """
        for name in ("loss", "grad_norm"):
            if not math.isfinite(logs.get(name, 0.0)):
                raise TrainingError(
                    f"{name} is {logs[name]} at step {step}; lower learning_rate, and look for rows without answers"
                )
        if not self.losses and self.method is Method.DPO:
            self._check_start(logs)
        self.losses.append(logs["loss"])
        recent, first = _mean(self.losses[-_WINDOW:]), _mean(self.losses[:_WINDOW])
        if len(self.losses) >= 2 * _WINDOW and recent > 2 * first + 1:
            raise TrainingError(
                f"the loss rose from {first:.3g} to {recent:.3g} by step {step}: training diverges; lower learning_rate"
            )

        self._check_chosen(step, logs)

    def _check_chosen(self, step: int, logs: Mapping[str, float]) -> None:
        """DPO's margin also grows when both answers become less likely, the chosen one a little slower."""
        if self._lowest_reward is None or "rewards/chosen" not in logs:
            return
        self._rewards.append(logs["rewards/chosen"])
        recent = _mean(self._rewards[-_WINDOW:])
        if len(self._rewards) >= _WINDOW and recent < self._lowest_reward:
            raise TrainingError(
                f"the chosen answers' reward fell to {recent:.3g} by step {step}: the model unlearns what users "
                "preferred; raise dpo_sft_weight or lower learning_rate"
            )

    def _check_start(self, logs: Mapping[str, float]) -> None:
        """Before the first update the policy is the reference, so DPO's loss -log sigmoid(0) is ln 2."""
        loss = math.log1p(math.exp(-logs["rewards/margins"]))
        if abs(loss - LN2) > self._tolerance or abs(logs["rewards/chosen"]) > self._tolerance:
            raise TrainingError(
                f"DPO starts at loss {loss:.4f} instead of ln 2 = {LN2:.4f}: the reference is not the model that "
                "training starts from; check the parent adapter and the base model's folder"
            )

    def summary(self) -> dict[str, float]:
        """Steps seen, and first and last loss, each averaged over a few steps."""
        first, last = _mean(self.losses[:_WINDOW]), _mean(self.losses[-_WINDOW:])
        return {"steps": float(len(self.losses)), "loss_first": first, "loss_last": last}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True)
class AnswerCheck:
    """What a trained model's answers to prompts of its training must be like."""

    limit: int
    """Tokens within which a sound model ends its answer: twice the longest it was taught, and some room."""
    taught: float
    """Mean length of the answers that it was taught, in tokens."""

    @classmethod
    def of(cls, completions: Sequence[Sequence[int]]) -> "AnswerCheck":
        """Of a training's answers, as token ids."""
        lengths = [len(completion) for completion in completions]
        return cls(limit=2 * max(lengths) + 16, taught=_mean(lengths))

    def judge(self, answers: Sequence[Sequence[int]], stop_ids: Collection[int]) -> dict[str, float]:
        """The answers' figures.

        Raises:
            TrainingError: half of them or more ran into the limit, or they are many times longer than taught.
        """
        ended = sum(answer[-1] in stop_ids for answer in answers)
        if ended * 2 <= len(answers):
            raise TrainingError(
                f"after training only {ended} of {len(answers)} answers end within {self.limit} tokens: the model no "
                "longer stops; lower learning_rate or train fewer steps"
            )
        length = _mean([len(answer) for answer in answers])
        if length > _EXPLODED * self.taught + 16:
            raise TrainingError(
                f"after training answers have {length:.0f} tokens on average, those taught have {self.taught:.0f}: the "
                "lengths explode; lower learning_rate or train fewer steps"
            )
        return {"answer_tokens_mean": length, "answer_tokens_taught": self.taught}
