"""Lets the store say which arm a new conversation has, while gateways may be drawing with different shares.

A step-up reaches gateways at different moments, and a gateway may be killed before it told of an assignment. Whoever
claims first is right. Claims that come together go to the store together, so that its transactions do not queue.
"""

import asyncio
import logging

from pipeline.gateway.arms import ArmStore, SessionArm, SessionArms

log = logging.getLogger(__name__)

PATIENCE_S = 0.25
"""A request waits no longer for the store, and goes on with its own draw."""

_Claim = tuple[SessionArm, asyncio.Future[None]]


class Claims:
    """Claims assignments for one gateway's memory."""

    def __init__(self, arms: SessionArms, store: ArmStore) -> None:
        self._arms = arms
        self._store = store
        self._waiting: list[_Claim] = []
        self._asking: asyncio.Task[None] | None = None
        self._is_late = False
        self._is_failing = False

    async def claim(self, drawn: SessionArm) -> None:
        """Put what stands for the conversation into memory: the store's word, or this draw when the store is silent,
        which is then written behind."""
        if self._is_late:
            self._arms.remember(drawn)
            return
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[None] = loop.create_future()
        self._waiting.append((drawn, decided))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        timer = loop.call_later(PATIENCE_S, self._give_up, drawn, decided)
        await decided
        timer.cancel()

    async def _ask(self) -> None:
        while self._waiting:
            claims, self._waiting = self._waiting, []
            try:
                standing = await asyncio.to_thread(self._store.claim, [drawn for drawn, _ in claims])
            except Exception as error:  # the hash gives the same arm in all but a step-up's first moments
                self._tell(type(error).__name__)
                for drawn, decided in claims:
                    self._go_on(drawn, decided)
            else:
                self._tell("")
                for arm, (_, decided) in zip(standing, claims, strict=True):
                    self._arms.learn(arm)
                    if not decided.done():
                        decided.set_result(None)
            self._is_late = False
        self._asking = None

    def _give_up(self, drawn: SessionArm, decided: asyncio.Future[None]) -> None:
        """The store has not answered; until it does, nobody else waits for it."""
        self._is_late = not decided.done()
        self._go_on(drawn, decided)

    def _go_on(self, drawn: SessionArm, decided: asyncio.Future[None]) -> None:
        if not decided.done():
            self._arms.remember(drawn)
            decided.set_result(None)

    def _tell(self, problem: str) -> None:
        """Log once that the store fails, and once that it works again."""
        if problem and not self._is_failing:
            log.warning("session arms: %s; new conversations go by the hash alone", problem)
        elif self._is_failing and not problem:
            log.info("session arms: can be claimed again")
        self._is_failing = bool(problem)
