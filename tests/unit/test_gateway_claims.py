"""A conversation that is new while gateways draw with different shares: the store says which arm it has."""

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import httpx
import pytest

from pipeline.control import open_control
from pipeline.gateway.arms import DatabaseArmStore, SessionArm, SessionArms
from pipeline.gateway.claims import Claims
from pipeline.gateway.routing import Assignment
from pipeline.records import Arm
from tests.gateway_stub import ADMIN, RunningGateway, answer_fine, canary, running_gateway, stub_engine

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC).replace(microsecond=0)


def drawn(session: str, arm: Arm = Arm.STABLE) -> SessionArm:
    return SessionArm("support", session, Assignment("r1", arm, 0.1), True, NOW)


class SlowStore(DatabaseArmStore):
    """Answers when it is let; knows how often it was asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_control(f"sqlite:///{folder / 'control.db'}"))
        self.may_answer = Event()
        self.asked: list[int] = []

    def claim(self, rows: list[SessionArm]) -> list[SessionArm]:
        self.asked.append(len(rows))
        self.may_answer.wait()
        return super().claim(rows)


async def test_claims_that_come_together_go_to_the_store_together(tmp_path: Path) -> None:
    store, arms = SlowStore(tmp_path), SessionArms()
    store.may_answer.set()
    store.claim([drawn("s0", Arm.CANDIDATE)])
    claims = Claims(arms, store)
    await asyncio.gather(*(claims.claim(drawn(f"s{number}")) for number in range(50)))
    assert store.asked[1:] == [50]
    known = [arms.find("support", f"s{number}", NOW) for number in range(50)]
    assert [one and one.arm for one in known] == [Arm.CANDIDATE] + [Arm.STABLE] * 49
    assert arms.take_unwritten() == []


async def test_a_store_that_hangs_holds_up_nobody_for_long_and_is_believed_later(tmp_path: Path) -> None:
    store, arms = SlowStore(tmp_path), SessionArms()
    DatabaseArmStore.claim(store, [drawn("s1", Arm.CONTROL)])
    claims = Claims(arms, store)
    for session in ("s1", "s2"):
        await claims.claim(drawn(session))
        assert arms.find("support", session, NOW) == Assignment("r1", Arm.STABLE, 0.1)
    assert store.asked == [1], "the second one did not wait"
    assert arms.take_unwritten() == [drawn("s1"), drawn("s2")]
    store.may_answer.set()
    async with asyncio.timeout(10):
        while arms.find("support", "s1", NOW) != Assignment("r1", Arm.CONTROL, 0.1):
            await asyncio.sleep(0.01)
    await claims.claim(drawn("s3"))
    assert store.asked == [1, 1]


async def test_a_store_that_fails_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = open_control(f"sqlite:///{tmp_path / 'control.db'}")
    with database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE session_arms RENAME TO elsewhere")
    arms = SessionArms()
    claims = Claims(arms, DatabaseArmStore(database))
    with caplog.at_level(logging.INFO, "pipeline.gateway.claims"):
        for session in ("s1", "s2"):
            await claims.claim(drawn(session))
        with database.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO session_arms")
        await claims.claim(drawn("s3"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert arms.take_unwritten() == [drawn("s1"), drawn("s2")]
    database.dispose()


async def arm_of(client: httpx.AsyncClient, gateway: RunningGateway, session: str) -> str:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    headers = gateway.auth | {"x-session-id": session}
    return (await client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers)).headers["x-arm"]


async def test_a_conversation_that_goes_to_another_gateway_beside_a_step_up_keeps_its_arm(tmp_path: Path) -> None:
    """At once, when the gateways have not told each other of anything."""
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path, engine.url, worker="one") as one,
        running_gateway(tmp_path, engine.url, worker="other") as other,
        httpx.AsyncClient() as client,
    ):
        for gateway, share in ((one, 0.1), (other, 0.9)):
            routes = canary(engine.url, share=share).model_dump(mode="json")
            await client.put(f"{gateway.admin_url}/admin/routes", json=routes, headers=ADMIN)
        names = [f"s{number}" for number in range(20)]
        turns = [(await arm_of(client, one, name), await arm_of(client, other, name)) for name in names]
        fresh = [await arm_of(client, other, f"fresh-{number}") for number in range(20)]
    assert [one for one, _ in turns] == [other for _, other in turns]
    assert fresh.count("candidate") > sum(arm == "candidate" for arm, _ in turns)


async def test_a_conversation_that_began_before_the_rollout_stays_out_of_it_on_every_gateway(tmp_path: Path) -> None:
    async with (
        stub_engine(answer_fine) as engine,
        running_gateway(tmp_path, engine.url, worker="one", settle_s=1.5) as one,
        running_gateway(tmp_path, engine.url, worker="other", settle_s=1.5) as other,
        httpx.AsyncClient() as client,
    ):
        names = [f"s{number}" for number in range(20)]
        before = [await arm_of(client, one, name) for name in names]
        routes = canary(engine.url, share=1.0).model_dump(mode="json")
        for gateway in (one, other):
            await client.put(f"{gateway.admin_url}/admin/routes", json=routes, headers=ADMIN)
        after = [await arm_of(client, other, name) for name in names]
        async with asyncio.timeout(20):
            tries = 0
            while await arm_of(client, other, f"new-{tries}") != "candidate":
                tries += 1
                await asyncio.sleep(0.1)
        at_last = [await arm_of(client, gateway, name) for gateway in (one, other) for name in names]
    assert {*before, *after, *at_last} == {"stable"}
