"""Run the benchmark: `python -m tests.benchmarks.train`."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from rich.console import Console

from tests.benchmarks.document import DOCUMENT, RESULTS, ROOT, wrapped, write_json, write_section
from tests.benchmarks.figures import middle, paired_ratio
from tests.benchmarks.gateway.proc import machine_busy_ns
from tests.benchmarks.machine import Machine
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import rows_table, shown, table

_CHATS = {"sft": 32, "dpo": 16}
"""Rows, eight a step."""
_ROUNDS = 1
_CONTENDED_CORES = 0.15
_METHOD = """\
Rows are short chats of everyday words, each fourth Chinese, 150 tokens on average, for the demo's base model
(SmolLM2-135M) with a LoRA of rank 16. The peer is TRL's trainer as its documentation writes it, all else left at its
defaults (eight rows a batch, padded; bf16; activations recomputed); adapter, learning rate, steps, seed and the order
of rows are the same, one thread each. Ours takes four rows at a time and eight a step, every row with its weight, in 32
bits. CPU time is from the rows to the end of the last step, without loading the model; tokens are those of the rows
without padding. Each run has a process of its own, in turns; the ratio is taken within a round, then its median. TRL
also trains the line break behind an answer, which lowers its loss a little, and takes DPO's SFT term as a mean over a
batch's tokens, ours over each answer's.

Where it comes from: no padding (a batch is one sequence, and attention runs row by row); prompts cost no logits (TRL
scores every position on a CPU); the reference of DPO is computed once. DPO gains less, because it is TRL's own loss:
the prompts of both answers of a pair are scored.

On GPUs nothing was measured, because no machine with one was at hand: several processes run in tests on CPUs (gloo, two
processes, the same adapter within tolerance), while bf16 and 4-bit base models have not been run. Every process holds
the whole base model. FSDP, which would split it, is not supported: an adapter is checked, asked for answers and saved
on one whole model.\
"""


@dataclass(frozen=True)
class Run:
    """One process's figures, and what others took of the machine meanwhile."""

    name: str
    method: str
    cpu_s: float
    tokens: int
    losses: list[float]
    peak_mb: float
    others_cores: float

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.cpu_s


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.train", description="Training.")
    parser.add_argument("--quick", action="store_true", help="one round of one step; nothing is published")
    quick = parser.parse_args().quick
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    runs = []
    for number in range(1 if quick else _ROUNDS):
        for method, chats in _CHATS.items():
            for name in ("tuneloop", "trl")[:: -1 if number % 2 else 1]:
                runs.append(_run(name, method, 8 if quick else chats))
                one = runs[-1]
                console.print(f"{method} {name:<9} {one.tokens_per_s:6.1f} tokens/CPU-s  peak {one.peak_mb:,.0f} MB")
    rows = [row for method in _CHATS for row in _rows(method, runs)]
    console.print(shown(rows))
    machine, now = Machine.this(), datetime.now(UTC)
    results = RESULTS / ("train-quick.json" if quick else "train.json")
    write_json(results, rows, machine, now, {"runs": [vars(run) for run in runs]})
    if not quick:
        write_section("train", _section(rows, runs, machine, now))
        console.print(f"written: {results}, {DOCUMENT}", soft_wrap=True)
    return 0


def _run(name: str, method: str, chats: int) -> Run:
    command = [sys.executable, "-m", "tests.benchmarks.train.contestant", name, method, str(chats)]
    busy, began = machine_busy_ns(), time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench-train: {name} {method}: {done.stderr.strip()[-500:]}")
    figures = json.loads(done.stdout.splitlines()[-1])
    wall = time.monotonic() - began
    others = (machine_busy_ns() - busy) / 1e9 / wall - 1  # ours keeps one core busy from beginning to end
    return Run(name, method, **figures, others_cores=max(0.0, others))


def _rows(method: str, runs: Sequence[Run]) -> list[Row]:
    ours, peer = ([run for run in runs if (run.name, run.method) == (name, method)] for name in ("tuneloop", "trl"))
    contended = any(run.others_cores > _CONTENDED_CORES for run in (*ours, *peer))
    speeds = [[run.tokens_per_s for run in those] for those in (ours, peer)]
    memory = [middle([run.peak_mb for run in those]) or 0.0 for those in (ours, peer)]
    faster, larger = paired_ratio(*speeds), memory[0] / memory[1]
    goal, met = ("at least 2 times", faster is not None and faster >= 2) if method == "sft" else ("none", None)
    metric = f"{method.upper()}: useful tokens per CPU second, against TRL's plain trainer"
    return [
        Row(metric, *[middle(values) or 0.0 for values in speeds], faster, goal, met, contended),
        Row(f"{method.upper()}: peak MB, against the same", *memory, larger, "at most 1 times", larger <= 1, False),
    ]


def _section(rows: Sequence[Row], runs: Sequence[Run], machine: Machine, now: datetime) -> str:
    about = f"{_ROUNDS} round. {machine}, TRL {version('trl')}, torch {version('torch')}."
    first = runs[: 2 * len(_CHATS)]
    losses = table(
        ("loss at each step", *map(str, range(1, 5))),
        [(f"{run.method} {run.name}", *_padded([f"{loss:.2f}" for loss in run.losses])) for run in first],
    )
    parts = ["## Training", wrapped(f"`make bench-train`, {now:%Y-%m-%d}, {about}"), _METHOD, rows_table(rows), losses]
    if any(row.contended for row in rows):
        parts.append("\\* Others took more than 0.15 cores meanwhile.")
    return "\n\n".join(parts)


def _padded(cells: Sequence[str]) -> list[str]:
    return [*cells, *[""] * (4 - len(cells))]


if __name__ == "__main__":
    sys.exit(main())
