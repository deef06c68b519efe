"""Starting and stopping processes: what was started is stopped, strangers are left alone."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from flows import stack
from pipeline.config import Config, Settings, load_config, load_settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    shipped = load_config(ROOT / "configs")
    return shipped.model_copy(update={"system": shipped.system.model_copy(update={"state_dir": tmp_path})})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    stack.make_secrets(tmp_path)
    return load_settings(tmp_path)


def sleeper(name: str, *ports: int) -> stack.Process:
    return stack.Process(name, (sys.executable, "-c", "import time; time.sleep(60)"), "http://127.0.0.1:9/", ports)


def test_down_stops_what_was_started_and_nothing_else(config: Config, settings: Settings, tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stack._start(sleeper("ours"), config, settings)
        ours = stack.find(tmp_path, "ours")
        assert ours is not None
        # The pid of a record may have been given to someone else since: same pid, other start time.
        (tmp_path / "run" / "old.json").write_text(json.dumps({"pid": stranger.pid, "created": 1.0}))
        stopped: list[str] = []
        stack.down(tmp_path, stopped.append)
        assert stopped == ["ours stopped"]
        assert not psutil.pid_exists(ours.pid) or ours.status() == psutil.STATUS_ZOMBIE
        assert stranger.poll() is None
        assert list((tmp_path / "run").glob("*.json")) == []
    finally:
        stranger.kill()
        stranger.wait()


def test_a_taken_port_is_named_with_the_file_to_change(config: Config, settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(stack.StackError, match=rf"port {port} is taken .*tuneloop.yaml"):
            stack._start(sleeper("ours", port), config, settings)


def test_secrets_are_owner_only_and_made_once(tmp_path: Path) -> None:
    stack.make_secrets(tmp_path)
    path = tmp_path / "secrets.env"
    first = path.read_text()
    stack.make_secrets(tmp_path)
    assert path.read_text() == first
    assert path.stat().st_mode & 0o777 == 0o600
    values = [line.split("=", 1)[1] for line in first.splitlines()]
    assert len(set(values)) == len(values) >= 4


def test_a_missing_base_model_says_how_to_get_it(config: Config, settings: Settings, tmp_path: Path) -> None:
    base = config.system.base_model.model_copy(update={"path": tmp_path / "nothing"})
    bare = config.model_copy(update={"system": config.system.model_copy(update={"base_model": base})})
    with pytest.raises(stack.ConfigError, match="make setup"):
        stack.up(bare, settings, print)
