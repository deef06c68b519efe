"""One process at a time works on the data of a business: a night, or an erasure. The kernel lets go of a lock when its
process dies, however it dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pipeline.errors import DataError


@contextmanager
def alone(state_dir: Path, business: str) -> Iterator[None]:
    """Hold a business for a night; one that meets an erasure waits for it.

    Raises:
        DataError: another night is going on.
    """
    with _file(state_dir, f"nightly-{business}") as lock:
        if not _take(lock):
            with _file(state_dir, f"erasure-{business}") as erasure:
                if _take(erasure):
                    raise DataError(f"business '{business}': a nightly run is going on; wait for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def at_gate(state_dir: Path, business: str) -> Iterator[None]:
    """While the business's candidate is asked on the engines: `gate_is_on` says so, until the process ends."""
    with _file(state_dir, f"gate-{business}") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def gate_is_on(state_dir: Path, business: str) -> bool:
    """Whether some night has the business's candidate at its gate: then the engines must keep it, whatever its verdict
    of an earlier night is."""
    with _file(state_dir, f"gate-{business}") as lock:
        return not _take(lock)


@contextmanager
def alone_to_erase(state_dir: Path, business: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a business for an erasure, which waits for nights and other erasures.

    Args:
        on_wait: called before waiting.
    """
    with _file(state_dir, f"erasure-{business}") as erasure, _file(state_dir, f"nightly-{business}") as lock:
        for each in (erasure, lock):
            if not _take(each):
                on_wait()
                fcntl.flock(each, fcntl.LOCK_EX)
        yield


def _file(state_dir: Path, name: str) -> TextIO:
    path = state_dir / "run" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w")


def _take(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
