"""A stack of a proof's own: the demo's configuration with another base model, free ports and a folder of its own.

A run that was stopped finds its stack's folder again and goes on in it; `rm -r build/proof/stacks` begins anew.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from examples.demo.stages import Demo
from flows import stack
from pipeline.config import child_environment, load_config, load_settings
from pipeline.gateway import auth
from pipeline.services import Services, connect
from tests.chaos.part import free_ports
from tests.proof.rows import ROOT


def configure(folder: Path, change: Callable[[Path], None]) -> Path:
    """The stack's configuration folder, made from the demo's unless it is there.

    Args:
        folder: the stack's own.
        change: what is changed in a copy of the demo's configuration folder.
    """
    configs = folder / "configs"
    if configs.is_dir():
        return configs
    half = folder / "half"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(ROOT / "examples" / "demo" / "configs", half)
    edit(half / "tuneloop.yaml", lambda system: _move(system, folder))
    change(half)
    half.rename(configs)
    return configs


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the values of one YAML file in place."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(yaml.safe_dump(values, allow_unicode=True, sort_keys=False), encoding="utf-8")


@contextmanager
def running(configs: Path, tell: Callable[[str], None]) -> Iterator[tuple[Demo, Services]]:
    """The stack, up while it is needed, and night 1 of its users."""
    config = load_config(configs)
    stack.make_secrets(config.state_dir)
    settings = load_settings(config.state_dir)
    try:
        stack.up(config, settings, tell)
        services = connect(config, settings)
        kept = config.state_dir / "proof-key"
        if not kept.exists():
            name = f"proof-{datetime.now(UTC):%Y%m%d%H%M%S}"
            key = auth.create_key(services.control, name, tuple(config.businesses), datetime.now(UTC))
            kept.touch(mode=0o600)
            kept.write_text(key)
            time.sleep(2.5)  # gateways look for new keys every two seconds
        yield Demo(config, settings, kept.read_text(), 1), services
    finally:
        stack.down(config.state_dir, tell)


def tuneloop(demo: Demo, *arguments: str, given: str = "") -> str:
    """What the command line says to these arguments.

    Raises:
        RuntimeError: it failed; with its last words.
    """
    command = [sys.executable, "-m", "flows.cli", *arguments, "--configs", str(demo.config.directory)]
    environment = {**child_environment(demo.config, demo.settings), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=ROOT, env=environment, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"tuneloop {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return " ".join(done.stdout.split())


def _move(system: dict[str, Any], folder: Path) -> None:
    base, adapters, gateway, admin, controller, mlflow, prefect = free_ports(7)
    system["state_dir"] = str(folder / "state")
    system["gateway"] = {"port": gateway, "admin_port": admin}
    system["controller"] = {"port": controller}  # with the usual pauses: looking takes time that a night needs
    for server, port in (("mlflow", mlflow), ("prefect", prefect)):
        system[server] = {"url": f"http://127.0.0.1:{port}"}
    for engine, port in zip(system["engines"], (base, adapters), strict=True):
        engine["url"] = f"http://127.0.0.1:{port}"
