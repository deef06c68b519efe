"""The pages: in words, complete, in both languages, and deaf to whatever text they show."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from evals.gate import decide
from evals.report import render_gate_report, render_rollout_report
from evals.report.speaker import Count, Speaker
from evals.report.texts import DROPS, METRIC_NAMES, PII, SIGNALS, TEXTS
from evals.report.verdict import user_means
from pipeline.clean.pii.patterns import RECOGNISERS
from pipeline.config import BusinessConfig
from pipeline.records import DropReason, EvalResult, FeedbackKind, Verdict
from pipeline.rollout.guardrails import GUARDRAILS, HARD_FAILURE_LIMIT, PLUMBING, TTFT_LIMIT
from tests.builders import a_manifest, a_rollout_report, a_scored, an_eval_item, an_eval_result

NIGHT = datetime(2026, 11, 29, 2, 14, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \"'><a href='javascript:x'>&lt;b&gt; {{ 7*7 }} \u202e"


def business(lang: str = "en", **fields: Any) -> BusinessConfig:
    values: dict[str, Any] = {
        "business": "support",
        "title": "Shop support",
        "language": lang,
        "report_language": lang,
        "timezone": "Asia/Shanghai" if lang == "zh" else "Europe/Berlin",
        "nightly": "0 2 * * *",
        "gate": {"bootstrap_samples": 200, "min_users": 12},
    }
    return BusinessConfig.model_validate(values | fields)


def result(
    before: float = 0.25, after: float = 0.75, text: str = "My order?", tail: str = "", **candidate: float
) -> EvalResult:
    items = [
        a_scored(
            an_eval_item(
                f"q{n}",
                f"u{n}",
                messages=({"role": "user", "content": f"{text} {n}{tail}"},),
                reference=f"{text} reference",
                checks=({"kind": "contains", "text": text},),
            ),
            {"golden": before},
            {"golden": after, "chrf": 0.5} | candidate,
            (f"{text} old answer {n}", f"{text} new answer {n}"),
        )
        for n in range(12)
    ]
    return an_eval_result(*items)


def page(evaluated: EvalResult, about: BusinessConfig, **fields: Any) -> str:
    values: dict[str, Any] = {"version": 7, "baseline_version": 6, "generated_at": NIGHT, "business": about}
    manifest = values.pop("manifest", None) or fields.pop("manifest", None) or a_manifest()
    return render_gate_report(decide(evaluated, about.gate), evaluated, manifest, **(values | fields))


class Reader(HTMLParser):
    """What a browser would make of a page: tags, attributes and visible text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self._parts: list[str] = []
        self.feed(html)
        self.close()
        self.text = " ".join(" ".join(self._parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self._parts.append(data)


HEADLINES = {
    ("en", Verdict.PROMOTE): "Version 7 is better and may go into service",
    ("en", Verdict.REJECT): "Version 7 stays out: it is not better",
    ("en", Verdict.INCONCLUSIVE): "Version 7 stays out: nothing is proven yet",
    ("zh", Verdict.PROMOTE): "版本 7 更好，可以上线",
    ("zh", Verdict.REJECT): "版本 7 不上线：没有变好",
    ("zh", Verdict.INCONCLUSIVE): "版本 7 暂不上线：证据还不够",
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("after", [0.75, 0.0, 0.25])
def test_the_verdict_comes_first_and_in_words(lang: str, after: float) -> None:
    evaluated, about = result(after=after), business(lang)
    verdict = decide(evaluated, about.gate).verdict
    text = Reader(page(evaluated, about)).text
    assert HEADLINES[lang, verdict] in text[:200]
    assert re.search(r"\bloss\b", text) is None


def test_all_three_verdicts_were_seen() -> None:
    config = business().gate
    assert {decide(result(after=after), config).verdict for after in (0.75, 0.0, 0.25)} == set(Verdict)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_whatever_users_wrote_is_shown_as_text(lang: str) -> None:
    evaluated = result(text=HOSTILE, tail="\ud800")
    html = page(evaluated, business(lang, title=HOSTILE))
    shown = Reader(html)
    assert {"script", "img", "a", "iframe", "link", "object"}.isdisjoint(shown.tags)
    assert [name for name, _ in shown.attributes if name.startswith("on") or name in ("href", "src")] == []
    assert "<script>alert(1)</script>" in shown.text
    assert "{{ 7*7 }}" in shown.text
    assert shown.unbalanced == []
    html.encode("utf-8")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_asks_the_network_for_nothing(lang: str) -> None:
    for html in (
        page(result(), business(lang)),
        render_rollout_report(a_rollout_report(), business=business(lang), generated_at=NIGHT),
    ):
        assert "default-src 'none'" in html
        assert re.search(r"https?:|url\(|@import|<script|<link", html) is None
        assert Reader(html).unbalanced == []


def test_sums_match_and_a_wrong_sum_is_said() -> None:
    dropped = {DropReason.NO_FEEDBACK: 70, DropReason.CONFLICT: 10}
    right = a_manifest(interactions=100, sources=20, dropped=dropped)
    assert "100 answers = 20 used + 80 left out" in Reader(page(result(), business(), manifest=right)).text
    wrong = a_manifest(interactions=100, sources=21, dropped=dropped)
    assert "These numbers do not add up" in Reader(page(result(), business(), manifest=wrong)).text


def test_side_by_side_shows_the_best_the_worst_and_others() -> None:
    scores = [0.0, 0.1, 0.2, 0.5, 0.5, 0.5, 0.5, 0.8, 0.9, 1.0]
    items = [
        a_scored(
            an_eval_item(f"q{n}", f"u{n}", messages=({"role": "user", "content": f"Question {n}?"},)),
            {"golden": 0.5},
            {"golden": score},
        )
        for n, score in enumerate(scores)
    ]
    text = Reader(page(an_eval_result(*items), business())).text
    order = [text.index(mark) for mark in ("Most improved", "Question 9?", "Question 8?", "Question 7?")]
    order += [text.index(mark) for mark in ("Most worsened", "Question 0?", "Question 1?", "Question 2?")]
    order += [text.index("Picked at random")]
    assert order == sorted(order)
    assert len(re.findall(r"Question [3456]\?", text[order[-1] :])) == 3
    assert "3 better" in text
    assert "4 the same" in text


def test_a_missed_rule_is_named() -> None:
    evaluated = result(text="orders")
    broken = evaluated.items[0].model_copy(update={"candidate_answer": "Nothing."})
    text = Reader(page(an_eval_result(broken, *evaluated.items[1:]), business())).text
    assert "Rule missed: holds “orders”" in text


def test_a_guardrail_that_fails_is_the_headline() -> None:
    text = Reader(page(result(pii_leak=1.0), business())).text
    assert "Version 7 stays out: it does harm" in text
    assert "Answers with personal data: worse than you allow" in text


def test_a_guardrail_that_only_the_baseline_breaks_says_so() -> None:
    items = list(result().items)
    items[0] = items[0].model_copy(update={"baseline": items[0].baseline | {"pii_leak": 1.0}})
    assert "Not one answer got worse here." in Reader(page(an_eval_result(*items), business())).text


def test_the_first_adapter_is_compared_with_the_base_model() -> None:
    assert "the base model" in Reader(page(result(), business(), baseline_version=None)).text


@pytest.mark.parametrize(
    ("lang", "told"), [("en", "only 12 users were heard, and 30 are needed"), ("zh", "只有 12 位用户，至少需要 30 位")]
)
def test_too_few_users_are_said(lang: str, told: str) -> None:
    assert told in Reader(page(result(), business(lang, gate={"bootstrap_samples": 200}))).text


def test_levels_count_each_user_once_like_the_difference() -> None:
    busy = [a_scored(an_eval_item(f"b{n}", "u0"), {"golden": 1.0}, {"golden": 0.0}) for n in range(87)]
    quiet = [a_scored(an_eval_item(f"q{n}", f"u{n}"), {"golden": 0.0}, {"golden": 0.5}) for n in (1, 2, 3)]
    assert user_means([*busy, *quiet], "golden") == (0.25, 0.375)


def test_endpoints_compared_by_hand_are_called_by_their_names() -> None:
    text = Reader(page(result(), business(), version=None, baseline_version=None)).text
    assert "Support-v2-bbbbbbbb is better" in text
    assert "changes nothing by itself" in text


def test_who_starts_the_canary_is_said() -> None:
    waits = business(rollout={"auto_canary": False})
    goes = business(rollout={"auto_canary": True})
    assert "waits for your engineer" in Reader(page(result(), waits)).text
    assert "It now goes to 5% of the users" in Reader(page(result(), goes)).text


def test_an_evaluation_without_items_still_makes_a_page() -> None:
    text = Reader(page(an_eval_result(), business())).text
    assert "nothing is proven yet" in text
    assert "there was nothing to score" in text


def test_times_are_the_business_own() -> None:
    assert "29 November 2026, 03:14" in page(result(), business("en"))
    assert "2026年11月29日 10:14" in page(result(), business("zh"))


@pytest.mark.parametrize(
    ("state", "en", "zh"),
    [
        ("canary", "is being tried with 10% of the users", "正面向 10% 的用户试用"),
        ("paused", "is paused", "已暂停"),
        ("done", "is in service for everyone", "已面向全部用户"),
        ("rolled_back", "was taken back", "已撤回"),
    ],
)
def test_a_rollout_says_where_it_stands(state: str, en: str, zh: str) -> None:
    for lang, words in (("en", en), ("zh", zh)):
        report = a_rollout_report(state=state, reason=HOSTILE)
        shown = Reader(render_rollout_report(report, business=business(lang), generated_at=NIGHT))
        assert words in shown.text
        assert "script" not in shown.tags
        assert shown.unbalanced == []


def test_a_rollout_page_gives_each_step_its_users_and_numbers() -> None:
    text = Reader(render_rollout_report(a_rollout_report(), business=business(), generated_at=NIGHT)).text
    assert "104 users on the new version, 97 in the comparison group" in text
    assert "5% of users" in text
    assert "1% (limit 5%)" in text
    assert "+2 points (−1 … +5)" in text


def test_a_rollout_without_a_step_explains_no_steps() -> None:
    report = a_rollout_report(state="rolled_back", steps=())
    text = Reader(render_rollout_report(report, business=business(), generated_at=NIGHT)).text
    assert "No step was compared." in text
    assert "group of the same size" not in text


def test_every_text_fills_the_same_blanks_in_both_languages() -> None:
    for key, text in TEXTS.items():
        blanks = [set(re.findall(r"{(\w+)", words)) for words in text]
        assert blanks[0] == blanks[1], key
        assert re.search(r"[\u4e00-\u9fff]", text.zh) or key == "step_time", key
        assert re.search(r"[\u4e00-\u9fff]", text.en) is None, key


def test_everything_that_can_be_counted_has_a_name() -> None:
    assert set(DROPS) == set(DropReason)
    assert set(SIGNALS) == set(FeedbackKind)
    assert {*GUARDRAILS, *PLUMBING, HARD_FAILURE_LIMIT, TTFT_LIMIT} <= set(METRIC_NAMES)
    assert {recogniser.entity for recogniser in RECOGNISERS} <= set(PII)


def test_numbers_agree_with_their_nouns() -> None:
    assert [f"{Count(n):answer/answers}" for n in (0, 1, 1204)] == ["0 answers", "1 answer", "1,204 answers"]


@pytest.mark.parametrize(
    ("metric", "value", "told"),
    [
        ("golden", 0.31, "+31 points"),
        ("golden", -0.0149, "−1.5 points"),
        ("golden", 0.01, "+1 point"),
        ("golden", 0.0, "0 points"),
        ("golden", -0.0001, "0 points"),
        ("length_ratio", 0.0, "×1"),
        ("preference_margin", -1.5, "−1.50"),
        ("something_new", 0.25, "+0.25"),
    ],
)
def test_differences_in_words(metric: str, value: float, told: str) -> None:
    assert Speaker("en", business().zone).difference(metric, value) == told
