"""One night of one business up to its snapshot, in a process of its own: `python -m tests.benchmarks.clean.night`.

It prints how long each step took, as one line of JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from flows.build import build_snapshot
from pipeline.config import BaseModelConfig, BusinessConfig, Config, EngineConfig, Settings, SystemConfig
from pipeline.control import open_control
from tests.benchmarks.clean.interactions import DUE

P = ParamSpec("P")
R = TypeVar("R")


class Timer:
    """Runs each step as it is, and remembers how long it took, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, function: Callable[P, R], name: str | None = None) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            began = time.monotonic()
            result = function(*args, **kwargs)
            self.seconds[name or function.__name__] = round(time.monotonic() - began, 3)
            return result

        return run


def main() -> None:
    """Arguments: the state folder, the business, its language."""
    state, business, language = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    about = BusinessConfig(
        business=business,
        title=business,
        language=language,
        report_language=language,
        timezone="UTC",
        nightly="0 3 * * *",
    )
    system = SystemConfig(
        state_dir=state,
        base_model=BaseModelConfig(path=state, id="base", revision="r1"),
        engines=(EngineConfig(name="engine", url="http://127.0.0.1:1"),),
    )
    config = Config(directory=state, system=system, businesses={business: about})
    secrets = dict.fromkeys(("user_salt", "admin_key", "webhook_secret", "report_secret"), "bench")
    control = open_control(f"sqlite:///{state / 'control.db'}")
    timer = Timer()
    manifest, _ = build_snapshot(config, Settings(**secrets), about, control, DUE, timer)
    print(json.dumps({"seconds": timer.seconds, "manifest": manifest.model_dump(mode="json")}))


if __name__ == "__main__":
    main()
