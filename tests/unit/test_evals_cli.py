"""`python -m evals`: the exit code is the verdict, and a mistake is one line."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from evals.__main__ import main
from pipeline.dataset.snapshot import write_snapshot
from pipeline.dataset.split import SplitRows
from tests.builders import NOON, a_rated, a_source, an_interaction, an_sft

ANSWERS = {"good": "Please open the orders page.", "bad": "Perhaps.", "other-bad": "Maybe."}
BUSINESS = """
business: support
title: Shop support
language: en
report_language: en
timezone: UTC
nightly: "0 2 * * *"
gate: {bootstrap_samples: 200, min_users: 12, max_pairs: 0, guardrails: {empty: 0.01}}
suite: suites/support.yaml
"""
SUITE = """
rules: [{kind: contains, text: orders page}]
items: [{id: one, prompt: "Where is it?"}, {id: two, prompt: "When will it come?"}]
"""


class Engine(BaseHTTPRequestHandler):
    """An OpenAI-compatible server whose models always say the same."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = json.dumps({"choices": [{"message": {"content": ANSWERS[body["model"]]}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def engine() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    configs = tmp_path / "configs"
    for name, text in (("businesses/support.yaml", BUSINESS), ("suites/support.yaml", SUITE)):
        (configs / name).parent.mkdir(parents=True)
        (configs / name).write_text(text)
    held_out = tuple(an_sft(a_source(f"i{n}", user=f"u{n}"), f"Question {n}?") for n in range(10))
    manifest = write_snapshot(
        tmp_path / "snapshots",
        business="support",
        window=(NOON, NOON),
        rated=[a_rated(an_interaction(f"i{n}")) for n in range(10)],
        clean=[],
        dropped=[],
        rows=SplitRows(train=(), held_out=held_out, recent=(), dropped=(), split_by="user"),
    )
    return {
        "--snapshot": str(tmp_path / "snapshots" / "support" / manifest.snapshot_id),
        "--config": str(configs / "businesses" / "support.yaml"),
        "--out": str(tmp_path / "out" / "report.html"),
    }


def run(files: dict[str, str], **sides: str) -> int:
    options = files | {f"--{side}": value for side, value in sides.items()}
    return main([word for pair in options.items() for word in pair])


@pytest.mark.parametrize(
    ("baseline", "candidate", "code", "told"),
    [("bad", "good", 0, "PROMOTE"), ("good", "bad", 1, "REJECT"), ("bad", "other-bad", 2, "INCONCLUSIVE")],
)
def test_the_exit_code_is_the_verdict(
    engine: str,
    files: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    baseline: str,
    candidate: str,
    code: int,
    told: str,
) -> None:
    assert run(files, baseline=f"{engine}#{baseline}", candidate=f"{engine}/v1#{candidate}") == code
    said = capsys.readouterr().err
    assert told in said
    assert "24/24" in said
    assert candidate in Path(files["--out"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ({"--candidate": "127.0.0.1:1#m"}, "--candidate: '127.0.0.1:1#m' is no URL#MODEL"),
        ({"--snapshot": "/nowhere"}, "/nowhere"),
        ({"--config": "/nowhere.yaml"}, "/nowhere.yaml: no such file"),
        ({"--suite": "/nowhere.yaml"}, "/nowhere.yaml: no such file"),
        ({"--key-file": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_mistake_is_one_line_and_another_code(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], mistake: dict[str, str], told: str
) -> None:
    files = {"--baseline": "http://127.0.0.1:1#m", "--candidate": "http://127.0.0.1:1#m"} | files | mistake
    assert run(files) == 3
    said = capsys.readouterr().err
    assert told in " ".join(said.split())
    assert "Traceback" not in said
