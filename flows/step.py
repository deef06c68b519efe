"""A library function as a Prefect task."""

import logging
import time
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from pipeline.errors import Transient

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger("flows.nightly")


class Step(Protocol):
    """Makes a function a step of a flow; the function itself stays as it is."""

    def __call__(self, function: Callable[P, R], name: str | None = None) -> Callable[P, R]: ...


def step(function: Callable[P, R], name: str | None = None) -> Callable[P, R]:
    """The function as a task that is repeated only when it raised something `Transient`.

    Prefect does not see the arguments: it would walk through every record of a night, and its database and page are
    no place for what users wrote. It does not cache either: steps are idempotent by their content ids already.
    """
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    title = name or function.__name__

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        def call() -> R:
            return function(*args, **kwargs)

        started = time.monotonic()
        result: R = task(
            name=title,
            cache_policy=NO_CACHE,
            retries=3,
            retry_delay_seconds=[1, 5, 20],
            retry_condition_fn=_is_transient,
        )(call)()
        logger.info("%s: done in %.1f s", title, time.monotonic() - started)
        return result

    return run


def _is_transient(_task: Any, _run: Any, state: Any) -> bool:
    return isinstance(state.result(raise_on_failure=False), Transient)
