"""MLflow's page as the remote control: people who have logged in click, routes follow, and it is known who it was."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mlflow import MlflowClient
from mlflow.environment_variables import MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_USERNAME
from mlflow.server.auth.client import AuthServiceClient

from flows.controller.api import make_app
from flows.controller.process import Loop
from pipeline.config import Settings
from pipeline.control import open_control_in
from pipeline.registry.alias_log import AliasLog
from pipeline.registry.mlflow import MlflowRegistry
from pipeline.rollout.state import Canary
from tests.browser import ARGUMENTS, CHROMIUM
from tests.conftest import Started, free_port, running_server
from tests.controller_world import ScriptedEngines, World

pytestmark = pytest.mark.servers

PASSWORD = "a password of the test"
SECRETS = Settings(user_salt="salt", admin_key="admin", webhook_secret="hook", report_secret="reports")
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def mlflow(state: Path) -> Iterator[Started]:
    """A server that asks for a log-in: anna may change the business `support`, bo may look."""
    with running_server("mlflow.sh", "/health", state, TUNELOOP_MLFLOW_PASSWORD=PASSWORD) as server:
        MlflowRegistry(server.url, PASSWORD)
        MlflowClient(server.url, server.url).create_registered_model("support")
        accounts = AuthServiceClient(server.url)
        for name in ("anna", "bo"):
            accounts.create_user(name, PASSWORD)
        accounts.grant_user_permission("anna", "registered_model", "support", "EDIT")
        yield server
        MLFLOW_TRACKING_USERNAME.unset()
        MLFLOW_TRACKING_PASSWORD.unset()


@pytest.fixture(scope="module")
def world(mlflow: Started, state: Path, scripted_engines: ScriptedEngines) -> Iterator[World]:
    """Versions 1 and 2 were in service one after the other; 3 has passed the gate."""
    registry = MlflowRegistry(mlflow.url, PASSWORD)
    with World(state, scripted_engines, registry) as world:
        for _ in range(3):
            world.publish_version()
        world.put_in_service(1)
        world.put_in_service(2)
        yield world


def change(mlflow: Started, method: str, who: str, body: Any, path: str = "api") -> int:
    """Status of a request about an alias."""
    url = f"{mlflow.url}/{path}/2.0/mlflow/registered-models/alias"
    headers = {"Content-Type": "application/json"}
    answer = httpx.request(method, url, content=json.dumps(body), headers=headers, auth=(who, PASSWORD), timeout=60)
    return answer.status_code


def kept(state: Path) -> list[tuple[str, int | None, str]]:
    log = AliasLog(open_control_in(state))
    return [(change.alias, change.version, change.by) for change in log.changes("support")]


def test_whoever_changes_an_alias_is_kept_by_name_and_others_are_not(
    mlflow: Started, world: World, state: Path
) -> None:
    before = len(kept(state))
    wish = {"name": "support", "alias": "mine", "version": "2"}
    assert change(mlflow, "POST", "anna", wish) == 200
    assert change(mlflow, "POST", "anna", wish, "ajax-api") == 200  # what the page calls
    assert change(mlflow, "POST", "bo", wish) == 403
    assert change(mlflow, "POST", "nobody", wish) == 401
    assert change(mlflow, "POST", "anna", {"name": "support"}) == 400
    assert change(mlflow, "DELETE", "bo", wish) == 403
    assert change(mlflow, "DELETE", "admin", {"name": "support", "alias": "mine"}) == 200
    assert kept(state)[before:] == [("mine", 2, "anna"), ("mine", 2, "anna"), ("mine", None, "admin")]


def test_a_change_that_cannot_be_kept_is_not_made(mlflow: Started, world: World, state: Path) -> None:
    with closing(sqlite3.connect(state / "control.db", isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert change(mlflow, "POST", "anna", {"name": "support", "alias": "mine", "version": "2"}) == 503
        holder.execute("ROLLBACK")
    assert "mine" not in world.aliases()


@contextmanager
def controlling(world: World, registry: MlflowRegistry, poll_s: float, hear: bool = True) -> Iterator[Loop]:
    """The controller as a process runs it, woken by MLflow's webhook if it hears it."""
    loop, port = Loop(poll_s), free_port()
    registry.ensure_webhook(f"http://127.0.0.1:{port}/webhook/mlflow", "hook")
    controller = world.new_controller()
    app = make_app(controller, SECRETS, loop.wake)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    threads = [threading.Thread(target=loop.run, args=(lambda now: _tick(world, now),))]
    threads += [threading.Thread(target=server.run)] if hear else []
    for thread in threads:
        thread.start()
    try:
        yield loop
    finally:
        server.should_exit = True
        loop.stop()
        for thread in threads:
            thread.join()


