"""`tuneloop pii explain` tells what a night would do with a text, and tells it to nobody else."""

import logging
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from flows.cli import main
from pipeline.clean.pii import PatternDetector, Rules
from pipeline.clean.pii.explain import LeftAlone, explain
from pipeline.clean.pii_config import PiiConfig
from pipeline.clean.steps import clean_records
from pipeline.errors import DataError
from tests.builders import a_rated, a_signal, an_interaction

RULES = Rules(PiiConfig(allow=("0571-88886666",), allow_patterns=("13800[0-9]{6}",)), "zh")


def test_each_value_has_its_rule_and_placeholder_and_own_data_is_named() -> None:
    text = "我是13912345678，卡号4111111111111111，前台0571-88886666，热线13800123456，又是139 1234 5678"
    found = explain(text, PatternDetector(RULES), RULES)
    assert [(f.value, f.placeholder) for f in found.findings] == [
        ("13912345678", "<PHONE_1>"),
        ("4111111111111111", "<CARD_1>"),
        ("139 1234 5678", "<PHONE_1>"),
    ]
    assert found.findings[0].rule == "pattern PHONE 1: its form"
    assert "a check of the value" in found.findings[1].rule
    assert found.left_alone == (
        LeftAlone("0571-88886666", "pii.allow"),
        LeftAlone("13800123456", "pii.allow_patterns"),
    )
    assert found.scrubbed == "我是<PHONE_1>，卡号<CARD_1>，前台0571-88886666，热线13800123456，又是<PHONE_1>"


def test_words_before_a_number_and_a_key_of_json_are_reasons() -> None:
    (found,) = explain('{"phone": "5550143"}', PatternDetector(), Rules()).findings
    assert found.value == "5550143"
    assert re.fullmatch(r"pattern PHONE \d+: its form and the words before it", found.rule)


def test_a_text_that_a_night_would_drop_is_said_to_be_so() -> None:
    with pytest.raises(DataError, match="a night drops such a record"):
        explain("text", lambda texts: [], Rules())


@given(
    st.lists(
        st.sampled_from(["13912345678", "a@b.com", "0571-88886666", "说", " ", "\n", "{", '"', "```"]), max_size=12
    )
)
def test_it_is_what_a_night_does(parts: list[str]) -> None:
    text = "说" + "".join(parts)
    rated = a_rated(an_interaction(prompt=text), a_signal())
    (record,), _ = clean_records([rated], PatternDetector(RULES), frozenset(), RULES)
    found = explain(text, PatternDetector(RULES), RULES)
    assert found.scrubbed == record.messages[0]["content"]
    assert {f.placeholder for f in found.findings} == set(re.findall(r"<[A-Z]+_\d+>", found.scrubbed))


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped configuration with a telephone of its own, and patterns in place of the models."""
    monkeypatch.setattr("flows.personal_data.make_detector", lambda _, rules: PatternDetector(rules))
    folder = tmp_path / "configs"
    shutil.copytree("configs", folder)
    kefu = folder / "businesses" / "kefu.yaml"
    kefu.write_text(kefu.read_text(encoding="utf-8") + '\npii: {allow: ["0571-88886666"]}\n', encoding="utf-8")
    return folder


def test_the_command_reads_an_argument_or_standard_input_and_logs_nothing(
    configs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = "请打 (0571) 88886666 或 13912345678\x1b[31m"
    for arguments, given_input in (([text], None), (["-"], text.encode())):
        command = ["pii", "explain", *arguments, "--business", "kefu", "--configs", str(configs)]
        result = CliRunner().invoke(main, command, input=given_input, env={"COLUMNS": "120"})
        assert result.exit_code == 0, result.output
        assert "(left alone)" in result.output
        assert "<PHONE_1>" in result.output
        assert "\x1b" not in result.output
    assert "13912345678" not in caplog.text
    assert "88886666" not in caplog.text


def test_without_a_business_nothing_is_its_own(configs: Path) -> None:
    command = ["pii", "explain", "call 0571-88886666", "--configs", str(configs)]
    assert "call <PHONE_1>" in CliRunner().invoke(main, command).output
    command = ["pii", "explain", "hello", "--configs", str(configs)]
    assert "Nothing personal was found." in CliRunner().invoke(main, command).output


def test_an_unknown_business_is_one_line(configs: Path) -> None:
    result = CliRunner().invoke(main, ["pii", "explain", "x", "--business", "nobody", "--configs", str(configs)])
    assert (result.exit_code, len(result.output.strip().splitlines())) == (2, 1)
    assert "no business 'nobody'" in result.output
