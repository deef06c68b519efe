"""Run the benchmark: `python -m tests.benchmarks.dedup`."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np
from rich.console import Console

from pipeline.clean.near.search import Bands, Neighbours
from tests.benchmarks.dedup import plain
from tests.benchmarks.dedup.texts import make_texts
from tests.benchmarks.document import DOCUMENT, RESULTS, wrapped, write_json, write_section
from tests.benchmarks.figures import middle, paired_ratio
from tests.benchmarks.gateway.proc import machine_busy_ns
from tests.benchmarks.machine import Machine
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import rows_table, shown

_TRUTH, _TEXTS, _ROUNDS = 5_000, 20_000, 5
_CONTENDED_CORES = 0.15
_METHOD = """\
Texts are made and seeded, half Chinese and half English, of 160 characters on average: a third new, a third copies with
one to four words changed, a fifth from templates, the rest repeated. A shingle is three words or three Chinese
characters; near is a Jaccard index of at least 0.8. The peer is what a user of datasketch writes: one `MinHash` of 128
permutations a text, one `MinHashLSH`, defaults, the first of each set kept. Ours does the same from the same raw texts:
shingles, signatures (equal to datasketch's), bands, and an exact count for every pair that is proposed; the peer
verifies nothing. Both run in turns, every second round backwards; the ratio is taken within a round, then its median.
Quality is that of all reported pairs beside all pairs of texts counted exactly, before facts tell duplicates apart.\
"""


@dataclass(frozen=True)
class Round:
    """CPU seconds of one core, and what others took meanwhile."""

    ours: float
    plain: float
    others_cores: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dedup", description="Near-duplicates.")
    parser.add_argument("--quick", action="store_true", help="fewer texts, one round; nothing is published")
    quick = parser.parse_args().quick
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    rows = _quality(_TRUTH // 5 if quick else _TRUTH, console)
    rounds = _speed(make_texts(_TEXTS // 10 if quick else _TEXTS, seed=2), 1 if quick else _ROUNDS, console)
    rows += _speed_rows(rounds, _TEXTS // 10 if quick else _TEXTS)
    console.print(shown(rows))
    machine, now = Machine.this(), datetime.now(UTC)
    results = RESULTS / ("dedup-quick.json" if quick else "dedup.json")
    write_json(results, rows, machine, now, {"rounds": [vars(one) for one in rounds]})
    if not quick:
        write_section("dedup", _section(rows, machine, now))
        console.print(f"written: {results}, {DOCUMENT}", soft_wrap=True)
    return 0


def keep_first(texts: Sequence[str]) -> list[int]:
    """Places of the texts that no earlier kept one is near to."""
    rows = [(text,) for text in texts]
    bands = Bands.at(plain.THRESHOLD)
    nearest = Neighbours(rows, bands, bands.signatures(rows)).first_come(np.arange(len(rows) + 1))
    return np.flatnonzero(nearest < 0).tolist()


def _quality(count: int, console: Console) -> list[Row]:
    texts = make_texts(count, seed=1)
    console.print(f"all pairs of {count:,} texts, counted exactly")
    truth = plain.true_pairs(texts)
    rows = [(text,) for text in texts]
    bands = Bands.at(plain.THRESHOLD)
    ours = {(one, other) for one, other in Neighbours(rows, bands, bands.signatures(rows)).pairs().tolist()}
    theirs = plain.proposed_pairs(texts)
    about = f"of {len(truth):,} true pairs"

    def row(metric: str, measure: Callable[[set[tuple[int, int]]], float], least: float) -> Row:
        figure = measure(ours)
        return Row(metric, figure, measure(theirs), None, f"at least {least:g}", figure >= least, False)

    return [
        row(f"recall {about}, datasketch as peer", lambda found: len(found & truth) / len(truth), 0.995),
        row("precision of the reported pairs, datasketch as peer", lambda f: len(f & truth) / max(1, len(f)), 1.0),
    ]


def _speed(texts: Sequence[str], rounds: int, console: Console) -> list[Round]:
    keep_first(texts[:100]), plain.keep_first(texts[:100])  # compiled and warm
    measured = []
    for number in range(rounds):
        used: dict[str, float] = {}
        busy, began = machine_busy_ns(), time.monotonic()
        contestants = [("ours", keep_first), ("plain", plain.keep_first)]
        for name, contestant in contestants[:: -1 if number % 2 else 1]:
            before = time.process_time()
            contestant(texts)
            used[name] = time.process_time() - before
        others = (machine_busy_ns() - busy) / 1e9 - sum(used.values())
        measured.append(Round(used["ours"], used["plain"], max(0.0, others / (time.monotonic() - began))))
        console.print(f"round {number + 1}: ours {used['ours']:.2f} s, datasketch {used['plain']:.2f} s of CPU")
    return measured


def _speed_rows(rounds: Sequence[Round], texts: int) -> list[Row]:
    ours, theirs = [one.ours for one in rounds], [one.plain for one in rounds]
    ratio = paired_ratio(theirs, ours)
    busy = any(one.others_cores > _CONTENDED_CORES for one in rounds)
    in_us = [(middle(values) or 0.0) / texts * 1e6 for values in (ours, theirs)]
    met = ratio is not None and ratio >= 7
    return [Row("CPU µs a text, against the plain datasketch loop", *in_us, ratio, "at least 7 times less", met, busy)]


def _section(rows: Sequence[Row], machine: Machine, now: datetime) -> str:
    about = f"{_TEXTS:,} texts, {_ROUNDS} rounds; quality on {_TRUTH:,}. {machine}, datasketch {version('datasketch')}."
    parts = ["## Near-duplicates", wrapped(f"`make bench-dedup`, {now:%Y-%m-%d}, {about}"), _METHOD, rows_table(rows)]
    if any(row.contended for row in rows):
        parts.append("\\* Other processes took part of the machine; CPU time and ratios are what to quote.")
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
