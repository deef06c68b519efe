"""The command line: quick help, one clear line for bad input."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import main
from flows.controller.api import report_token

HEAVY = ("torch", "transformers", "mlflow", "prefect", "presidio_analyzer", "duckdb", "pyarrow", "sqlalchemy")


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys, flows.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_help_says_how_to_begin_and_lists_every_command() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    assert "tuneloop up" in text
    assert all(name in text for name in main.commands)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "--configs", "absent"], "tuneloop.yaml"),
        (["nightly", "--business", "nobody"], "no business 'nobody'"),
        (["keys", "create", "--name", "x", "--business", "nobody"], "known: kefu, support"),
    ],
)
def test_bad_input_is_one_line_and_no_traceback(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_every_mistake_of_a_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "businesses").mkdir()
    (tmp_path / "tuneloop.yaml").write_text("state_dirr: var\nengines: []\n")
    (tmp_path / "businesses" / "shop.yaml").write_text("business: shop\ntimezone: Mars/Base\nnightly: at two\n")
    output = CliRunner().invoke(main, ["check", "--configs", str(tmp_path)]).output
    for words in ("state_dirr: unknown key", "timezone: 'Mars/Base'", "nightly: 'at two'", "title: missing"):
        assert words in output


def test_keys_are_made_listed_with_their_scopes_and_revoked(configs: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["keys", *arguments, "--configs", str(configs)])
        assert result.exit_code == 0, result.output
        return result.output

    made = [run("create", "--name", "shop", "--business", "support", "--business", "kefu").strip()]
    made.append(run("create", "--name", "ops", "--admin").strip())
    assert all(re.fullmatch(r"tk-\S{43}", key) for key in made)
    run("revoke", "--name", "shop")
    ops, shop = run("list").splitlines()
    assert ops.split()[:2] == ["ops", "(admin)"]
    assert ops.endswith("in use")
    assert shop.split()[:3] == ["shop", "kefu", "support"]
    assert " revoked " in shop
    for key in made:
        assert key not in ops + shop


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "--name", "x"], "API key 'x' would be good for nothing"),
        (["revoke", "--name", "x"], "no API key 'x'"),
    ],
)
def test_a_key_that_cannot_be_is_one_line(configs: Path, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["keys", *arguments, "--configs", str(configs)])
    assert (result.exit_code, len(result.output.strip().splitlines())) == (2, 1)
    assert words in result.output


def test_each_business_has_a_link_of_its_own(configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER_SALT", "ADMIN_KEY", "WEBHOOK_SECRET", "REPORT_SECRET"):
        monkeypatch.setenv(f"TUNELOOP_{name}", "s")
    output = CliRunner().invoke(main, ["reports", "--configs", str(configs)]).output
    links = re.findall(r"http://127\.0\.0\.1:8702/reports/(\w+)\?token=([0-9a-f]{64})", output)
    assert links == [(business, report_token("s", business)) for business in ("kefu", "support")]
