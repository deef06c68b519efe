"""Handlers that run without an asyncio task."""

import asyncio

import pytest

from pipeline.gateway.steps import Signal, run, start

pytestmark = pytest.mark.anyio


async def test_a_signal_resumes_its_handler_before_set_returns() -> None:
    signal, seen = Signal(), []

    async def handler() -> None:
        seen.append("begun")
        await signal
        seen.append("resumed")
        await signal
        seen.append("ended")

    run(handler(), lambda result, error: seen.append("told"))
    assert seen == ["begun"]
    signal.set()
    assert seen == ["begun", "resumed"]
    signal.set()
    assert seen == ["begun", "resumed", "ended", "told"]
    signal.set()  # nobody waits


async def test_futures_tasks_and_bare_yields_can_be_awaited_too() -> None:
    loop = asyncio.get_running_loop()
    future, ended = loop.create_future(), loop.create_future()

    async def inner() -> int:
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: 2)

    async def handler() -> None:
        async with asyncio.Lock():
            total = await future + await inner() + await asyncio.ensure_future(inner())
        ended.set_result(total)

    run(handler(), lambda result, error: None)
    loop.call_soon(future.set_result, 1)
    assert await asyncio.wait_for(ended, 5) == 5


async def test_a_failed_future_raises_in_the_handler() -> None:
    loop = asyncio.get_running_loop()
    future, ended = loop.create_future(), loop.create_future()

    async def handler() -> None:
        try:
            await future
        except OSError as error:
            ended.set_result(str(error))

    run(handler(), lambda result, error: None)
    future.set_exception(OSError("gone"))
    assert await asyncio.wait_for(ended, 5) == "gone"


async def test_a_task_can_wait_for_a_handler_s_result_or_error() -> None:
    signal = Signal()

    async def result() -> str:
        await signal
        return "done"

    async def failure() -> str:
        raise ValueError("planned")

    waiting = start(result())
    asyncio.get_running_loop().call_soon(signal.set)
    assert await asyncio.wait_for(waiting, 5) == "done"
    with pytest.raises(ValueError, match="planned"):
        await start(failure())
    given_up = start(result())
    given_up.cancel()
    signal.set()  # its end interests nobody, and hurts nobody
