"""The command line: quick help, one clear line for bad input."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli import main

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
