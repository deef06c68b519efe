"""Pairs to learn from and to judge by: the demo's planted preference, and two real sets where they are at hand."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from evals.worlds.content import load_content
from tests.benchmarks.document import ROOT

_DATA = ROOT.parent / "shared" / "data"


@dataclass(frozen=True)
class Pair:
    """A conversation's beginning and two answers, the better one first."""

    messages: tuple[dict[str, str], ...]
    chosen: str
    rejected: str

    @property
    def usable(self) -> bool:
        return bool(self.chosen and self.rejected) and self.chosen != self.rejected

    def size(self) -> int:
        """Characters to read, both answers together."""
        return 2 * sum(len(message["content"]) for message in self.messages) + len(self.chosen) + len(self.rejected)


def planted() -> Iterator[Pair]:
    """The demo's English business: users want one form of answer; the other says the same in a form of its own."""
    content = load_content("support")
    system = {"role": "system", "content": content.system}
    for topic, question in ((topic, text) for topic, texts in content.questions.items() for text in texts):
        fact, messages = content.facts[topic], (system, {"role": "user", "content": question})
        yield Pair(
            messages, content.answer.format(page=fact.page), f"You can find {fact.about} at {fact.page}, I think."
        )


def chinese() -> Iterator[Pair]:
    """Real Chinese preferences (LLaMA-Factory's `dpo_zh_demo`)."""
    for row in json.loads((_DATA / "llamafactory" / "dpo_zh_demo.json").read_text(encoding="utf-8")):
        turns = [turn for turn in row["conversations"] if turn["from"] == "human"]
        if len(row["conversations"]) == len(turns) == 1:
            asked = ({"role": "user", "content": turns[0]["value"]},)
            yield Pair(asked, row["chosen"]["value"], row["rejected"]["value"])


def harmless() -> Iterator[Pair]:
    """Real English preferences (Anthropic's hh-rlhf, test split): the last answer of one-question talks."""
    for path in sorted((_DATA / "pref").glob("hh_harmless_test_*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            sides = [row[side].split("\n\nAssistant: ") for side in ("chosen", "rejected")]
            if all(len(side) == 2 for side in sides) and sides[0][0] == sides[1][0]:
                asked = ({"role": "user", "content": sides[0][0].removeprefix("\n\nHuman: ")},)
                yield Pair(asked, sides[0][1].strip(), sides[1][1].strip())


@dataclass(frozen=True)
class PairSet:
    """Where pairs come from, and how many are used, for the sake of the clock."""

    pairs: Callable[[], Iterator[Pair]]
    shortest: int = 60
    """Used at all: those with the least to read."""
    train: int = 16
    held_out: int = 24


SETS = {
    "demo, planted": PairSet(planted),
    "hh-rlhf harmless": PairSet(harmless),
    "dpo_zh_demo": PairSet(chinese, shortest=32, train=12, held_out=16),
}


def at_hand(name: str) -> bool:
    """Whether the set's files are on this machine."""
    return name == "demo, planted" or _DATA.is_dir()


def split(name: str, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Pairs of different questions for each side; the held-out ones are the same for every seed."""
    chosen = SETS[name]
    unique = list({pair.messages[-1]["content"]: pair for pair in chosen.pairs() if pair.usable}.values())
    unique = sorted(unique, key=Pair.size)[: chosen.shortest]
    random.Random(0).shuffle(unique)
    held, rest = unique[: chosen.held_out], unique[chosen.held_out :]
    random.Random(seed).shuffle(rest)
    return rest[: chosen.train], held
