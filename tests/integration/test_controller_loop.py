"""The controller as a process sees it: killed anywhere it ends in the same state, and people reach it over HTTP."""

import base64
import hashlib
import hmac
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from flows.controller.api import MAX_BODY, make_app, report_token
from flows.controller.controller import Controller
from flows.controller.process import Loop
from pipeline.config import Settings
from pipeline.control import open_control
from pipeline.rollout.state import Steady
from tests.controller_parts import Crash
from tests.controller_world import ScriptedEngines, World

SECRETS = Settings(user_salt="salt", admin_key="admin", webhook_secret="hook", report_secret="reports")
ADMIN = {"Authorization": "Bearer admin"}


def _promote(world: World) -> None:
    world.publish_version()
    world.ask("promote", len(world.registry.entries))


def _good_traffic(world: World) -> None:
    world.talk()


def _bad_traffic(world: World) -> None:
    world.talk(status=500, choices=(), stream_end="upstream_error")


def _refused_wish(world: World) -> None:
    world.publish_version("reject")
    world.ask("champion", len(world.registry.entries))


def _back_to_the_first(world: World) -> None:
    world.ask("rollback", 1)


STORY: tuple[Callable[[World], None], ...] = (
    _promote,
    _good_traffic,
    _good_traffic,  # version 1 is promoted
    _refused_wish,
    _promote,
    _bad_traffic,  # version 3 is rolled back
    _promote,
    _back_to_the_first,
)


def _play(world: World, crashes: Sequence[int | None]) -> dict[str, Any]:
    """The story, with a crash at one call of each chapter; a new process goes on every time."""
    for happening, crash_at in zip(STORY, crashes, strict=True):
        happening(world)
        world.calls = 0
        world.crash_at = crash_at
        world.now += timedelta(minutes=6)
        while not _ticked(world):
            world.crash_at = None
            world.new_controller()
    world.crash_at = None
    for _ in range(3):  # a new process waits anew before it unloads what nobody needs
        world.tick(minutes=2)
    return world.outcome()


def _ticked(world: World) -> bool:
    try:
        world.tick()
    except Crash:
        return False
    return True


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, scripted_engines: ScriptedEngines) -> dict[str, Any]:
    with World(tmp_path_factory.mktemp("undisturbed"), scripted_engines) as world:
        return _play(world, [None] * len(STORY))


def test_the_story_is_what_it_says(undisturbed: dict[str, Any]) -> None:
    assert undisturbed["state"].stable == 1
    assert undisturbed["aliases"] == {"champion": 1}
    actions = [action for _, action, _ in undisturbed["audit"]]
    assert actions == ["start", "advance", "promote", "refuse", "start", "roll_back", "start", "roll_back"]
    assert undisturbed["owed"] == ()


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 60), min_size=len(STORY), max_size=len(STORY)))
def test_killed_at_any_call_and_started_again_it_ends_in_the_same_state(
    undisturbed: dict[str, Any],
    scripted_engines: ScriptedEngines,
    tmp_path_factory: pytest.TempPathFactory,
    crashes: list[int],
) -> None:
    with World(tmp_path_factory.mktemp("crash"), scripted_engines) as world:
        assert _play(world, crashes) == undisturbed


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(["one", "other", "both"]), min_size=len(STORY), max_size=len(STORY)))
def test_two_controllers_act_as_one(
    undisturbed: dict[str, Any],
    scripted_engines: ScriptedEngines,
    tmp_path_factory: pytest.TempPathFactory,
    acting: list[str],
) -> None:
    """They take turns, or look at the same moment, as when a network came apart and each thinks it is the only one."""
    with World(tmp_path_factory.mktemp("two"), scripted_engines) as world:
        pair = world.controller, world.new_controller()
        for happening, who in zip(STORY, acting, strict=True):
            happening(world)
            world.now += timedelta(minutes=6)
            _tick_at_once(world, {"one": pair[:1], "other": pair[1:], "both": pair}[who])
        for _ in range(3):
            world.now += timedelta(minutes=2)
            _tick_at_once(world, pair[:1])
        assert world.outcome() == undisturbed


def _tick_at_once(world: World, controllers: Sequence[Controller]) -> None:
    with ThreadPoolExecutor(len(controllers)) as threads:
        for ticked in [threads.submit(controller.tick, world.now) for controller in controllers]:
            ticked.result()
    for controller in controllers:
        assert not [problem for problem in controller.problems.values() if problem.startswith("unexpected")]


