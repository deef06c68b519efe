"""`tuneloop rollout` through the controller's real API, with scripted engines: what is done, told, kept and refused."""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn
from click.testing import CliRunner, Result

from flows import rollout_commands
from flows.cli import main
from flows.controller.api import make_app
from flows.controller.process import Loop
from pipeline.config import Settings
from pipeline.records import canonical_json
from pipeline.rollout.state import Canary, Paused, Steady
from tests.builders import a_shadow, an_interaction
from tests.conftest import free_port
from tests.controller_world import World

SECRETS = Settings(user_salt="salt", admin_key="admin", webhook_secret="hook", report_secret="reports")
ENVIRONMENT = {
    f"TUNELOOP_{name.upper()}": value
    for name, value in (
        ("user_salt", "salt"),
        ("admin_key", "admin"),
        ("webhook_secret", "hook"),
        ("report_secret", "reports"),
    )
} | {"LOGNAME": "anna"}


@dataclass
class Desk:
    """A person at a terminal, and the world that the controller looks after."""

    world: World
    configs: Path
    looking: threading.Lock
    """Held by whoever ticks: the loop does when it is woken."""

    def look(self) -> None:
        """The controller looks."""
        with self.looking:
            self.world.tick()

    def say(self, *words: str, **environment: str) -> Result:
        arguments = ["rollout", *words, "--configs", str(self.configs)]
        return CliRunner().invoke(main, arguments, env=ENVIRONMENT | environment, terminal_width=200)

    def did(self, *words: str) -> str:
        result = self.say(*words)
        assert result.exit_code == 0, result.output
        return result.output

    def refused(self, *words: str, code: int = 2) -> str:
        result = self.say(*words)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result.output

    @property
    def state(self) -> Steady | Canary | Paused:
        return self.world.state

    @property
    def trail(self) -> list[tuple[str, str, object]]:
        return [(e.actor, e.action, e.detail["reason"]) for e in self.world.store.history("support")]


@pytest.fixture
def desk(world: World, configs: Path) -> Iterator[Desk]:
    port, file = free_port(), configs / "tuneloop.yaml"
    without = re.sub(r"(?m)^controller:.*(\n .*)*\n", "", file.read_text())
    file.write_text(f"controller: {{port: {port}}}\n{without}")
    loop, desk = Loop(poll_s=3600), Desk(world, configs, threading.Lock())
    app = make_app(world.controller, SECRETS, loop.wake, now_s=lambda: world.now.timestamp())
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    threads = [
        threading.Thread(target=server.run),
        threading.Thread(target=loop.run, args=(lambda _now: desk.look(),)),
    ]
    for thread in threads:
        thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    try:
        yield desk
    finally:
        server.should_exit = True
        loop.stop()
        for thread in threads:
            thread.join()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_commands, "_ENGINES_S", 1)


def test_a_version_is_started_held_let_go_and_taken_back_and_the_trail_says_who_and_why(desk: Desk) -> None:
    version = str(desk.world.publish_version())
    said = desk.did("start", "support", version, "--reason", "the help desk asked")
    assert "version 1 serves 50% of the users (step 1 of 2), the base model the others" in said
    desk.look()
    assert desk.world.tags(1)["rollout_by"] == "anna"
    assert desk.did("start", "support", version, "--reason", "again") == said
    assert "paused by anna" in desk.did("pause", "support", "--reason", "holiday")
    assert isinstance(desk.state, Paused)
    desk.did("resume", "support", "--reason", "back")
    assert "no canary is under way" in desk.did("rollback", "support", "--reason", "complaints")
    assert desk.world.route.candidate is None
    desk.did("rollback", "support", "--reason", "twice is once")
    assert desk.trail == [
        ("anna", "ask", "the help desk asked"),
        ("anna", "start", "asked for by anna: the help desk asked"),
        ("anna", "pause", "holiday"),
        ("anna", "resume", "back"),
        ("anna", "roll_back", "complaints"),
    ]
    assert "version 1: roll_back by anna: complaints" in desk.did("status", "support")


