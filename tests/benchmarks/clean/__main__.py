"""Run the benchmark: `python -m tests.benchmarks.clean`."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from rich.console import Console

from tests.benchmarks.clean.interactions import write_log
from tests.benchmarks.clean.lake import BUSINESSES, DAYS, rank_shares, write_lake
from tests.benchmarks.clean.measure import Ran, run
from tests.benchmarks.clean.plot import plot
from tests.benchmarks.clean.talk import CHINESE_SPEECH, ENGLISH_SPEECH
from tests.benchmarks.document import DOCUMENT, RESULTS, wrapped, write_json, write_section
from tests.benchmarks.machine import Machine
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import number, rows_table, shown, table

_SIZES, _MORE, _QUICK = (10_000, 30_000, 100_000), 300_000, (1_000, 3_000)
_GOAL = 100_000
_EVENTS, _QUICK_EVENTS, _QUERIES = 10_000_000, 100_000, 3
_ASKED = 5
"""Rank of the business that is asked for: its share is about one in twenty."""
_BUSINESSES = (("english", "en", ENGLISH_SPEECH), ("chinese", "zh", CHINESE_SPEECH))
_CONTENDED_CORES = 0.15
_PLOT = DOCUMENT.parent / "clean.svg"
_METHOD = """\
Interactions are made and seeded: two weeks of an English and a Chinese business with as many each, answers of 300
characters in English and 120 in Chinese, every third question with personal data in it, a quarter of them later turns
of a conversation, a tenth repeated, eight in ten judged by thumbs, edits or outcomes. Each night is a process of its
own that starts with closed segments: compaction, reading, join, poison screen, cleaning with the real detectors,
duplicates, examples, snapshot; the two nights run one after the other, each with as many processes as there are cores.
Memory is the resident memory of all processes added up, so what they share counts twice. The query is all that
reading a window asks of DuckDB, to the last text, of a lake of ten million events of twenty businesses and thirty days:
three days of a business with a twentieth of the events, with all feedback for them; median of three fresh processes.\
"""


@dataclass(frozen=True)
class Size:
    """Both nights at one size."""

    interactions: int
    nights: tuple[Ran, ...]

    @property
    def seconds(self) -> float:
        return sum(night.seconds for night in self.nights)

    @property
    def cpu_seconds(self) -> float:
        return sum(night.cpu_seconds for night in self.nights)

    @property
    def peak_mb(self) -> float:
        return max(night.peak_mb for night in self.nights)

    @property
    def contended(self) -> bool:
        return any(night.others_cores > _CONTENDED_CORES for night in self.nights)


def main() -> int:
    """0 after a run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.clean", description="Event log to snapshot.")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is published")
    parser.add_argument("--full", action="store_true", help=f"{_MORE:,} interactions as well")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, soft_wrap=True)
    sizes = _QUICK if given.quick else (*_SIZES, _MORE) if given.full else _SIZES
    with tempfile.TemporaryDirectory(prefix="bench-clean-") as folder:
        asked = _ask(Path(folder), _QUICK_EVENTS if given.quick else _EVENTS, console)
        measured = [_nights(Path(folder), size, console) for size in sizes]
    rows = [*_rows(measured), *_query_rows(asked)]
    console.print(shown(rows))
    machine, now = Machine.this(), datetime.now(UTC)
    results = RESULTS / ("clean-quick.json" if given.quick else "clean.json")
    rest = {"nights": [asdict(size) for size in measured], "queries": [asdict(one) for one in asked]}
    write_json(results, rows, machine, now, rest)
    if not given.quick:
        _PLOT.write_text(
            plot(
                [m.interactions for m in measured],
                [m.cpu_seconds for m in measured],
                "CPU seconds, event log to snapshot",
            )
            + "\n",
            encoding="utf-8",
        )
        write_section("clean", _section(measured, rows, machine, now))
        console.print(f"written: {results}, {DOCUMENT}, {_PLOT}")
    return 0