@pytest.fixture
def woken() -> threading.Event:
    return threading.Event()


@pytest.fixture
def client(world: World, woken: threading.Event) -> Iterator[TestClient]:
    app = make_app(world.controller, SECRETS, woken.set, now_s=lambda: 1_800_000_000.0)
    with TestClient(app) as client:
        yield client


def _delivery(body: bytes, at: int = 1_800_000_000, secret: str = "hook") -> dict[str, str]:
    digest = hmac.new(secret.encode(), f"d1.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "X-MLflow-Delivery-Id": "d1",
        "X-MLflow-Timestamp": str(at),
        "X-MLflow-Signature": "v1," + base64.b64encode(digest).decode(),
    }


def test_a_signed_webhook_wakes_the_loop_and_nothing_else_does(client: TestClient, woken: threading.Event) -> None:
    body = json.dumps({"entity": "model_version_alias", "action": "created", "data": {"alias": "promote"}}).encode()
    good = _delivery(body)
    for headers, sent in (
        ({}, body),
        (_delivery(body, secret="guess"), body),
        (_delivery(body, at=1_800_000_000 - 301), body),
        (good | {"X-MLflow-Timestamp": "soon"}, body),
        (good, body + b" "),
    ):
        assert client.post("/webhook/mlflow", content=sent, headers=headers).status_code == 401
    endless = (b"x" * 1000 for _ in range(MAX_BODY))  # without a Content-Length
    assert client.post("/webhook/mlflow", content=endless, headers=good).status_code == 413
    assert not woken.is_set()
    assert client.post("/webhook/mlflow", content=body, headers=good).status_code == 202
    assert woken.is_set()


def test_routes_and_commands_need_the_admin_key(client: TestClient) -> None:
    command = {"business": "support", "actor": "bo", "reason": "complaints"}
    for headers in ({}, {"Authorization": "Bearer guess"}):
        for path in ("/routes", "/status", "/explain/support"):
            assert client.get(path, headers=headers).status_code == 401
        for path in ("/start", "/step", "/rollback", "/pause", "/resume"):
            assert client.post(path, json=command, headers=headers).status_code == 401


def test_a_person_rolls_back_over_http_and_the_gateway_has_it_before_the_answer(
    client: TestClient, world: World
) -> None:
    _promote(world)
    world.tick()
    command = {"business": "support", "actor": "bo", "reason": "complaints"}
    paused = client.post("/pause", json=command, headers=ADMIN)
    assert paused.json()["state"]["kind"] == "paused"
    assert client.post("/resume", json=command, headers=ADMIN).json()["state"]["kind"] == "canary"
    status = client.get("/status", headers=ADMIN).json()["businesses"]["support"]
    assert status["state"] == "canary"
    assert status["canary"] | {"started_at": 0, "step_started_at": 0, "deadline": 0, "checks": 0} == {
        "version": 1,
        "share": 0.5,
        "step": 1,
        "steps": 2,
        "started_at": 0,
        "step_started_at": 0,
        "deadline": 0,
        "paused_by": None,
        "in_shadow": False,
        "ab": None,
        "users": {"candidate": 0, "control": 0, "needed": 10},
        "checks": 0,
    }
    answer = client.post("/rollback", json=command, headers=ADMIN)
    assert answer.status_code == 200
    assert world.route.candidate is None
    assert client.get("/routes", headers=ADMIN).json() == world.gateway.routes.model_dump(mode="json")
    status = client.get("/status", headers=ADMIN).json()["businesses"]["support"]
    assert status["last_decision"]["reason"] == "complaints"