def test_what_may_not_go_into_service_is_refused_with_the_reason(desk: Desk) -> None:
    desk.world.publish_version("reject")
    assert "its gate says reject; a tag `override`" in desk.refused("start", "support", "1", "--reason", "x")
    assert "there is no version 7" in desk.refused("start", "support", "7", "--reason", "x")
    desk.look()
    assert desk.world.tags(1)["rollout_refused"].startswith("its gate says reject")
    desk.world.publish_version()
    third = str(desk.world.publish_version())
    desk.did("start", "support", "2", "--reason", "x")
    assert "version 2 is in its canary" in desk.refused("start", "support", third, "--reason", "x")
    assert all(engine.loads <= 1 for engine in desk.world.engines.values())


def test_engines_that_serve_something_else_refuse_it(desk: Desk) -> None:
    desk.world.publish_version()
    for engine in desk.world.engines.values():
        engine.faults.serve_base = True
    assert "engines do not serve it" in desk.refused("start", "support", "1", "--reason", "x")


def test_a_version_waits_for_engines_that_are_down_and_can_be_withdrawn(desk: Desk, impatient: None) -> None:
    desk.world.publish_version()
    for name in ("one", "two"):
        desk.world.engines[name].stop()
    said = desk.refused("start", "support", "1", "--reason", "soon", code=3)
    assert "it does not answer" in said
    assert "begins by itself" in said
    assert "version 1, asked for by anna, waits for its engines" in desk.did("status", "support")
    assert "waits for its engines" in desk.did("explain", "support")
    desk.did("rollback", "support", "--reason", "not today")
    for name in ("one", "two"):
        desk.world.engines[name].start()
    desk.look()
    assert isinstance(desk.state, Steady)
    assert [action for _, action, _ in desk.trail] == ["ask", "roll_back"]


def test_explain_says_what_the_next_look_then_does(desk: Desk) -> None:
    world = desk.world
    world.publish_version()
    desk.did("start", "support", "1", "--reason", "x")
    world.talk(users=8)
    world.now += timedelta(minutes=1)
    said = desk.did("explain", "support")
    assert re.search(r"next:     stay as it is: insufficient data: [1-8] of 10 users in candidate", said)
    assert re.search(r"users:    [1-8] of 10 in candidate, [1-8] of 10 in control", said)
    assert re.search(r"hard_failure +\S+ +\S+ +\S+ +\+0\.000", said)
    desk.look()
    assert world.controller.seen["support"].reason in said
    world.talk(users=60)
    world.now += timedelta(minutes=6)
    told = json.loads(desk.did("explain", "support", "--json"))
    assert (told["action"], told["reason"]) == ("advance", "50% passed, on to 100%")
    assert isinstance(desk.state, Canary)
    assert desk.state.step == 0  # looking changes nothing
    desk.look()
    assert isinstance(desk.state, Canary)
    assert desk.state.step == 1
    assert world.store.history("support")[-1].detail["reason"] == told["reason"]


def test_a_person_may_pass_over_time_and_users_and_the_trail_says_what(desk: Desk) -> None:
    desk.world.publish_version()
    assert "no canary is under way" in desk.refused("step", "support", "--reason", "x")
    desk.did("start", "support", "1", "--reason", "x")
    desk.did("pause", "support", "--reason", "x")
    assert "it is paused by anna" in desk.refused("step", "support", "--reason", "x")
    desk.did("resume", "support", "--reason", "x")
    assert "100%" in desk.did("step", "support", "--reason", "a quiet week")
    passed = "a quiet week (confirmed although insufficient data: 0 of 10 users in candidate, 0 of 10 users in control)"
    assert desk.trail[-1] == ("anna", "step", passed)
    assert "version 1 serves everybody" in desk.did("step", "support", "--reason", "a quiet week")


