"""Calls that may hang, made so that the controller need not wait for their end."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")
_BLINK_S = 0.05


class Errand(Generic[_T]):
    """A call in a thread of its own. It ends by itself, at the latest by the call's own time-out; nothing stops it."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self._call = call
        self._results: list[_T] = []
        self._error: BaseException | None = None
        # A daemon, so that a process that is asked to end does not wait for an engine that hangs.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:  # raised again in `result`, where somebody waits for it
            self._error = error

    def is_done(self, patience_s: float, interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Whether it has ended, waiting for `patience_s` seconds at most, and less when something urgent comes."""
        deadline = time.monotonic() + patience_s
        while True:
            self._thread.join(max(0.0, min(_BLINK_S, deadline - time.monotonic())))
            if not self._thread.is_alive():
                return True
            if time.monotonic() >= deadline or interrupted():
                return False

    def result(self) -> _T:
        """What the call returned, or its error. Ask when it is done."""
        if self._error is not None:
            raise self._error
        return self._results[0]
