"""A night that is killed while each of its steps runs, and started again each time, beside one that nobody killed."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from examples.demo.stages import Demo, load, save, when_due
from pipeline.config import child_environment, load_config
from pipeline.records import Night
from pipeline.registry.mlflow import MlflowRegistry
from tests.proof.real.place import edit
from tests.proof.rows import ROOT

_MOMENT = re.compile(r"  (.+(?=: done in)|train: step 50|gate: [^,]+(?=, ))")
"""What a night says when a step is done, in the middle of the training, and of each part of the gate."""


@dataclass(frozen=True)
class End:
    """What a night left behind, wherever it stands."""

    night: Night
    adapter: str
    """Digest of the adapter that it registered."""
    versions: int
    """Registered in all."""


def killed_night(demo: Demo, business: str, tell: Callable[[str], None]) -> tuple[End, list[str]]:
    """Kill the night after each of its steps; what it came to in the end, and the steps that were running then."""
    due = when_due(demo, business)
    kept = load(demo, f"killed-{business}")
    done: list[str] = [str(step) for step in kept] if isinstance(kept, list) else []
    while (step := _run(demo.config.directory, demo, business, due, frozenset(done))) is not None:
        done.append(step)
        save(demo, f"killed-{business}", done)
        tell(f"{business}: killed after “{step}”, {len(done)} times")
    return _end(demo, demo.config.directory, business, due), done


def whole_night(demo: Demo, mlflow_url: str, business: str, tell: Callable[[str], None]) -> End:
    """The same night on a copy of the events, with a registry of its own, that nobody kills."""
    configs, state = demo.config.directory.with_name("whole"), demo.config.state_dir.with_name("whole-state")
    if not configs.is_dir():
        shutil.copytree(demo.config.directory, configs)
        state.mkdir()
        shutil.copytree(demo.config.state_dir / "events", state / "events")
        with (
            closing(sqlite3.connect(demo.config.state_dir / "control.db")) as source,
            closing(sqlite3.connect(state / "control.db")) as copy,
        ):
            source.backup(copy)  # others have it open

    def move(system: dict[str, object]) -> None:
        system["state_dir"] = str(state)
        system["mlflow"] = {"url": mlflow_url}

    edit(configs / "tuneloop.yaml", move)
    due = when_due(demo, business)
    tell(f"{business}: the same night, not killed")
    _run(configs, demo, business, due, None)
    return _end(demo, configs, business, due)


def _run(configs: Path, demo: Demo, business: str, due: str, survived: frozenset[str] | None) -> str | None:
    """Run a night; kill it after the first step that it is not to survive. None when it reached its end.

    Args:
        survived: steps after which it goes on; None kills it nowhere.
    """
    command = [sys.executable, "-m", "flows.nightly", "--business", business, "--night", due]
    process = subprocess.Popen(
        [*command, "--configs", str(configs)],
        cwd=ROOT,
        env=child_environment(load_config(configs), demo.settings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    last = ""
    for line in process.stderr:
        last = line.strip() or last
        done = _MOMENT.search(line)
        if done and survived is not None and done.group(1) not in survived:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return done.group(1)
    if process.wait() != 0:
        raise RuntimeError(f"the night of '{business}' failed: {last}")
    return None


def _end(demo: Demo, configs: Path, business: str, due: str) -> End:
    config = load_config(configs)
    name = f"{datetime.fromisoformat(due):%Y%m%dT%H%M%S}.json"
    night = Night.model_validate_json((config.state_dir / "nights" / business / name).read_text(encoding="utf-8"))
    registry = MlflowRegistry(config.system.mlflow.url)
    versions = registry.versions(business)
    assert night.version is not None, night.reason
    return End(night, registry.get(business, night.version).adapter.sha256, len(versions))