def test_nobody_passes_over_a_guardrail_or_an_adapter_that_is_not_served(desk: Desk) -> None:
    desk.world.publish_version()
    desk.did("start", "support", "1", "--reason", "x")
    for name in ("one", "two"):
        desk.world.engines[name].restart()
        desk.world.engines[name].faults.refuse_loads = "no room"
    desk.look()
    assert "no engine is proven to serve" in desk.refused("step", "support", "--reason", "x")
    assert "no room" in desk.did("explain", "support")
    for name in ("one", "two"):
        desk.world.engines[name].faults.refuse_loads = ""
    desk.look()
    desk.world.talk(status=500, choices=(), stream_end="upstream_error")
    desk.world.now += timedelta(minutes=1)
    said = desk.did("explain", "support")
    assert "next:     roll back: worse than allowed: hard_failure" in said
    assert "WORSE" in said
    assert "about to be rolled back: worse than allowed" in desk.refused("step", "support", "--reason", "x")


@pytest.mark.parametrize("words", [("start", "nobody", "1"), ("pause", "nobody"), ("step", "nobody")])
def test_an_unknown_business_is_one_line_that_names_the_known_ones(desk: Desk, words: tuple[str, ...]) -> None:
    said = desk.refused(*words, "--reason", "x")
    assert said.startswith("tuneloop: ")
    assert "known: kefu, support" in said
    assert said.count("\n") == 1


def test_a_controller_that_is_not_there_or_knows_another_key_is_one_line(desk: Desk) -> None:
    wrong = desk.say("rollback", "support", "--reason", "x", TUNELOOP_ADMIN_KEY="guess")
    assert (wrong.exit_code, wrong.output.count("\n")) == (2, 1)
    assert "TUNELOOP_ADMIN_KEY" in wrong.output
    file = desk.configs / "tuneloop.yaml"
    file.write_text(re.sub(r"port: \d+}", f"port: {free_port()}}}", file.read_text(), count=1))
    assert "start it with `tuneloop up`" in desk.refused("status", "support")


def test_a_command_needs_its_reason(desk: Desk) -> None:
    for command in ("pause", "resume", "step", "rollback"):
        assert "--reason" in desk.refused(command, "support")


def test_an_ab_test_is_started_told_and_ended_by_a_step(desk: Desk) -> None:
    version = str(desk.world.publish_version())
    start = ("start", "support", version, "--reason", "which one sells more?")
    assert "--ab and --until go together" in desk.refused(*start, "--ab", "0.5")
    assert "is past" in desk.refused(*start, "--ab", "0.5", "--until", "2026-03-09T08:00+00:00")
    said = desk.did(*start, "--ab", "0.5", "--until", "2026-03-17T09:00+01:00")
    assert "version 1 serves 50% of the users (A/B test until 2026-03-17T08:00:00Z), the base model the others" in said
    told = desk.did("explain", "support")
    assert "version 1 at 50% (A/B test) beside the base model" in told
    assert "end:      2026-03-17 08:00 UTC" in told
    assert "no canary is under way" in desk.did("step", "support", "--reason", "we know enough")
    assert isinstance(desk.state, Steady)
    assert desk.state.last is not None
    assert desk.state.last.result == "ended"
    assert desk.trail[-1] == ("anna", "step", "we know enough")


def test_what_a_version_answered_in_shadow_is_told(desk: Desk) -> None:
    assert "answered no copy" in desk.refused("shadow", "support", "2")
    now = datetime.now(UTC)
    served = an_interaction("i1", started_at=now - timedelta(minutes=2), answer="By card.")
    shadow = a_shadow("i1", started_at=now - timedelta(minutes=1), answer="By card, too.")
    folder = desk.configs.parent / "var" / "events" / "segments"
    folder.mkdir(parents=True)
    lines = [canonical_json({"interaction": served.model_dump(mode="json")})]
    lines.append(canonical_json({"shadow": shadow.model_dump(mode="json")}))
    (folder / f"gateway-{now:%Y%m%dT%H}.jsonl").write_text("\n".join(lines) + "\n")
    assert "copies:   1 of requests of 1 users" in desk.did("shadow", "support", "2")
    assert "has no judge" in desk.refused("shadow", "support", "2", "--judge")
