"""One run of one contestant: `python -m tests.benchmarks.train.contestant NAME METHOD CHATS`; prints its figures."""

import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from pipeline.records import Method
from pipeline.train.model import load_model
from pipeline.train.plan import Phase
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, SftRow
from pipeline.train.tokenizer import load_rendering
from pipeline.train.trainers import make_trainer
from tests.benchmarks.train.chats import Chat, make_chats

BASE = Path("var/models/smollm2-135m-instruct")
BATCH, MICRO, SEED = 8, 4, 0
"""Rows a step, and how many of them ours takes at once; TRL's default is eight at once."""
RECIPE = Recipe(rank=16, alpha=32, learning_rate=1e-3, batch_size=MICRO, gradient_accumulation=BATCH // MICRO)


@dataclass(frozen=True)
class Figures:
    """What a run took and what it learned."""

    cpu_s: float
    """From the rows to the end of the last step: all that the trainer does is in it."""
    tokens: int
    """Of all rows, without padding."""
    losses: list[float]
    peak_mb: float


def main() -> None:
    name, method, count = sys.argv[1], Method(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    set_seed(SEED)
    chats = make_chats(count, SEED)
    rendered = _rendered(chats, method)
    with tempfile.TemporaryDirectory() as folder:
        model = load_model(BASE, RECIPE, None) if name == "tuneloop" else _plain_model()
        before = time.process_time()
        trainer = _ours(model, rendered, method, folder) if name == "tuneloop" else _plain(model, chats, method, folder)
        trainer.train()
        cpu_s = time.process_time() - before
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(asdict(Figures(cpu_s, sum(map(_tokens, rendered)), [float(loss) for loss in losses], peak_mb))))


def _tokens(row: SftRow | PairRow) -> int:
    """That the model reads, without padding."""
    if isinstance(row, SftRow):
        return len(row.prompt) + len(row.completion)
    return 2 * len(row.prompt) + len(row.chosen) + len(row.rejected)


def _rendered(chats: list[Chat], method: Method) -> list[SftRow] | list[PairRow]:
    rendering = load_rendering(BASE, RECIPE.max_length)

    def ids(chat: Chat, answer: str) -> tuple[list[int], list[int]]:
        said: Any = [{"role": "assistant", "content": answer}]
        prompt, (answer_ids,) = rendering._encode(list(chat.prompt), [said], None)
        return prompt, answer_ids

    if method is Method.SFT:
        return [SftRow(*ids(chat, chat.chosen), 1.0, "") for chat in chats]
    return [PairRow(*ids(chat, chat.chosen), ids(chat, chat.rejected)[1], 1.0, "") for chat in chats]


def _ours(model: Any, rows: list[SftRow] | list[PairRow], method: Method, folder: str) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    return make_trainer(model, tokenizer, Phase(method, rows), len(rows) // BATCH, RECIPE, Path(folder))


def _plain_model() -> Any:
    return AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)


def _plain(model: Any, chats: list[Chat], method: Method, folder: str) -> Any:
    """As TRL's documentation writes it; only what would change the result is said: adapter, learning rate, one pass."""
    lora = LoraConfig(r=RECIPE.rank, lora_alpha=RECIPE.alpha, target_modules="all-linear", task_type="CAUSAL_LM")
    said: dict[str, Any] = {"output_dir": folder, "use_cpu": True, "num_train_epochs": 1, "logging_steps": 1}
    said |= {"learning_rate": RECIPE.learning_rate, "lr_scheduler_type": "constant", "report_to": "none"}
    said |= {"seed": SEED, "disable_tqdm": True}
    given = {"model": model, "processing_class": AutoTokenizer.from_pretrained(BASE), "peft_config": lora}
    if method is Method.SFT:
        rows = [{"prompt": chat.prompt, "completion": _answer(chat.chosen)} for chat in chats]
        return SFTTrainer(args=SFTConfig(**said), train_dataset=Dataset.from_list(rows), **given)
    rows = [{"prompt": c.prompt, "chosen": _answer(c.chosen), "rejected": _answer(c.rejected)} for c in chats]
    said |= {"beta": RECIPE.dpo_beta, "loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, RECIPE.dpo_sft_weight]}
    return DPOTrainer(args=DPOConfig(**said), train_dataset=Dataset.from_list(rows), **given)


def _answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


if __name__ == "__main__":
    main()