def test_a_control_database_that_takes_nothing_is_told_in_one_line(client: TestClient, world: World) -> None:
    _promote(world)
    world.tick()
    before = world.gateway.routes
    database = open_control(f"sqlite:///{world.folder / 'control.db'}")
    full = "CREATE TRIGGER full BEFORE UPDATE ON rollouts BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    with database.begin() as connection:
        connection.exec_driver_sql(full)
    database.dispose()
    command = {"business": "support", "actor": "bo", "reason": "complaints"}
    answer = client.post("/rollback", json=command, headers=ADMIN)
    assert answer.status_code == 503
    assert "the disk is full" in answer.json()["error"]
    assert "ask again" in answer.json()["error"]
    assert world.gateway.routes == before


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ({"business": "kefu", "actor": "bo", "reason": "x"}, 404, "no business 'kefu'"),
        ({"business": "support", "actor": "bo"}, 422, "reason"),
        ({"business": "support", "actor": "bo", "reason": "x", "to": 3}, 422, "to"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    client: TestClient, command: dict[str, Any], status: int, said: str
) -> None:
    answer = client.post("/rollback", json=command, headers=ADMIN)
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_a_gateway_that_did_not_hear_a_rollback_is_an_error_and_not_a_silence(client: TestClient, world: World) -> None:
    _promote(world)
    world.tick()
    world.gateway.down = True
    command = {"business": "support", "actor": "bo", "reason": "complaints"}
    assert client.post("/rollback", json=command, headers=ADMIN).status_code == 502
    assert isinstance(world.state, Steady)


def test_reports_open_with_their_business_s_token_only(client: TestClient, world: World) -> None:
    folder = world.config.state_dir / "reports" / "support"
    folder.mkdir(parents=True)
    (folder / "rollout-v1.html").write_text("<h1>Version 1</h1>", encoding="utf-8")
    (folder.parent / "secret.html").write_text("secret", encoding="utf-8")
    token = report_token("reports", "support")
    page = client.get("/reports/support/rollout-v1.html", params={"token": token})
    assert (page.status_code, page.text) == (200, "<h1>Version 1</h1>")
    assert page.headers["content-type"].startswith("text/html")
    for path, wrong in (
        ("/reports/support/rollout-v1.html", ""),
        ("/reports/support/rollout-v1.html", report_token("reports", "kefu")),
        ("/reports/kefu/rollout-v1.html", token),
    ):
        assert client.get(path, params={"token": wrong}).status_code == 403
    for name in ("rollout-v2.html", "..%2Fsecret.html", "%2e%2e"):
        assert client.get(f"/reports/support/{name}", params={"token": token}).status_code == 404


def test_who_opened_a_business_s_overview_may_follow_its_links(client: TestClient, world: World) -> None:
    _promote(world)
    world.tick()
    assert client.get("/reports/support/index.html").status_code == 403
    overview = client.get("/reports/support", params={"token": report_token("reports", "support")})
    assert overview.url.path == "/reports/support/index.html"
    links = set(re.findall(r'href="(rollout[^"#]*)', overview.text))
    assert links == {"rollout-v1.html"}
    assert "is being tried" in client.get("/reports/support/rollout-v1.html").text
    assert client.get("/reports/kefu/index.html").status_code == 403


def test_pages_of_a_rollout_under_way_tell_how_it_goes_now(client: TestClient, world: World) -> None:
    _promote(world)
    world.tick()
    folder = world.config.state_dir / "reports" / "support"
    for name in ("decision-v1.html", "decision-v2.html"):
        (folder / name).write_text("<!--canary:en-->not begun<!--/canary-->", encoding="utf-8")
    token = {"token": report_token("reports", "support")}
    before = (folder / "rollout-v1.html").read_text(encoding="utf-8")
    assert "is being tried" in before
    assert "is being tried" in client.get("/reports/support/decision-v1.html", params=token).text
    assert "not begun" in client.get("/reports/support/decision-v2.html", params=token).text
    client.post("/pause", json={"business": "support", "actor": "bo", "reason": "lunch"}, headers=ADMIN)
    assert "is paused" in client.get("/reports/support/rollout-v1.html", params=token).text
    world.tick()
    assert "is paused" in (folder / "rollout-v1.html").read_text(encoding="utf-8")
    client.post("/rollback", json={"business": "support", "actor": "bo", "reason": "complaints"}, headers=ADMIN)
    world.tick()
    for name in ("rollout-v1.html", "decision-v1.html"):
        assert "was taken back" in client.get(f"/reports/support/{name}", params=token).text


def test_the_loop_ticks_when_it_is_woken_and_survives_a_tick_that_fails() -> None:
    loop, ticks = Loop(poll_s=3600), threading.Semaphore(0)

    def tick(_now: datetime) -> None:
        ticks.release()
        raise ValueError("nobody thought of this")

    thread = threading.Thread(target=loop.run, args=(tick,), daemon=True)
    thread.start()
    assert ticks.acquire(timeout=30)
    loop.wake()
    assert ticks.acquire(timeout=30)
    loop.stop()
    thread.join(timeout=30)
    assert not thread.is_alive()
