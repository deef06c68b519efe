"""Run the measurement: `python -m tests.benchmarks.learning`."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}

import numpy as np
import torch
from rich.console import Console
from transformers import set_seed

from pipeline.records import Method, PreferenceExample, SftExample, Source, UnpairedExample
from pipeline.train.model import load_model
from pipeline.train.plan import Phase
from pipeline.train.recipe import Recipe
from pipeline.train.rows import PairRow, Rendering
from pipeline.train.tokenizer import load_rendering
from pipeline.train.trainers import make_trainer
from tests.benchmarks.document import DOCUMENT, RESULTS, wrapped, write_json, write_section
from tests.benchmarks.learning.kept import Kept, Trained, training_key
from tests.benchmarks.learning.pairs import SETS, Pair, at_hand, split
from tests.benchmarks.machine import Machine
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import table

_BASE = Path("var/models/smollm2-135m-instruct")
_RECIPE = Recipe(rank=16, alpha=32, learning_rate=1e-3, batch_size=4)
_SAMPLES = 10_000
_METHOD = """\
For each set 16 pairs (12 Chinese ones) are learned once, four a step, by the product's own trainers from the same fresh
adapter, and 24 (16) other pairs judge. A pair counts as right when the model finds the preferred answer likelier, a
token, than the other. SFT sees the preferred answers only, KTO both as votes that nobody paired. Seeds draw which pairs
are learned and their order; the pairs that judge stay. The interval (95 %) of the gain is a bootstrap over the judging
pairs, a pair's gain being its mean over the seeds. Of the real sets the shortest pairs are taken, for the sake of the
clock. The model has 135 million parameters: what shows here is whether training moves it the right way, not how good it
becomes. It was hardly taught any Chinese (`dpo_zh_demo`), of which it reads 1.7 tokens a character: a dozen such pairs
taught it nothing. `--sets` measures some of the sets; what was measured before is kept.\
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.learning", description="Whether training helps.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="what to measure now")
    given = parser.parse_args()
    seeds = given.seeds
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    torch.set_num_threads(1)
    names = [name for name in given.sets if at_hand(name)]
    for name in sorted(set(given.sets) - set(names)):
        console.print(f"skipped {name}: its files are not on this machine")
    kept = Kept(RESULTS / "learning.jsonl")
    for name in names:
        _measure(name, seeds, kept, console)
    trained = [one for name in SETS if at_hand(name) for one in _measured(name, seeds, kept)]
    rows, lines = [], []
    for name, method in dict.fromkeys((one.name, one.method) for one in trained):
        row, line = _judged([one for one in trained if (one.name, one.method) == (name, method)])
        rows.append(row)
        lines.append(line)
    headings = ("", "seeds", "before", "after", "gain", "95 % interval", "margin, nats a token")
    text = table(headings, lines)
    console.print(text)
    machine, now = Machine.this(), datetime.now(UTC)
    write_json(RESULTS / "learning.json", rows, machine, now, {"trained": [vars(one) for one in trained]})
    about = wrapped(f"`make bench-learning`, {now:%Y-%m-%d}. {machine}.")
    title = "## Whether training helps: held-out preference accuracy"
    write_section("learning", "\n\n".join([title, about, _METHOD, text]))
    console.print(f"written: {RESULTS / 'learning.json'}, {DOCUMENT}", soft_wrap=True)
    return 0


def _measure(name: str, seeds: int, kept: Kept, console: Console) -> None:
    """Seed after seed, so that a run that is broken off has whole ones."""
    for seed in range(seeds):
        for method in Method:
            began = time.monotonic()
            one = kept.measure(_key(name, method, seed), partial(_learn, name, method, seed))
            console.print(
                f"{name:<17} {method} seed {seed}: {np.mean(one.before):.2f} -> {np.mean(one.after):.2f}, margin "
                f"{one.margin:+.2f} nats a token, {time.monotonic() - began:.0f} s"
            )


def _measured(name: str, seeds: int, kept: Kept) -> list[Trained]:
    """What is kept of a set, the methods one after the other."""
    found = (kept.get(_key(name, method, seed)) for method in Method for seed in range(seeds))
    return [one for one in found if one is not None]


def _key(name: str, method: Method, seed: int) -> str:
    return training_key(method, seed, _RECIPE, *split(name, seed))


