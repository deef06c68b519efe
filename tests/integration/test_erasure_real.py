"""`tuneloop erase` on one machine's state folder with a real MLflow in it: no byte of the user is left in either."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient

from flows.cli import main
from flows.import_file import import_file
from flows.stack import make_secrets
from pipeline.config import Settings, load_config, load_settings
from pipeline.registry.mlflow import MlflowRegistry
from tests.conftest import ROOT, Started, running_server
from tests.erasure_world import NEEDLES, SALT, USER_ID, build, found_in

pytestmark = pytest.mark.servers


@pytest.fixture
def configs(configs: Path) -> Path:
    """The shipped configuration, with a state folder and a salt of its own."""
    state = configs.parent / "var"
    make_secrets(state)
    secrets = state / "secrets.env"
    secrets.write_text(re.sub(r"(?m)^TUNELOOP_USER_SALT=.*$", f"TUNELOOP_USER_SALT={SALT}", secrets.read_text()))
    return configs


def use_mlflow(configs: Path, url: str) -> None:
    file = configs / "tuneloop.yaml"
    file.write_text(re.sub(r"(?m)^mlflow: .*$", f'mlflow: {{url: "{url}"}}', file.read_text()))


def tuneloop(configs: Path, *arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(main, [*arguments, "--configs", str(configs)], input=given, env={"COLUMNS": "200"})


def settings_of(configs: Path) -> Settings:
    return load_settings(configs.parent / "var")


@pytest.fixture
def server(configs: Path) -> Iterator[Started]:
    """An MLflow that keeps everything in the state folder, as on one machine."""
    with running_server("mlflow.sh", "/health", configs.parent / "var") as server:
        use_mlflow(configs, server.url)
        yield server


def test_the_user_is_in_no_byte_of_state_and_registry(
    configs: Path, server: Started, prefect_url: str, tmp_path: Path
) -> None:
    state, mlflow = configs.parent / "var", MlflowRegistry(server.url)
    build(state, mlflow).close()
    client = MlflowClient(tracking_uri=server.url, registry_uri=server.url)
    run_id = str(client.get_model_version("support", "1").run_id)
    client.log_text(run_id, "made by hand", "notes/rows.txt")
    assert any(path.startswith("mlflow/artifacts") for path in found_in(state))

    looked = tuneloop(configs, "erase", "--business", "support", "--user", USER_ID, "--dry-run")
    assert looked.exit_code == 0, looked.stderr
    assert any(path.startswith("mlflow/artifacts") for path in found_in(state))

    done = tuneloop(configs, "erase", "--business", "support", "--user", "-", "--yes", given=f"{USER_ID}\n")
    assert done.exit_code == 0, done.stderr
    shown = " ".join(done.stdout.split())
    for words in (
        "version 1 trained on 2 rows",
        "version 2 measured on 1",
        "version 4 goes on from version 1",
        "look at notes/rows.txt",
        "tuneloop nightly --business support",
    ):
        assert words in shown
    assert USER_ID not in done.stdout + done.stderr
    assert found_in(state, (*NEEDLES, USER_ID.encode())) == set()

    first, second = (client.get_model_version("support", number) for number in ("1", "2"))
    assert first.tags["erased_trained"] == "2 rows"
    assert "measured on 1" in second.description
    report = Path(client.download_artifacts(str(second.run_id), "report.html", str(tmp_path))).read_text("utf-8")
    assert "data erased" in report
    probe = mlflow.get("support", 1).fingerprint
    assert probe is not None
    assert probe.texts == ("How do I pay?\nBy card.",)

    file = configs / "tuneloop.yaml"
    file.write_text(re.sub(r"(?m)^prefect: .*$", f'prefect: {{url: "{prefect_url}"}}', file.read_text()))
    command = [sys.executable, "-m", "flows.cli", "erase", "--configs", str(configs), "--business", "support"]
    command += ["--user", USER_ID, "--yes", "--retrain"]
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert '"end":"too_few_rows"' in again.stdout  # the night ran: these events are older than its window
    assert found_in(state, (*NEEDLES, USER_ID.encode())) == set()
    assert client.get_model_version("support", "1").description == first.description


def test_an_import_of_an_old_file_brings_nobody_back(configs: Path, mlflow_url: str, tmp_path: Path) -> None:
    use_mlflow(configs, mlflow_url)
    config, settings = load_config(configs), settings_of(configs)
    file = tmp_path / "old.jsonl"
    rows = (f'"prompt": "{who} asks", "answer": "So.", "id": "{who}", "user_id": "{who}"' for who in (USER_ID, "bob"))
    file.write_text("".join(f'{{{row}, "thumb": "up", "occurred_at": "2026-03-01T10:00:00+00:00"}}\n' for row in rows))
    first = import_file(config, settings, "generic", file, "support")
    assert first.refused.total() == 0, first.refusals
    done = tuneloop(configs, "erase", "--business", "support", "--user", USER_ID, "--yes")
    assert done.exit_code == 0, done.stderr
    again = import_file(config, settings, "generic", file, "support")
    assert {reason.value: count for reason, count in again.refused.items()} == {"erased": first.stored // 2}
    assert again.stored == 0
    assert not again.damaged
    assert found_in(config.state_dir, (USER_ID.encode(),)) == set()


def test_nobody_named_and_a_wrong_key_are_one_line(configs: Path) -> None:
    for arguments, words in (((), "nobody is named"), (("--user-key", "alice"), "32 hex digits")):
        result = tuneloop(configs, "erase", "--business", "support", *arguments)
        assert result.exit_code == 2
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
