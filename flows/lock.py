"""One process at a time works on the data of a business: a night, or an erasure."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import DataError


@contextmanager
def alone(state_dir: Path, business: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the business's lock. The kernel lets go of it when the process dies, however it dies.

    Args:
        on_wait: called before waiting for whoever holds it; without it nobody waits.

    Raises:
        DataError: it is held, and nobody waits.
    """
    path = state_dir / "run" / f"nightly-{business}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if on_wait is None:
                raise DataError(
                    f"business '{business}': a nightly run or an erasure is going on; wait for it to end"
                ) from error
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