@cache
def _before(name: str) -> list[float]:
    """Of the base model: a fresh adapter changes nothing."""
    _, held_out = split(name, 0)
    return _margins(load_model(_BASE, _RECIPE, None), _judges(load_rendering(_BASE, 1024), held_out))


def _judges(rendering: Rendering, pairs: Sequence[Pair]) -> Sequence[PairRow]:
    return rendering.pairs([_preference(pair) for pair in pairs]).rows


def _learn(name: str, method: Method, seed: int) -> Trained:
    before = _before(name)
    set_seed(seed)
    train, held_out = split(name, seed)
    rendering = load_rendering(_BASE, 1024)
    model = load_model(_BASE, _RECIPE, None)
    rows = _rows(rendering, method, train)
    with tempfile.TemporaryDirectory() as folder:
        steps = -(-len(rows) // _RECIPE.batch_size)
        make_trainer(model, rendering.tokenizer, Phase(method, rows), steps, _RECIPE, Path(folder)).train()
    after = _margins(model, _judges(rendering, held_out))
    gain = float(np.mean(np.subtract(after, before)))
    return Trained(name, method, seed, [m > 0 for m in before], [m > 0 for m in after], gain)


def _rows(rendering: Rendering, method: Method, pairs: Sequence[Pair]) -> Any:
    match method:
        case Method.SFT:
            return rendering.sft([_sft(pair) for pair in pairs]).rows
        case Method.DPO:
            return rendering.pairs([_preference(pair) for pair in pairs]).rows
        case Method.KTO:
            votes = [_vote(pair, liked) for pair in pairs for liked in (True, False)]
            order = np.random.default_rng(0).permutation(len(votes))
            return rendering.votes([votes[i] for i in order]).rows


def _margins(model: Any, pairs: Sequence[PairRow]) -> list[float]:
    """How much likelier, in nats a token, the preferred answer of each pair is than the other."""
    model.eval()
    return [
        _per_token(model, pair.prompt, pair.chosen) - _per_token(model, pair.prompt, pair.rejected) for pair in pairs
    ]


@torch.no_grad()
def _per_token(model: Any, prompt: list[int], answer: list[int]) -> float:
    ids = torch.tensor([prompt + answer])
    logits = model(input_ids=ids, logits_to_keep=len(answer) + 1, use_cache=False).logits[0, :-1]
    picked = logits.float().log_softmax(-1).gather(1, torch.tensor(answer)[:, None])
    return float(picked.mean())


def _judged(trained: Sequence[Trained]) -> tuple[Row, tuple[str, ...]]:
    before = np.mean([one.before for one in trained], axis=0)
    after = np.mean([one.after for one in trained], axis=0)
    draws = np.random.default_rng(0).integers(len(before), size=(_SAMPLES, len(before)))
    low, high = np.quantile((after - before)[draws].mean(axis=1), (0.025, 0.975))
    first, gain = trained[0], float(np.mean(after - before))
    metric = f"{first.name}, {first.method.upper()}: held-out preference accuracy, before as peer"
    row = Row(metric, float(after.mean()), float(before.mean()), None, "none", None, False)
    margin = float(np.mean([one.margin for one in trained]))
    label = f"{first.name}, {first.method.upper()}"
    interval = f"{low:+.2f} to {high:+.2f}"
    seeds = str(len(trained))
    return row, (
        label,
        seeds,
        f"{before.mean():.2f}",
        f"{after.mean():.2f}",
        f"{gain:+.2f}",
        interval,
        f"{margin:+.2f}",
    )


_SOURCE = Source(
    interaction_ids=("i",),
    event_ids=("e",),
    model_versions=("base",),
    user_keys=(),
    session="s",
    at=datetime(2026, 1, 1, tzinfo=UTC),
)


def _preference(pair: Pair) -> PreferenceExample:
    return PreferenceExample(
        prompt=pair.messages, chosen=_said(pair.chosen), rejected=_said(pair.rejected), source=_SOURCE
    )


def _sft(pair: Pair) -> SftExample:
    return SftExample(prompt=pair.messages, completion=_said(pair.chosen), source=_SOURCE)


def _vote(pair: Pair, liked: bool) -> UnpairedExample:
    answer = pair.chosen if liked else pair.rejected
    return UnpairedExample(prompt=pair.messages, completion=_said(answer), label=liked, source=_SOURCE)


def _said(text: str) -> Any:
    return ({"role": "assistant", "content": text},)


if __name__ == "__main__":
    sys.exit(main())
