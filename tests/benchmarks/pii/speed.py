"""CPU time of one core, ours and a peer in turns on the same conversations."""

import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pipeline.clean.pii.spans import PiiDetector, Span
from tests.benchmarks.figures import middle, paired_ratio
from tests.benchmarks.gateway.proc import machine_busy_ns
from tests.benchmarks.pii.corpus import SHARED, chinese, english_looked_at
from tests.benchmarks.rows import Row

_BATCH = 256
"""As many texts as a night gives to a detector at once."""
_SENTENCES = (0, 1, 0, 2, 0, 3)
"""How many sentences with personal data stand in a conversation, in turn."""
_CONTENDED_CORES = 0.15
_SURE = 0.4
"""Below, Presidio itself has seen no more than some digits."""


@dataclass
class Race:
    """Ours and a peer on the same texts: CPU seconds a round, and what each found in the first."""

    texts: Sequence[str]
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    others_cores: list[float] = field(default_factory=list)
    found: tuple[list[list[Span]], list[list[Span]]] = field(default_factory=lambda: ([], []))

    def row(self, metric: str, least: float) -> Row:
        """CPU ms a text, and how many times less ours is."""
        ratio = paired_ratio(self.peer, self.ours)
        ours, peer = ((middle(values) or 0.0) / len(self.texts) * 1e3 for values in (self.ours, self.peer))
        met = ratio is not None and ratio >= least
        busy = max(self.others_cores) > _CONTENDED_CORES
        return Row(metric, ours, peer, ratio, f"at least {least:g} times less", met, busy)

    def kept(self, metric: str, least: float) -> Row:
        """The share of what the peer is sure of, of kinds that we look for, that ours covers."""
        ours, peer = self.found
        kinds = {span.entity for spans in ours for span in spans}
        sure = [(s, row) for row, spans in zip(ours, peer, strict=True) for s in spans if s.entity in kinds]
        covered = [any(o.start < s.end and s.start < o.end for o in row) for s, row in sure if s.score >= _SURE]
        share = sum(covered) / max(1, len(covered))
        return Row(f"{metric} ({len(covered):,})", share, None, None, f"at least {least:g}", share >= least, False)


def race(texts: Sequence[str], ours: PiiDetector, peer: PiiDetector, rounds: int, say: Callable[[str], None]) -> Race:
    """Time both once a round, every second round backwards."""
    ours(texts[:8]), peer(texts[:8])  # what is loaded at first use is not counted
    result = Race(texts)
    for number in range(rounds):
        contestants = [(0, ours, result.ours), (1, peer, result.peer)]
        busy, began, used = machine_busy_ns(), time.monotonic(), 0.0
        for place, detector, times in contestants[:: -1 if number % 2 else 1]:
            gc.collect()
            before = time.process_time()
            found = [spans for at in range(0, len(texts), _BATCH) for spans in detector(texts[at : at + _BATCH])]
            times.append(time.process_time() - before)
            used += times[-1]
            if number == 0:
                result.found[place].extend(found)
        others = (machine_busy_ns() - busy) / 1e9 - used
        result.others_cores.append(max(0.0, others / (time.monotonic() - began)))
        say(f"round {number + 1}: ours {result.ours[-1]:.2f} s, peer {result.peer[-1]:.2f} s of CPU")
    return result


def english_texts(count: int) -> list[str]:
    """Conversations, with marked sentences in half of them."""
    lines = (SHARED / "pref/hh_harmless_test_a.jsonl").read_text().splitlines()[:count]
    sentences = iter([marked.text for marked in english_looked_at()])
    texts = []
    for at, line in enumerate(lines):
        inserted = [next(sentences, "") for _ in range(_SENTENCES[at % len(_SENTENCES)])]
        texts.append("\n\n".join([json.loads(line)["chosen"], *inserted]))
    return texts


def chinese_texts(count: int) -> list[str]:
    """Medical answers, service dialogues and our marked sentences, in turn."""
    medical = [row["output"] for row in json.loads((SHARED / "medical/huatuo_first600.json").read_text())]
    dialogues = [_dialogue(line) for line in (SHARED / "chat/crosswoz_val_300.jsonl").read_text().splitlines()]
    sentences = [marked.text for marked in chinese()]
    mixed = [text for row in zip(medical, dialogues, sentences, strict=False) for text in row]
    return mixed[:count]


def _dialogue(line: str) -> str:
    return "\n".join(str(message["content"]) for message in json.loads(line)["messages"])
