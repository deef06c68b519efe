"""Rate limits, concurrency and turns: decided without a clock of their own."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import LimitsConfig, Priority
from pipeline.gateway.errors import Refused
from pipeline.gateway.limits import WEIGHTS, Admission, Bucket, Usage


def admit(businesses: dict[str, LimitsConfig], most: int, share: float = 1.0) -> Admission:
    return Admission(businesses, most, 0.0, share=share, rate_share=share)


@given(
    st.floats(0.1, 1e4),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 50)), max_size=40),
)
def test_a_bucket_never_gives_more_than_its_rate_and_one_minute(
    per_minute: float, steps: list[tuple[float, float]]
) -> None:
    bucket, now, given_out = Bucket(per_minute, 0.0), 0.0, 0.0
    for pause, amount in steps:
        now += pause
        if bucket.wait_s(now) == 0.0:
            bucket.take(amount, now)
            given_out += amount
    # The last one taken may go into debt, by at most itself.
    assert given_out <= max(per_minute, 1.0) + now * per_minute / 60 + 50 + 1e-6


@given(st.floats(0.1, 1e4), st.floats(0, 1e4))
def test_after_the_time_it_names_a_bucket_gives(per_minute: float, debt: float) -> None:
    bucket = Bucket(per_minute, 0.0)
    bucket.take(debt, 0.0)
    wait_s = bucket.wait_s(0.0)
    assert wait_s == 0.0 or bucket.wait_s(wait_s * 0.9) > 0.0
    assert bucket.wait_s(wait_s * (1 + 1e-9) + 1e-6) == 0.0


def test_requests_above_the_rate_are_told_when_to_come_again() -> None:
    admission = admit({"support": LimitsConfig(requests_per_minute=2)}, 10)
    for _ in range(2):
        assert admission.enter("support", 0.0) is None
        admission.leave("support", 0, 0.0)
    with pytest.raises(Refused, match="requests per minute") as refused:
        admission.enter("support", 0.0)
    assert refused.value.status == 429
    assert refused.value.headers == b"retry-after: 30\r\n"
    assert admission.enter("support", 30.0) is None


def test_an_answer_is_charged_after_it_came() -> None:
    admission = admit({"support": LimitsConfig(tokens_per_minute=60)}, 10)
    assert admission.enter("support", 0.0) is None
    admission.leave("support", 90, 0.0)
    with pytest.raises(Refused, match="tokens per minute") as refused:
        admission.enter("support", 0.0)
    assert refused.value.headers == b"retry-after: 31\r\n"


def test_a_worker_enforces_its_share_of_the_limits() -> None:
    limits = LimitsConfig(requests_per_minute=4, concurrent=3, waiting=0)
    admission = admit({"support": limits}, 100, share=0.5)
    assert admission.enter("support", 0.0) is None
    assert admission.enter("support", 0.0) is None
    with pytest.raises(Refused, match="requests per minute"):
        admission.enter("support", 0.0)


def test_above_its_concurrency_a_business_waits_and_others_do_not() -> None:
    async def scenario() -> None:
        businesses = {"busy": LimitsConfig(concurrent=1, waiting=1), "calm": LimitsConfig()}
        admission = admit(businesses, 2)
        assert admission.enter("busy", 0.0) is None
        waiter = admission.enter("busy", 0.0)
        assert waiter is not None
        with pytest.raises(Refused, match="queue is full"):
            admission.enter("busy", 0.0)
        assert admission.enter("calm", 0.0) is None
        admission.leave("calm", 0, 0.0)
        assert not waiter.done()
        admission.leave("busy", 0, 0.0)
        assert waiter.done()

    asyncio.run(scenario())


@given(st.permutations(["high", "normal", "low"]), st.integers(1, 4))
def test_full_engines_are_shared_by_weight(order: list[Priority], most: int) -> None:
    async def scenario() -> None:
        admission = admit({key: LimitsConfig(priority=key, waiting=500) for key in WEIGHTS}, most)
        running: list[Priority] = []
        queues: dict[Priority, list[asyncio.Future[None]]] = {key: [] for key in order}
        for _ in range(200):
            for key in order:
                waiter = admission.enter(key, 0.0)
                if waiter is None:
                    running.append(key)
                else:
                    queues[key].append(waiter)
        started = dict.fromkeys(order, 0)
        for _ in range(sum(WEIGHTS.values()) * 8):
            admission.leave(running.pop(0), 0, 0.0)
            key = next(key for key in order if queues[key] and queues[key][0].done())
            queues[key].pop(0)
            running.append(key)
            started[key] += 1
        for key in order:
            assert abs(started[key] - 8 * WEIGHTS[key]) <= most + 2

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "give_up"]), st.sampled_from("ab")), max_size=80))
def test_nothing_is_lost_or_stuck_whatever_happens(steps: list[tuple[str, str]]) -> None:
    """No more run than may; nobody waits while there is room for him; all can end."""

    async def scenario() -> None:
        limits = {"a": LimitsConfig(concurrent=2, waiting=3), "b": LimitsConfig(waiting=3)}
        admission = admit(limits, 3)
        running = {"a": 0, "b": 0}
        queues: dict[str, list[asyncio.Future[None]]] = {"a": [], "b": []}

        def collect() -> None:
            for key, queue in queues.items():
                running[key] += sum(waiter.done() for waiter in queue)
                queue[:] = [waiter for waiter in queue if not waiter.done()]

        for step, key in steps:
            if step == "enter":
                try:
                    waiter = admission.enter(key, 0.0)
                except Refused:
                    assert len(queues[key]) == 3
                    continue
                if waiter is None:
                    running[key] += 1
                else:
                    queues[key].append(waiter)
            elif step == "leave" and running[key]:
                running[key] -= 1
                admission.leave(key, 0, 0.0)
            elif step == "give_up" and queues[key]:
                waiter = queues[key].pop()
                waiter.cancel()  # as a leaving client does; what happens in between must not matter
                if running["b"]:
                    running["b"] -= 1
                    admission.leave("b", 0, 0.0)
                admission.give_up(key, waiter, 0.0)
            collect()
            assert sum(running.values()) <= 3
            assert running["a"] <= 2
            assert admission.waiting() == {key: len(queue) for key, queue in queues.items()}
            for key, most in (("a", 2), ("b", math.inf)):
                assert not (queues[key] and running[key] < most and sum(running.values()) < 3)
        for key in ("a", "b", "a", "b", "a", "b"):
            while running[key]:
                running[key] -= 1
                admission.leave(key, 0, 0.0)
                collect()
        assert admission.waiting() == {"a": 0, "b": 0}

    asyncio.run(scenario())


def test_what_other_gateways_used_counts_here() -> None:
    admission = admit({"support": LimitsConfig(requests_per_minute=2, tokens_per_minute=60), "free": LimitsConfig()}, 9)
    assert admission.enter("support", 0.0) is None
    admission.leave("support", 7, 0.0)
    assert admission.enter("free", 0.0) is None
    assert admission.take_used() == {"support": Usage(1, 7)}
    assert admission.take_used() == {}
    admission.charge("support", Usage(1, 0), 0.0)
    admission.charge("unknown", Usage(1, 0), 0.0)
    with pytest.raises(Refused, match="requests per minute"):
        admission.enter("support", 0.0)
