"""What a business calls its own is left alone in any spelling; everything else still goes; a bad pattern is named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.clean.pii import PatternDetector, PiiDetector, Rules, Span, Texts, find_all, scrub_conversation
from pipeline.clean.pii.placeholders import Scrubbed, ScrubFailure
from pipeline.clean.pii.recognisers import RECOGNISERS
from pipeline.clean.pii.spans import NAMES
from pipeline.clean.pii_config import PiiConfig, ScoredEntity
from pipeline.clean.steps import clean_records
from pipeline.config import load_business
from pipeline.errors import ConfigError, DataError
from pipeline.records import DropReason
from tests.builders import a_rated, a_signal, an_interaction

HOTEL = PiiConfig(
    allow=("0571-88886666", "service@harbour.example", "海港酒店", "Harbour Hotel", "西湖路88号"),
    allow_patterns=("13800[0-9]{6}",),
    recognisers=({"name": "member-card", "pattern": "VIP[0-9]{8}", "entity": "MEMBER_ID"},),  # type: ignore[arg-type]
)
RULES = Rules(HOTEL, "zh")


def names(*known: str, rules: Rules = RULES) -> PiiDetector:
    """A detector that knows a few names, as a model would, and all patterns."""
    patterns = PatternDetector(rules)

    def detect(asked: Sequence[str]) -> list[list[Span]]:
        found = patterns(asked)
        for text, spans in zip(asked, found, strict=True):
            spans += rules.spare(
                text, [Span(text.index(n), text.index(n) + len(n), "PERSON") for n in known if n in text]
            )
        return found

    return detect


def scrubbed(text: str, rules: Rules = RULES, detector: PiiDetector | None = None) -> str:
    turns = [Texts(({"role": "user", "content": text},), (), {"role": "assistant", "content": ""}, ())]
    findings = find_all(turns, detector or PatternDetector(rules), frozenset())
    (result,) = scrub_conversation(turns, findings, frozenset(), rules)
    assert isinstance(result, Scrubbed), result
    return str(result.texts.messages[0]["content"])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("请打0571-88886666或13912345678", "请打0571-88886666或<PHONE_1>"),
        ("+86 571 8888 6666, (0571)88886666", "+86 571 8888 6666, (0571)88886666"),
        ("86 571 88886666 或 0086 571 8888 6666", "86 571 88886666 或 0086 571 8888 6666"),
        ("+852 571 8888 6666", "<PHONE_1>"),
        ("０５７１－８８８８６６６６", "０５７１－８８８８６６６６"),
        ("0571\u200b-88886666", "0571\u200b-88886666"),
        ("0571-88886666 0571-88886667", "0571-88886666 <PHONE_1>"),
        ('{"tel": "057188886666", "phone": 057188886667}', '{"tel": "057188886666", "phone": "<PHONE_1>"}'),
        ("service@harbour.example / customer.service@harbour.example", "service@harbour.example / <EMAIL_1>"),
        ("SERVICE@Harbour.Example.", "SERVICE@Harbour.Example."),
        ("service@harbour.example.cn", "<EMAIL_1>"),
        ("寄到杭州市西湖路 88 号1203室", "寄到杭州市西湖路 88 号1203室"),
        ("寄到杭州市西湖路88号1203室", "寄到<ADDRESS_1>西湖路88号<ADDRESS_2>"),
        ("13800123456和13801123456", "13800123456和<PHONE_1>"),
        ("我的VIP12345678，不是VIP123", "我的<MEMBER_ID_1>，不是VIP123"),
        ("ＶＩＰ12345678", "<MEMBER_ID_1>"),
        ("<MEMBER_ID_1> and %3CPHONE_2%3E", "<MEMBER_ID_1> and %3CPHONE_2%3E"),
    ],
)
def test_what_is_left_alone_and_what_goes(text: str, left: str) -> None:
    assert scrubbed(text) == left


def test_a_name_that_holds_an_allowed_one_is_cut_around_it() -> None:
    assert scrubbed("Harbour Hotel and Harbour Hotel Ann", detector=names("Harbour Hotel Ann")) == (
        "Harbour Hotel and Harbour Hotel <PERSON_1>"
    )


def test_a_name_found_once_does_not_reach_into_an_allowed_one() -> None:
    assert scrubbed("海港说：海港酒店", detector=names("海港说")) == "<PERSON_1>：海港酒店"
    assert scrubbed("Mr Harbour of the Harbour Hotel") == "Mr <PERSON_1> of the Harbour Hotel"


def test_an_allowed_number_is_not_the_middle_of_a_longer_one() -> None:
    rules = Rules(PiiConfig(allow=("91234",)), "zh")
    assert scrubbed("139 1234 5678, 13912345678, 139-1234-5678", rules) == "<PHONE_1>, <PHONE_1>, <PHONE_1>"
    assert scrubbed("phone: 139 91234 678", rules) == "phone: <PHONE_1>"


def test_a_secret_that_holds_an_allowed_value_goes_whole() -> None:
    assert scrubbed("password: 0571-88886666!x") == "password: <SECRET_1>"


def test_a_pattern_with_a_group_gives_its_value_and_greedy_ones_keep_placeholders() -> None:
    own = [
        {"name": "room", "pattern": "房间(?P<value>[0-9]{4})", "entity": "ROOM"},
        {"name": "all", "pattern": "备注.*", "entity": "NOTE"},
    ]
    rules = Rules(PiiConfig.model_validate({"recognisers": own}), "zh")
    assert scrubbed("房间1203", rules) == "房间<ROOM_1>"
    assert scrubbed("备注<PHONE_1>外面", rules) == "<NOTE_1><PHONE_1><NOTE_2>"


SPELLINGS = st.builds(
    lambda area, parts, width: width(area + parts),
    st.sampled_from(["0571", "0571-", "0571 ", "(0571)", "(0571) ", "+86 571 ", "+86-571-", "0086 571 ", "+86571"]),
    st.sampled_from(["88886666", "8888 6666", "8888-6666"]),
    st.sampled_from([str, lambda text: text.translate({i: i + 0xFEE0 for i in range(0x21, 0x7F)})]),
)
PLANTED = st.one_of(
    st.from_regex(r"1[39][1-9][0-9]{8}", fullmatch=True).filter(lambda number: not number.startswith("13800")),
    st.sampled_from(["a.b@example.com", "4111 1111 1111 1111", "0571-88886667", "+86 571 8888 6667", "VIP12345678"]),
    st.sampled_from(["xservice@harbour.example", "service@harbour.example.org", "0571-888866660"]),
)
AROUND = st.text("酒店前台打电话给我 的说，。\nabc", min_size=1, max_size=8).map("说{}说".format)


@given(AROUND, st.lists(st.tuples(SPELLINGS, AROUND, PLANTED, AROUND), min_size=1, max_size=3))
def test_an_allowed_value_is_never_replaced_and_everything_else_still_is(
    before: str, parts: list[tuple[str, str, str, str]]
) -> None:
    left = scrubbed(before + "".join("".join(part) for part in parts))
    for own, _, other, _ in parts:
        assert own in left
        assert other == "0571-888866660" or other not in left


@given(st.text("0123456789-+() 转VIP@.abs海港酒店西湖路号<>_\n", max_size=60))
def test_any_text_is_scrubbed_to_its_end_and_again_to_the_same(text: str) -> None:
    once = scrubbed(text)
    assert scrubbed(once) == once


@given(
    st.lists(st.sampled_from(["0571-88886666", "13912345678", "x", "酒店", " ", "a@b.com"]), max_size=10).map("".join)
)
def test_without_rules_nothing_is_different(text: str) -> None:
    assert PatternDetector()([text]) == PatternDetector(Rules(PiiConfig(), "zh"))([text])


def a_slow_pattern() -> Rules:
    """One that gets through the probes and is slow on what nobody thought of."""
    return Rules(PiiConfig(allow_patterns=("x",)).model_copy(update={"recognisers": (SLOW,)}), "en")


SLOW = (
    PiiConfig(recognisers=({"name": "slow", "pattern": "q", "entity": "X"},))
    .recognisers[0]
    .model_copy(  # type: ignore[arg-type]
        update={"pattern": r"(?:\w|\w)+\$"}
    )
)
TRAP = "q" * 40 + "!$"


def test_a_text_that_a_pattern_does_not_come_to_an_end_on_is_dropped_and_no_other() -> None:
    rules = a_slow_pattern()
    rated = [a_rated(an_interaction(i, prompt=p), a_signal()) for i, p in (("i1", TRAP), ("i2", "How?"))]
    records, dropped = clean_records(rated, PatternDetector(rules), frozenset(), rules)
    assert [record.interaction_id for record in records] == ["i2"]
    assert [(d.interaction_id, d.reason) for d in dropped] == [("i1", DropReason.SCRUB_FAILED)]


def test_a_pattern_that_is_slow_on_many_texts_ends_the_night(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.clean.pii.rules._SECONDS", 0.01)
    rules = a_slow_pattern()
    turns = [Texts(({"role": "user", "content": f"{TRAP} {n}"},), (), {"role": "assistant"}, ()) for n in range(30)]
    with pytest.raises(DataError, match="'slow': took more than"):
        find_all(turns, PatternDetector(rules), frozenset())


def test_slow_while_replacing_fails_the_record_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.clean.pii.rules._SECONDS", 0.01)
    turns = [Texts(({"role": "user", "content": f"13912345678 {TRAP}"},), (), {"role": "assistant", "content": ""}, ())]
    findings = find_all(turns, PatternDetector(), frozenset())
    (result,) = scrub_conversation(turns, findings, frozenset(), a_slow_pattern())
    assert isinstance(result, ScrubFailure)


@pytest.mark.parametrize(
    ("pii", "key", "words"),
    [
        ({"allow": [95588]}, "pii.allow.0", "put it in quotes"),
        ({"allow": ["a1"]}, "pii.allow.0", "too short"),
        ({"allow_patterns": ["[0-9"]}, "pii.allow_patterns.0", "no valid regular expression"),
        ({"allow_patterns": ["a*"]}, "pii.allow_patterns.0", "make a part of it obligatory"),
        ({"allow_patterns": [r"(\w|\w)+$"]}, "pii.allow_patterns.0", "does not come to an end"),
        ({"recognisers": [{"name": "x", "pattern": "x(", "entity": "X"}]}, "pii.recognisers.0.pattern", "'x('"),
        ({"recognisers": [{"name": "x", "pattern": "x", "entity": "x1"}]}, "pii.recognisers.0.entity", "'x1'"),
        (
            {"recognisers": [{"name": "x", "pattern": "x", "entity": "X"}] * 2},
            "pii",
            "two recognisers have the name 'x'",
        ),
        ({"thresholds": {"CARD": 0.5}}, "pii.thresholds.CARD", "'CARD'"),
        ({"thresholds": {"PERSON": 5}}, "pii.thresholds.PERSON", "5"),
        ({"alow": []}, "pii.alow", "unknown key"),
    ],
)
def test_a_mistake_is_one_line_with_file_key_value_and_mend(
    tmp_path: Path, pii: dict[str, Any], key: str, words: str
) -> None:
    import yaml

    good = yaml.safe_load(Path("configs/businesses/kefu.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "kefu.yaml"
    path.write_text(yaml.safe_dump(good | {"pii": pii}, allow_unicode=True), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_business(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: {key}")
    assert words in line
    assert len(line.splitlines()) == 1


def test_only_kinds_with_a_score_have_a_threshold() -> None:
    with pytest.raises(ValidationError):
        PiiConfig(thresholds={"EMAIL": 0.5})  # type: ignore[dict-item]
    assert set(get_args(ScoredEntity)) >= NAMES
    assert {"EMAIL", "ID_CARD", "CARD", "SECRET"} <= {r.entity for r in RECOGNISERS} - set(get_args(ScoredEntity))