def _tick(world: World, now: datetime) -> None:
    world.now = now
    world.controller.tick(now)


def eventually(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


@pytest.fixture
def click(mlflow: Started, tmp_path: Path) -> Iterator[Callable[[int, str], None]]:
    """Add an alias to a version as anna does, with the mouse."""
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is absent (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        context = browser.new_context(http_credentials={"username": "anna", "password": PASSWORD})

        def add_alias(version: int, alias: str) -> None:
            page = context.new_page()
            page.goto(f"{mlflow.url}/#/models/support/versions/{version}")
            button = page.locator('button[title="Add aliases"], button[title="Edit aliases"]').first
            button.click(timeout=PATIENCE_S * 1000)
            dialog = page.get_by_role("dialog")
            box = dialog.get_by_role("combobox")
            box.fill(alias)
            box.press("Enter")
            page.locator('[data-component-id="mlflow.edit-aliases-modal.save-button"]').click()
            dialog.wait_for(state="hidden", timeout=PATIENCE_S * 1000)
            page.close()

        yield add_alias
        browser.close()


def tags(mlflow: Started, version: int) -> dict[str, str]:
    found = MlflowClient(mlflow.url, mlflow.url).get_model_version("support", str(version))
    return dict(found.tags)


@pytest.mark.browser
def test_clicks_in_the_page_start_a_canary_and_roll_back_and_the_version_says_who(
    mlflow: Started, world: World, click: Callable[[int, str], None]
) -> None:
    """The loop polls once an hour, so it is the webhook that brings the clicks."""
    with controlling(world, world.registry, poll_s=3600):
        eventually(lambda: bool(world.gateway.pushes), "routes")
        assert world.route.stable.version == 2
        eventually(lambda: world.aliases().get("champion") == 2, "alias champion")
        click(3, "promote")
        eventually(lambda: world.route.candidate is not None, "a canary")
        assert world.route.candidate.version == 3
        eventually(lambda: world.aliases() == {"champion": 2, "previous": 1, "challenger": 3}, "aliases")
        click(1, "rollback")
        eventually(lambda: world.route.stable.version == 1, "version 1 in service again")
        assert world.route.candidate is None
        eventually(lambda: world.aliases() == {"champion": 1}, "aliases")
    assert tags(mlflow, 3)["rollout"] == "rolled_back"
    assert tags(mlflow, 3)["rollout_by"] == "anna"
    trail = [(entry.actor, entry.action, entry.detail["version"]) for entry in world.store.history("support")]
    assert trail[-2:] == [("anna", "start", 3), ("anna", "roll_back", 1)]


def test_a_webhook_that_nobody_hears_is_made_up_for_by_polling(mlflow: Started, world: World) -> None:
    with controlling(world, world.registry, poll_s=0.2, hear=False):
        assert change(mlflow, "POST", "anna", {"name": "support", "alias": "promote", "version": "3"}) == 200
        eventually(lambda: isinstance(world.state, Canary), "a canary")
        world.controller.roll_back("support", "bo", "seen enough")
    assert world.store.history("support")[-2].actor == "anna"
