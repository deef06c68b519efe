"""Users while a rollout is measured: so many new conversations a second, at every address in turn."""

import asyncio
import itertools
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import httpx

_LIMIT_S = 20.0


class Traffic:
    """Open-loop load in a thread of its own, while it is entered. What was served stands in the servers' logs.

    Args:
        urls: of completions, asked in turn.
        rate: requests a second, each of a user and a session of its own.
    """

    def __init__(
        self, urls: Sequence[str], headers: Mapping[str, str], body: Mapping[str, object], rate: float
    ) -> None:
        self._urls = itertools.cycle(urls)
        self._headers = dict(headers)
        self._body = dict(body)
        self._rate = rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.answered = 0
        self.failed = 0

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with httpx.AsyncClient(timeout=_LIMIT_S) as client, asyncio.TaskGroup() as asking:
            for number in itertools.count():
                if self._stopped.is_set():
                    return
                await asyncio.sleep(max(0.0, began + number / self._rate - loop.time()))
                asking.create_task(self._ask(client, next(self._urls), f"bench-{began:.3f}-{number}"))

    async def _ask(self, client: httpx.AsyncClient, url: str, who: str) -> None:
        headers = self._headers | {"x-session-id": who, "x-user-id": who}
        with suppress(httpx.HTTPError):
            answer = await client.post(url, json=self._body, headers=headers)
            self.answered += answer.is_success
            self.failed += not answer.is_success
            return
        self.failed += 1
