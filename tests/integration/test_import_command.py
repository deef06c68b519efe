"""`tuneloop import` as a person runs it: its table and exit codes; killed and run again; beside gateways and nights."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli import main
from pipeline.events.lake import compact
from pipeline.events.read import read_events
from pipeline.events.segment import SegmentLog
from pipeline.gateway.ids import Ids
from tests.builders import a_feedback, an_interaction
from tests.conftest import ROOT
from tests.importing import EVER, import_into, logged, write

SECRETS = {f"TUNELOOP_{name}": "salt" for name in ("USER_SALT", "ADMIN_KEY", "WEBHOOK_SECRET", "REPORT_SECRET")}
ABOUT = {"answer": "So. " * 250, "rating": 1, "time": "2026-03-10 20:00"}
ROWS = [{"id": f"i{n}", "prompt": f"How {n}?", "user": f"u{n}"} | ABOUT for n in range(4000)]


def run(configs: Path, *arguments: str) -> Result:
    command = ["import", *arguments, "--business", "support", "--configs", str(configs)]
    return CliRunner().invoke(main, command, env=SECRETS)


def test_the_table_says_what_became_of_everything(configs: Path, tmp_path: Path) -> None:
    rows = [json.dumps(row) for row in ROWS[:3]] + ['{"id": "x", "thumb": "up"}', '{"id": "y", "rating": 7}', "{"]
    path = write(tmp_path / "f.jsonl", "\n".join(rows).encode())
    first = run(configs, "generic", str(path), "--timezone", "Asia/Shanghai")
    assert first.exit_code == 1, first.output
    table = dict(re.findall(r"│ +(\S.*?) +│ +(\d+) +│", first.output))
    assert table == {
        "read": "9",
        "stored": "7",
        "already there": "0",
        "refused": "2",
        "cut_short": "1",
        "unknown_value": "1",
        "feedback joined": "3",
        "could not be joined": "1",
    }
    assert "line 5: unknown_value (7 on an unknown scale; name it with --scale)" in first.output
    assert "line 6: cut_short" in first.output
    assert "Asia/Shanghai" in first.output
    again = dict(re.findall(r"│ +(\S.*?) +│ +(\d+) +│", run(configs, "generic", str(path)).output))
    assert (again["stored"], again["already there"], again["could not be joined"]) == ("3", "4", "1")


def test_events_have_their_own_times_users_and_places_in_the_log(configs: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", ROWS[:5])
    assert run(configs, "generic", str(path), "--timezone", "Asia/Shanghai").exit_code == 0
    events_dir = tmp_path / "var" / "events"
    day = datetime(2026, 3, 10, tzinfo=UTC)
    assert compact(events_dir, datetime.now(UTC) + timedelta(hours=3)) == 1
    events = read_events(events_dir, "support", day, day + timedelta(days=1))
    assert [one.started_at.hour for one in events.interactions] == [12] * 5
    assert {one.user_key for one in events.interactions} == {Ids("salt").user_key("support", f"u{n}") for n in range(5)}
    assert (len(events.feedback), events.bad_lines, events.unmatched_feedback) == (5, 0, 0)
    assert [folder.name for folder in (events_dir / "lake" / "support").iterdir() if any(folder.glob("import-*"))]
    assert read_events(events_dir, "support", day + timedelta(days=1), day + timedelta(days=2)).interactions == ()
    again = run(configs, "generic", str(path), "--timezone", "Asia/Shanghai")
    assert re.search(r"already there +│ +10 ", again.output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generic", "absent.jsonl"], "absent.jsonl: no such file"),
        (["generic", __file__, "--timezone", "Mars/Base"], "--timezone: 'Mars/Base'"),
        (["generic", __file__, "--scale", "10"], "--scale: '10'"),
        (["generic", __file__, "--encoding", "klingon"], "--encoding: 'klingon'"),
        (["exchange", __file__], "known: openwebui, chatgpt"),
    ],
)
def test_bad_input_says_what_is_right(configs: Path, arguments: list[str], words: str) -> None:
    result = run(configs, *arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_help_has_an_example_of_each_tool() -> None:
    from pipeline.collect.importers import TOOLS

    output = CliRunner().invoke(main, ["import", "--help"]).output
    assert all(f"tuneloop import {name} " in output for name in TOOLS)


@pytest.mark.parametrize("after_bytes", [1, 4_000_000])
def test_killed_and_run_again_ends_in_the_same_state(configs: Path, tmp_path: Path, after_bytes: int) -> None:
    path = write(tmp_path / "f.jsonl", ROWS)
    segments = tmp_path / "var" / "events" / "segments"
    command = [sys.executable, "-m", "flows.cli", "import", "generic", str(path)]
    command += ["--business", "support", "--configs", str(configs)]
    with subprocess.Popen(command, env={**os.environ, **SECRETS}, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and sum(p.stat().st_size for p in segments.glob("*.jsonl")) < after_bytes:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    held = len(logged(tmp_path / "var" / "events").interactions)
    result = run(configs, "generic", str(path))
    assert result.exit_code == 0, result.output
    events = logged(tmp_path / "var" / "events")
    assert (len(events.interactions), len(events.feedback), events.bad_lines) == (4000, 4000, 0)
    assert f"{4000 - held} interactions" in result.output
    lines = b"".join(p.read_bytes() for p in segments.glob("*.jsonl")).splitlines()
    assert len(lines) == len(set(lines)) == 8000


def test_compacting_while_importing_loses_and_doubles_nothing(tmp_path: Path) -> None:
    events_dir = tmp_path / "events"
    gateway = SegmentLog(events_dir / "segments", "gateway")
    lines = [b'{"interaction":' + an_interaction(f"g{n}").model_dump_json().encode() + b"}" for n in range(100)]
    lines += [b'{"feedback":' + a_feedback(f"e{n}", f"g{n}").model_dump_json().encode() + b"}" for n in range(100)]
    gateway.commit(lines, datetime(2026, 3, 10, 12, tzinfo=UTC))
    gateway.close()
    path = write(tmp_path / "f.jsonl", ROWS[:2000])
    stop = threading.Event()

    def compact_all_the_time() -> None:
        while not stop.is_set():
            compact(events_dir)

    other = threading.Thread(target=compact_all_the_time)
    long_ago = datetime(2026, 3, 11, tzinfo=UTC)
    import_into(events_dir, "generic", write(tmp_path / "half.jsonl", ROWS[:1000]), clock=lambda: long_ago)
    other.start()
    try:
        totals = import_into(events_dir, "generic", path, now=datetime(2026, 12, 2, tzinfo=UTC))
    finally:
        stop.set()
        other.join()
    assert (totals.stored, totals.there) == (2000, 2000)
    events = read_events(events_dir, "support", *EVER)
    assert (len(events.interactions), len(events.feedback), events.bad_lines) == (2100, 2100, 0)
