"""What each business may take of the gateway, and whose turn it is when the engines are full. Pure but for the futures.

A request is admitted at once, waits in its business's own queue, or is refused with the time after which it may come
again. Waiting costs only its own business: one that is at its limit is passed over, and the others share what is free
by the weight of their priority (start-time fair queueing: Goyal, Vin and Cheng, 1996).
"""

import asyncio
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.config import LimitsConfig, Priority
from pipeline.gateway.errors import Refused

WEIGHTS: Mapping[Priority, int] = {"high": 16, "normal": 4, "low": 1}
"""Turns that a business gets of those that are contended."""
_MINUTE_S = 60.0
_ROUNDING = 1e-9


class Bucket:
    """A token bucket that holds a minute's worth. What is known only afterwards, an answer's tokens, may take it below
    zero; then nothing passes until it is filled again. Times in seconds, of any one monotonic clock."""

    __slots__ = ("_at", "_level", "_most", "_per_s")

    def __init__(self, per_minute: float, now: float) -> None:
        self._per_s = per_minute / _MINUTE_S
        self._most = self._level = max(per_minute, 1.0)
        self._at = now

    def wait_s(self, now: float) -> float:
        """Seconds until one may be taken; 0 when it may be now."""
        self._fill(now)
        lacking = 1.0 - self._level
        return lacking / self._per_s if lacking > _ROUNDING else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take, whether or not it is there."""
        self._fill(now)
        self._level -= amount

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._most, self._level + (now - self._at) * self._per_s)
            self._at = now


@dataclass(frozen=True, slots=True)
class Usage:
    """What counts against the rates of a business."""

    requests: int = 0
    tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.requests + other.requests, self.tokens + other.tokens)

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(self.requests - other.requests, self.tokens - other.tokens)


class UsageStore(Protocol):
    """Where gateways of several hosts add up what each business used."""

    def add(self, used: Mapping[str, Usage]) -> dict[str, Usage]:
        """Add ours and return the totals of all businesses that ever used anything (blocks)."""


@dataclass(slots=True)
class _Business:
    most_running: float
    most_waiting: int
    stride: float
    requests: Bucket | None
    tokens: Bucket | None
    used_requests: int = 0
    used_tokens: int = 0
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    turn: float = 0.0
    """Virtual time of its next turn; a stride later with each request that starts."""


class Admission:
    """Admits requests of all businesses to the engines.

    Args:
        most: requests that may run at once, of all businesses together.
        share: of what may run and wait that is this process's own, in (0, 1]: several workers divide it.
        rate_share: the same of the rates; 1 where gateways tell each other what was used (`take_used`, `charge`).
        now: seconds of the monotonic clock that `enter` and `leave` are given too.
    """

    def __init__(
        self, businesses: Mapping[str, LimitsConfig], most: int, now: float, *, share: float, rate_share: float
    ) -> None:
        self._most = math.ceil(most * share)
        self._running = 0
        self._now = 0.0
        """Virtual time: the turn of the request that started last."""
        self._businesses = {key: _business(limits, share, rate_share, now) for key, limits in businesses.items()}
        self._queues: set[str] = set()
        """Businesses with requests that wait."""

    def enter(self, business: str, now: float) -> asyncio.Future[None] | None:
        """Admit a request: None when it may start now, else the future that ends with its turn.

        Who enters must `leave`, or `give_up` a turn that was not waited for.

        Raises:
            Refused: 429, the business has reached a limit.
        """
        one = self._businesses[business]
        if one.requests is not None:
            _check(business, one.requests, "requests", now)
        if one.tokens is not None:
            _check(business, one.tokens, "tokens", now)
        if one.turn < self._now:
            one.turn = self._now
        waiter = None
        if self._running < self._most and one.running < one.most_running:
            self._start(one)
        elif len(one.waiting) < one.most_waiting:
            waiter = asyncio.get_running_loop().create_future()
            one.waiting.append(waiter)
            self._queues.add(business)
        else:
            message = f"{one.running} requests run and its queue is full"
            raise too_many(business, "concurrent", message, 1.0)
        if one.requests is not None:
            one.requests.take(1, now)
            one.used_requests += 1
        return waiter

    def spend(self, business: str, now: float) -> None:
        """Count a request that needs no engine, such as feedback.

        Raises:
            Refused: 429, the business has reached its rate.
        """
        one = self._businesses.get(business)
        if one is not None and one.requests is not None:
            _check(business, one.requests, "requests", now)
            one.requests.take(1, now)
            one.used_requests += 1

    def leave(self, business: str, tokens: int, now: float) -> None:
        """A request has ended.

        Args:
            tokens: of prompt and answer, as the engine counted them.
        """
        one = self._businesses[business]
        if one.running >= one.most_running:  # it stood aside; that is no credit
            one.turn = max(one.turn, self._now)
        one.running -= 1
        self._running -= 1
        if one.tokens is not None and tokens:
            one.tokens.take(tokens, now)
            one.used_tokens += tokens
        if self._queues:
            self._start_waiting()

    def give_up(self, business: str, waiter: asyncio.Future[None], now: float) -> None:
        """A request that waited goes without its turn, or with one that came too late."""
        if waiter.done() and not waiter.cancelled():
            self.leave(business, 0, now)
            return
        one = self._businesses[business]
        if waiter in one.waiting:
            one.waiting.remove(waiter)
        if not one.waiting:
            self._queues.discard(business)

    @property
    def someone_waits(self) -> bool:
        """Requests of any business wait for their turn, or the next one would have to."""
        return bool(self._queues) or self._running >= self._most

    def has_room(self, business: str, now: float) -> bool:
        """Whether a business is below all of its limits."""
        one = self._businesses[business]
        rates = [bucket.wait_s(now) for bucket in (one.requests, one.tokens) if bucket is not None]
        return one.running < one.most_running and not any(rates)

    def take_used(self) -> dict[str, Usage]:
        """What was used here since the last call, of businesses that have a rate."""
        used = {}
        for key, one in self._businesses.items():
            if one.used_requests or one.used_tokens:
                used[key] = Usage(one.used_requests, one.used_tokens)
                one.used_requests = one.used_tokens = 0
        return used

    def charge(self, business: str, used: Usage, now: float) -> None:
        """Count what was used elsewhere."""
        one = self._businesses.get(business)
        if one is not None and one.requests is not None:
            one.requests.take(used.requests, now)
        if one is not None and one.tokens is not None:
            one.tokens.take(used.tokens, now)

    def waiting(self) -> dict[str, int]:
        """Requests that wait, by business."""
        return {key: len(one.waiting) for key, one in self._businesses.items()}

    def _start(self, one: _Business) -> None:
        self._now = one.turn
        one.turn += one.stride
        one.running += 1
        self._running += 1

    def _start_waiting(self) -> None:
        while self._running < self._most:
            ready = [
                (one.turn, key) for key in self._queues if (one := self._businesses[key]).running < one.most_running
            ]
            if not ready:
                return
            _, key = min(ready)
            one = self._businesses[key]
            waiter = one.waiting.popleft()
            if not one.waiting:
                self._queues.discard(key)
            if not waiter.done():  # else its client has left a moment ago
                self._start(one)
                waiter.set_result(None)


def too_many(business: str, code: str, message: str, wait_s: float) -> Refused:
    """A 429 that says when to come again."""
    seconds = max(1, math.ceil(wait_s))
    refused = Refused(429, code, f"'{business}': {message}; try again in {seconds} s", business=business)
    refused.headers = b"retry-after: %d\r\n" % seconds
    return refused


def _check(business: str, bucket: Bucket, what: str, now: float) -> None:
    if (wait_s := bucket.wait_s(now)) > 0.0:
        raise too_many(business, f"{what}_per_minute", f"its {what} per minute are used up", wait_s)


def _business(limits: LimitsConfig, share: float, rate_share: float, now: float) -> _Business:
    def bucket(per_minute: float | None) -> Bucket | None:
        return None if per_minute is None else Bucket(per_minute * rate_share, now)

    return _Business(
        most_running=math.inf if limits.concurrent is None else math.ceil(limits.concurrent * share),
        most_waiting=math.ceil(limits.waiting * share),
        stride=1.0 / WEIGHTS[limits.priority],
        requests=bucket(limits.requests_per_minute),
        tokens=bucket(limits.tokens_per_minute),
    )
