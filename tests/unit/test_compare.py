"""`tuneloop compare`: the exit code is the verdict, and a mistake is one line."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flows.cli import main
from pipeline.dataset.snapshot import write_snapshot
from pipeline.dataset.split import SplitRows
from pipeline.serving.scripted import ScriptedEngine
from tests.builders import NOON, a_rated, a_source, an_interaction, an_sft

ANSWERS = {"good": "Please open the orders page.", "bad": "Perhaps.", "other-bad": "Maybe."}
SYSTEM = """
base_model: {id: base, revision: main, path: var/models/base}
state_dir: STATE
engines: [{name: e, url: "http://127.0.0.1:1"}]
"""
BUSINESS = """
business: support
title: Shop support
language: en
report_language: en
timezone: UTC
nightly: "0 2 * * *"
gate:
  bootstrap_samples: 200
  min_users: 12
  max_pairs: 0
  probes: {sycophancy: 0, general: 0}
  guardrails: {empty: 0.01}
suite: suites/support.yaml
"""
SUITE = """
rules: [{kind: contains, text: orders page}]
items: [{id: one, prompt: "Where is it?"}, {id: two, prompt: "When will it come?"}]
"""
EngineOf = Callable[[str], str]


@pytest.fixture
def engine() -> Iterator[EngineOf]:
    """The URL of an engine whose base model always says the same, by its name."""
    running: dict[str, ScriptedEngine] = {}

    def url(model: str) -> str:
        if model not in running:
            running[model] = ScriptedEngine(model, answer=lambda name, messages: ANSWERS[name])
            running[model].start()
        return running[model].url

    yield url
    for one in running.values():
        one.stop()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Options that name a business, a snapshot and a page."""
    texts = {
        "tuneloop.yaml": SYSTEM.replace("STATE", str(tmp_path / "state")),
        "businesses/support.yaml": BUSINESS,
        "suites/support.yaml": SUITE,
    }
    for name, text in texts.items():
        (tmp_path / "configs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "configs" / name).write_text(text)
    write(tmp_path / "state" / "snapshots")
    return {
        "--configs": str(tmp_path / "configs"),
        "--business": "support",
        "--snapshot": "latest",
        "--out": str(tmp_path / "out" / "report.html"),
    }


def write(root: Path, *train: Any) -> None:
    held_out = tuple(an_sft(a_source(f"i{n}", user=f"u{n}", session=f"s{n}"), f"Question {n}?") for n in range(10))
    rows = SplitRows(train=train, held_out=held_out, recent=(), dropped=(), split_by="user")
    names = {i for row in (*train, *held_out) for i in row.source.interaction_ids}
    rated = [a_rated(an_interaction(name)) for name in sorted(names)]
    write_snapshot(root, business="support", window=(NOON, NOON), rated=rated, clean=[], dropped=[], rows=rows)


def run(options: dict[str, str]) -> Result:
    return CliRunner().invoke(main, ["compare", *(word for pair in options.items() for word in pair)])


@pytest.mark.parametrize(
    ("baseline", "candidate", "goal", "code", "told"),
    [
        ("bad", "good", "better", 0, "PROMOTE"),
        ("good", "bad", "better", 1, "REJECT"),
        ("bad", "other-bad", "better", 3, "INCONCLUSIVE"),
        ("bad", "other-bad", "not_worse", 0, "PROMOTE"),
        ("good", "bad", "not_worse", 1, "REJECT"),
    ],
)
def test_the_exit_code_is_the_verdict(
    engine: EngineOf, files: dict[str, str], baseline: str, candidate: str, goal: str, code: int, told: str
) -> None:
    sides = {"--baseline": f"{engine(baseline)}#{baseline}", "--candidate": f"{engine(candidate)}/v1", "--goal": goal}
    done = run(files | sides)
    assert done.exit_code == code, done.output
    assert told in done.output
    assert "24/24" in done.output
    assert candidate in Path(files["--out"]).read_text(encoding="utf-8")


def test_a_suite_is_enough(engine: EngineOf, tmp_path: Path) -> None:
    items = [f'{{id: "{n}", prompt: "Question {n}?", checks: [{{kind: contains, text: orders}}]}}' for n in range(30)]
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"items: [{', '.join(items)}]")
    options = {"--suite": str(suite), "--out": str(tmp_path / "r.html"), "--work-dir": str(tmp_path / "work")}
    done = run(options | {"--baseline": engine("good"), "--candidate": engine("bad")})
    assert done.exit_code == 1, done.output
    assert "Rules kept" in done.output


def test_a_snapshot_that_leaks_is_refused(engine: EngineOf, files: dict[str, str], tmp_path: Path) -> None:
    leak = an_sft(a_source("i-train", user="u3", session="s-train"), "Something else?")
    write(tmp_path / "leaking" / "snapshots", leak)
    config = Path(files["--configs"]) / "tuneloop.yaml"
    config.write_text(SYSTEM.replace("STATE", str(tmp_path / "leaking")))
    done = run(files | {"--baseline": engine("good"), "--candidate": engine("bad")})
    assert done.exit_code == 2
    assert "1 of them hold a held-out user (such as 'i-train')" in done.output
    assert not Path(files["--out"]).exists()


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ({"--candidate": "127.0.0.1:1#m"}, "--candidate: '127.0.0.1:1#m' is no URL"),
        ({"--candidate": "http://127.0.0.1:1"}, "http://127.0.0.1:1: no answer (ConnectError); is the engine up?"),
        ({"--snapshot": "beef"}, "business 'support' has no snapshot 'beef'"),
        ({"--business": "nobody"}, "no business 'nobody'"),
        ({"--suite": "/nowhere.yaml"}, "/nowhere.yaml"),
        ({"--key-file": "/nowhere"}, "/nowhere"),
        ({"--margin": "-1"}, "-1"),
        ({"--goal": "best"}, "best"),
    ],
)
def test_a_mistake_is_one_line_and_another_code(files: dict[str, str], mistake: dict[str, str], told: str) -> None:
    done = run({"--baseline": "http://127.0.0.1:1#m", "--candidate": "http://127.0.0.1:1#m"} | files | mistake)
    assert done.exit_code == 2
    assert told in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)


def test_with_nothing_to_ask_it_says_what_to_name(tmp_path: Path) -> None:
    rules_only = tmp_path / "rules.yaml"
    rules_only.write_text("rules: [{kind: max_words, limit: 5}]")
    sides = {"--baseline": "http://127.0.0.1:1#m", "--candidate": "http://127.0.0.1:1#m"}
    for options, told in (
        ({}, "nothing to ask: name a golden suite with items (--suite), or a --business with its --snapshot"),
        ({"--suite": str(rules_only)}, "nothing to ask"),
        ({"--snapshot": "latest"}, "--snapshot: 'latest' is a snapshot of which --business?"),
    ):
        done = run(sides | options)
        assert done.exit_code == 2
        assert told in done.output


def test_help_teaches_the_exit_codes() -> None:
    told = run({"--help": ""}).output
    for words in ("URL[#ADAPTER]", "0 promote", "1 reject", "2 the comparison", "3 inconclusive"):
        assert words in told
