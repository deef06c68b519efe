"""The night after an erasure goes on from nothing that has learned from the erased user."""

import logging
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import flows.erasing
from flows.cli import main
from flows.nightly import start_of_training
from pipeline.registry.memory import MemoryRegistry
from tests.erasure_world import SALT, USER, USER_ID, about_support, erase_user, places

SECRETS = {f"TUNELOOP_{name}": SALT for name in ("USER_SALT", "ADMIN_KEY", "WEBHOOK_SECRET", "REPORT_SECRET")}


def parent(state: Path, registry: MemoryRegistry, start_from: str) -> str | None:
    """Digest of the adapter that a training would go on from; None for the base model."""
    about = about_support()
    training = about.training.model_copy(update={"start_from": start_from})
    found = start_of_training(about.model_copy(update={"training": training}), registry, state / "adapters")
    if found is None:
        return None
    adapter, folder = found
    assert folder == state / "adapters" / adapter.sha256
    assert folder.is_dir()
    return adapter.sha256


@pytest.mark.parametrize(
    ("champion", "goes_on"),
    [
        (1, False),  # was trained on the user
        (2, True),  # was measured on the user only
        (3, True),  # never saw the user
        (4, False),  # goes on from 1
        (None, False),
    ],
)
def test_training_goes_on_only_from_what_never_learned_from_the_user(
    state: Path, registry: MemoryRegistry, champion: int | None, goes_on: bool
) -> None:
    if champion is not None:
        registry.set_alias("support", "champion", champion)
        assert parent(state, registry, "stable") == registry.get("support", champion).adapter.sha256
    erase_user(state, registry)
    assert (parent(state, registry, "stable") is not None) == goes_on
    assert parent(state, registry, "base") is None


def test_it_says_why_it_does_not_go_on(state: Path, registry: MemoryRegistry, caplog: pytest.LogCaptureFixture) -> None:
    registry.set_alias("support", "champion", 4)
    erase_user(state, registry)
    with caplog.at_level(logging.INFO, "flows.nightly"):
        assert parent(state, registry, "stable") is None
    assert "version 4 learned from a user who is erased" in caplog.text
    assert USER not in caplog.text


@pytest.mark.parametrize(
    ("user", "options", "said", "trains"),
    [
        (USER_ID, ["--yes", "--retrain"], "", True),
        (USER_ID, [], "y\ny\n", True),
        (USER_ID, [], "y\nn\n", False),
        (USER_ID, ["--yes"], "", False),
        (USER_ID, ["--retrain", "--dry-run"], "", False),
        ("nobody-ever", ["--yes", "--retrain"], "", False),  # no version learned from them
    ],
)
def test_the_night_without_the_user_is_offered_or_run_at_once(
    state: Path,
    registry: MemoryRegistry,
    configs: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    options: list[str],
    said: str,
    trains: bool,
) -> None:
    commands: list[list[str]] = []

    def night(command: list[str]) -> "subprocess.CompletedProcess[str]":
        commands.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(flows.erasing, "_places", lambda config, settings: places(state, registry))
    monkeypatch.setattr(flows.erasing.subprocess, "run", night)
    command = ["erase", "--configs", str(configs), "--business", "support", "--user", user, *options]
    result = CliRunner().invoke(main, command, input=said, env=SECRETS)
    assert result.exit_code == (3 if trains else 0), result.output
    nightly = ["nightly", "--business", "support", "--configs", str(configs)]
    assert [one[-5:] for one in commands] == ([nightly] if trains else [])
    offered = user == USER_ID and "--dry-run" not in options
    assert ("tuneloop nightly --business support" in result.output) == offered
