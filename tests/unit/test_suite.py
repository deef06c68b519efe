"""A golden suite loads as written, and a wrong one says where it is wrong."""

from pathlib import Path

import pytest

from pipeline.dataset.suite import GoldenItem, dump_check, golden_prompts, golden_questions, load_suite, parse_check
from pipeline.errors import ConfigError

GOOD = """
rules:
  - {kind: ends_with, text: "Ticket: open"}
  - {kind: max_words, limit: 40}
items:
  - id: refund
    prompt: "怎么退款？"
    checks:
      - {kind: contains, text: 订单}
      - {kind: not_contains, text: sorry}
      - {kind: starts_with, text: 您好}
      - {kind: regex, pattern: '\\d+ 天'}
      - {kind: max_chars, limit: 200}
      - {kind: min_chars, limit: 2}
      - {kind: must_not_refuse}
      - {kind: no_personal_data}
      - {kind: language, language: zh}
  - id: as-json
    messages:
      - {role: system, content: Answer in JSON.}
      - {role: user, content: "Status of order 7?"}
    checks:
      - {kind: json_schema, schema: {type: object, required: [status]}}
  - {id: rules-only, prompt: Hi}
"""


def suite_file(folder: Path, text: str) -> Path:
    path = folder / "support.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_suite_is_read_as_written(tmp_path: Path) -> None:
    suite = load_suite(suite_file(tmp_path, GOOD))
    assert [check.kind for check in suite.rules] == ["ends_with", "max_words"]
    assert [item.id for item in suite.items] == ["refund", "as-json", "rules-only"]
    assert suite.items[0].messages == ({"role": "user", "content": "怎么退款？"},)
    assert len(suite.items[0].checks) == 9


def test_every_check_survives_its_json(tmp_path: Path) -> None:
    suite = load_suite(suite_file(tmp_path, GOOD))
    checks = [*suite.rules, *(check for item in suite.items for check in item.checks)]
    assert {check.kind for check in checks} >= {"json_schema", "regex", "language"}
    assert [parse_check(dump_check(check)) for check in checks] == checks
    assert dump_check(suite.items[1].checks[0])["schema"] == {"type": "object", "required": ["status"]}


def test_golden_prompts_are_found_again_in_another_width_and_punctuation(tmp_path: Path) -> None:
    prompts = golden_prompts(golden_questions(load_suite(suite_file(tmp_path, GOOD))))
    again = GoldenItem.model_validate(
        {"id": "x", "prompt": " 怎么退款? ", "checks": [{"kind": "contains", "text": "a"}]}
    )
    other = again.model_copy(update={"messages": ({"role": "user", "content": "怎么付款?"},)})
    suite = load_suite(suite_file(tmp_path, GOOD))
    assert golden_prompts(golden_questions(suite.model_copy(update={"items": (again,)}))) <= prompts
    assert not golden_prompts(golden_questions(suite.model_copy(update={"items": (other,)}))) & prompts


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("items: [", "not readable as YAML"),
        ("- a", "must hold `rules:` and `items:`"),
        ("itmes: []", "itmes: unknown key"),
        ("rules: []", "neither `rules` nor `items`: it checks nothing; add some"),
        ("rules: [{kind: containz, text: a}]", "rules.0.*containz"),
        ("rules: [{kind: contains, text: ''}]", "rules.0.contains.text"),
        ("rules: [{kind: contains}]", "rules.0.contains.text: missing"),
        ("rules: [{kind: regex, pattern: '('}]", "no valid regular expression"),
        ("rules: [{kind: json_schema, schema: {type: 7}}]", "no valid JSON schema"),
        (
            "rules: [{kind: json_schema, schema: {pattern: '('}}]",
            "rules.0.json_schema.schema.*no valid JSON schema .'.' is",
        ),
        (
            "rules: [{kind: json_schema, schema: {$ref: '#/$defs/x'}}]",
            r"no valid JSON schema \(\$ref '#/\$defs/x' is now",
        ),
        (
            "rules: [{kind: json_schema, schema: {properties: {a: {patternProperties: {'(a+)+$': {}}}}}}]",
            "rules.0.json_schema.schema.*`patternProperties` may search an answer's keys without end; name them",
        ),
        ("rules: [{kind: json_schema, schema: {$ref: 'http://x/y'}}]", r"\$ref 'http://x/y' is nowhere in it"),
        (
            "items: [{id: a, prompt: Hi, checks: [{kind: regex, pattern: '['}]}]",
            r"items.0.checks.0.*\(item 'a'\).*regular",
        ),
        ("rules: [{kind: language, language: fr}]", "'fr' is impossible"),
        ("rules: [{kind: max_chars, limit: 0}]", "0 is impossible"),
        ("items: [{id: a, prompt: Hi}]", "item 'a' has no checks and the suite has no rules"),
        ("items: [{id: a, prompt: Hi, messages: []}]", "item 'a'.*both `prompt` and `messages`"),
        ("items: [{id: a, messages: [{role: assistant, content: x}]}]", "item 'a'.*must end with.*`user`"),
        (
            "rules: [{kind: max_chars, limit: 9}]\nitems: [{id: a, prompt: Hi}, {id: a, prompt: Ho}]",
            "item ids stand twice: a",
        ),
    ],
)
def test_a_wrong_suite_says_where_it_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=rf"support\.yaml: .*{complaint}"):
        load_suite(suite_file(tmp_path, text))


def test_an_absent_suite_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: no such file; write it"):
        load_suite(tmp_path / "absent.yaml")