def _nights(folder: Path, interactions: int, console: Console) -> Size:
    state = folder / f"state-{interactions}"
    console.print(f"{interactions:,} interactions: writing the event log")
    for seed, (business, _, speech) in enumerate(_BUSINESSES):
        write_log(state / "events", business, speech, interactions // len(_BUSINESSES), seed)
    nights = []
    for business, language, _ in _BUSINESSES:
        ran = run("tests.benchmarks.clean.night", [str(state), business, language])
        nights.append(ran)
        console.print(
            f"  {business}: {ran.seconds:.0f} s, {ran.cpu_seconds:.0f} s of CPU, {ran.peak_mb:,.0f} MB; "
            + ", ".join(f"{name} {took:.1f}" for name, took in ran.told["seconds"].items() if took >= 0.1)
        )
    return Size(interactions, tuple(nights))


def _ask(folder: Path, events: int, console: Console) -> list[Ran]:
    console.print(f"a lake of {events:,} events: writing it")
    write_lake(folder / "lake-events", events)
    business = f"business-{_ASKED}"
    asked = [run("tests.benchmarks.clean.query", [str(folder / "lake-events"), business]) for _ in range(_QUERIES)]
    console.print(f"  asked for {business}: {asked[-1].told}")
    return asked


def _rows(measured: Sequence[Size]) -> list[Row]:
    goal = next((size for size in measured if size.interactions == _GOAL), measured[-1])
    first, last = measured[-2:]  # at the smallest size, loading the models is most of it
    growth = (last.cpu_seconds / last.interactions) / (first.cpu_seconds / first.interactions)
    at = f"{goal.interactions:,} interactions"
    return [
        Row(
            f"seconds from event log to snapshot, {at}",
            goal.seconds,
            None,
            None,
            "at most 600",
            goal.seconds <= 600,
            goal.contended,
        ),
        Row(f"peak MB of all processes, {at}", goal.peak_mb, None, None, "at most 4,096", goal.peak_mb <= 4096, False),
        Row(
            f"CPU seconds of it, {at} (two cores have 1,200 in 600 s)",
            goal.cpu_seconds,
            None,
            None,
            "none",
            None,
            goal.contended,
        ),
        Row(
            f"CPU ms an interaction at {last.interactions:,}, beside {first.interactions:,}",
            last.cpu_seconds / last.interactions * 1000,
            first.cpu_seconds / first.interactions * 1000,
            growth,
            "at most 1.1 times",
            growth <= 1.1,
            last.contended,
        ),
    ]


def _query_rows(asked: Sequence[Ran]) -> list[Row]:
    seconds = median(one.told["seconds"] for one in asked)
    peak = max(one.told["peak_mb"] for one in asked)
    busy = any(one.others_cores > _CONTENDED_CORES for one in asked)
    about = f"three days of a business, {_EVENTS:,} events"
    return [
        Row(f"seconds to ask for {about}", seconds, None, None, "at most 0.5", seconds <= 0.5, busy),
        Row(f"peak MB to ask for {about}", peak, None, None, "at most 256", peak <= 256, False),
    ]


def _section(measured: Sequence[Size], rows: Sequence[Row], machine: Machine, now: datetime) -> str:
    share = rank_shares()[_ASKED]
    facts = (
        f"`make bench-clean`, {now:%Y-%m-%d}. {machine}. The lake: {BUSINESSES} businesses, {DAYS} days; the one that "
        f"is asked for has {share:.1%} of the events."
    )
    parts = ["## Event log to snapshot", wrapped(facts), _METHOD, rows_table(rows), _sizes_table(measured)]
    parts.append(f"![CPU seconds against interactions]({_PLOT.name})")
    if any(row.contended for row in rows):
        parts.append("\\* Other processes took part of the machine; CPU time is what to quote.")
    return "\n\n".join(parts)


def _sizes_table(measured: Sequence[Size]) -> str:
    headings = (
        "interactions",
        "seconds",
        "CPU seconds",
        "CPU ms each",
        "peak MB",
        "of the seconds: cleaning",
        "the rest",
    )
    lines = []
    for size in measured:
        clean = sum(night.told["seconds"]["clean"] for night in size.nights)
        figures = (
            size.seconds,
            size.cpu_seconds,
            size.cpu_seconds / size.interactions * 1000,
            size.peak_mb,
            clean,
            size.seconds - clean,
        )
        lines.append((f"{size.interactions:,}", *map(number, figures)))
    return table(headings, lines)


if __name__ == "__main__":
    sys.exit(main())
