"""One contract for a judge behind an endpoint and for the scripted one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import httpx
import pytest

from evals.endpoint import Endpoint, PromptRefused
from evals.judge import EndpointJudge, Judge, Matchup, ScriptedJudge
from pipeline.errors import EngineUnavailable
from pipeline.records import Message
from pipeline.serving.scripted import ScriptedEngine
from tests.judging import prefers, verdict

MATCHUP = Matchup(({"role": "user", "content": "Where is my parcel?"},), "On the delivery page.", "No idea.")


class World(Protocol):
    """A judge, and what happens to it."""

    judge: Judge

    def say(self, reply: Callable[[Sequence[Message]], str]) -> None: ...

    def refuse(self) -> None: ...

    def go_away(self) -> None: ...


class Scripted:
    """The fake."""

    def __init__(self) -> None:
        self.judge = ScriptedJudge(prefers(lambda one, other: len(one) > len(other)))

    def say(self, reply: Callable[[Sequence[Message]], str]) -> None:
        self.judge.reply = reply

    def refuse(self) -> None:
        self.say(_raise(PromptRefused("too long")))

    def go_away(self) -> None:
        self.say(_raise(EngineUnavailable("away")))


@dataclass
class Served:
    """The real one, before an engine over HTTP."""

    judge: EndpointJudge
    engine: ScriptedEngine

    def say(self, reply: Callable[[Sequence[Message]], str]) -> None:
        self.engine.answer = lambda model, messages: reply(messages)

    def refuse(self) -> None:
        self.engine.faults.status = 400

    def go_away(self) -> None:
        self.engine.stop()


def _raise(error: Exception) -> Callable[[Sequence[Message]], str]:
    def reply(prompt: Sequence[Message]) -> str:
        raise error

    return reply


@pytest.fixture(params=["scripted", "endpoint"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "scripted":
        yield Scripted()
        return
    with ScriptedEngine(model_id="judge", api_key="secret") as engine, httpx.Client() as client:
        place = Endpoint(url=engine.url, model="judge", api_key="secret")
        served = Served(EndpointJudge(place, client, seed=0, pauses_s=(0.0, 0.01)), engine)
        served.say(prefers(lambda one, other: len(one) > len(other)))
        yield served


def test_the_better_answer_is_named_in_either_order(world: World) -> None:
    assert world.judge.compare(MATCHUP).better == "A"
    assert world.judge.compare(Matchup(MATCHUP.messages, MATCHUP.second, MATCHUP.first)).better == "B"


def test_a_tie_is_a_verdict_and_prose_is_none(world: World) -> None:
    world.say(lambda prompt: verdict("tie"))
    assert world.judge.compare(MATCHUP).better == "tie"
    world.say(lambda prompt: "Answer A is better, I think.")
    assert world.judge.compare(MATCHUP).better is None
    world.say(lambda prompt: "")
    assert world.judge.compare(MATCHUP).better is None


def test_what_it_took_is_counted_whatever_was_said(world: World) -> None:
    for reply in (verdict("A"), "Hm."):
        world.say(lambda prompt, reply=reply: reply)  # type: ignore[misc]
        ruling = world.judge.compare(MATCHUP)
        assert ruling.prompt_tokens > 0
        assert ruling.completion_tokens > 0


def test_a_prompt_that_it_does_not_take_is_told_from_a_judge_that_is_away(world: World) -> None:
    world.refuse()
    with pytest.raises(PromptRefused):
        world.judge.compare(MATCHUP)
    world.go_away()
    with pytest.raises(EngineUnavailable):
        world.judge.compare(MATCHUP)


def test_its_name_holds_no_key(world: World) -> None:
    assert world.judge.name
    assert "secret" not in world.judge.name
