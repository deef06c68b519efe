"""The pages: in words, complete, in both languages, and deaf to whatever text they show."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.gate import decide
from evals.metrics import METRICS
from evals.report import (
    INDEX,
    Lineage,
    keep_canary,
    read_entries,
    render_gate_report,
    render_index,
    render_night_report,
    render_rollout_report,
    with_canary,
)
from evals.report.answers import samples
from evals.report.difference import differing
from evals.report.entry import Entry
from evals.report.erased import without_examples
from evals.report.plot import Strip, strip
from evals.report.speaker import Count, Speaker
from evals.report.texts import DROPS, METRIC_NAMES, PII, SIGNALS, TEXTS
from evals.report.verdict import user_means
from pipeline.clean.pii.patterns import RECOGNISERS
from pipeline.config import BusinessConfig
from pipeline.records import DropReason, EvalResult, FeedbackKind, JudgeDoubt, Judging, RolloutReport, Verdict
from pipeline.rollout.guardrails import GUARDRAILS, HARD_FAILURE_LIMIT, PLUMBING, TTFT_LIMIT
from tests.builders import a_manifest, a_rollout_report, a_scored, an_adapter, an_eval_item, an_eval_result

NIGHT = datetime(2026, 11, 29, 2, 14, tzinfo=UTC)
LINEAGE = Lineage(an_adapter(), ("gpu-0", "gpu-1"))
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
    """What a browser would make of a page: tags, attributes and visible text, which leaves the other language out."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self._hidden_at: int | None = None
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
        if ("hidden", None) in attrs:
            self._hidden_at = len(self.open)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if self._hidden_at == len(self.open):
            self._hidden_at = None
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden_at is None and self.open[-1:] not in (["style"], ["script"], ["title"]):
            self._parts.append(data)


def in_language(html: str, lang: str) -> str:
    """The page as it is shown when its address ends in the language."""
    found = re.sub(r'(<div class="page" [^>]*?) hidden>', r"\1>", html)
    return re.sub(rf'(<div class="page" id="(?!{lang}")[^>]*)>', r"\1 hidden>", found)


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


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_holds_both_languages_and_shows_the_business_s_own(lang: str) -> None:
    html = page(result(), business(lang))
    other = "zh" if lang == "en" else "en"
    assert f'<html lang="{"zh-CN" if lang == "zh" else "en"}">' in html
    assert HEADLINES[lang, Verdict.PROMOTE] in Reader(html).text
    assert HEADLINES[other, Verdict.PROMOTE] not in Reader(html).text
    assert HEADLINES[other, Verdict.PROMOTE] in Reader(in_language(html, other)).text
    assert '<div class="page" id="zh" lang="zh-CN"' in html
    assert '<div class="page" id="en" lang="en"' in html


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_each_language_says_nothing_in_the_other_one(lang: str) -> None:
    """Answers, titles and the names of languages aside."""
    told = Reader(in_language(page(result(), business("en"), lineage=LINEAGE), lang)).text.replace("中文", "")
    chinese = len(re.findall(r"[\u4e00-\u9fff]", told))
    assert (chinese == 0) if lang == "en" else (chinese > 800)


def test_all_three_verdicts_were_seen() -> None:
    config = business().gate
    assert {decide(result(after=after), config).verdict for after in (0.75, 0.0, 0.25)} == set(Verdict)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_whatever_users_wrote_is_shown_as_text(lang: str) -> None:
    evaluated = result(text=HOSTILE, tail="\ud800")
    html = page(evaluated, business(lang, title=HOSTILE))
    shown = Reader(html)
    assert {"img", "iframe", "link", "object"}.isdisjoint(shown.tags)
    assert shown.tags.count("script") == 1  # our own
    assert html.count("alert(1)") == html.count("&gt;alert(1)&lt;") > 0
    links = [value for name, value in shown.attributes if name.startswith("on") or name in ("href", "src")]
    assert set(links) == {"#en", "#zh", "index.html#en", "index.html#zh"}
    assert "<script>alert(1)</script>" in shown.text
    assert "{{ 7*7 }}" in shown.text
    assert shown.unbalanced == []
    html.encode("utf-8")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_asks_the_network_for_nothing(lang: str) -> None:
    for html in (
        page(result(), business(lang)),
        render_rollout_report(a_rollout_report(), business=business(lang), generated_at=NIGHT),
        render_index([an_entry()], business=business(lang), generated_at=NIGHT),
    ):
        assert "default-src 'none'" in html
        assert re.search(r"https?:|url\(|@import|<script |<link|fetch|XMLHttp", html) is None
        assert Reader(html).unbalanced == []


def test_sums_match_and_a_wrong_sum_is_said() -> None:
    dropped = {DropReason.NO_FEEDBACK: 70, DropReason.CONFLICT: 10}
    right = Reader(page(result(), business(), manifest=a_manifest(interactions=100, sources=20, dropped=dropped))).text
    assert "100 answers = 20 used + 80 left out" in right
    assert "Used 20 Nobody said anything about it 70 Users disagreed 10 Together as many as there were 100" in right
    wrong = Reader(page(result(), business(), manifest=a_manifest(interactions=100, sources=21, dropped=dropped))).text
    assert "These numbers do not add up" in wrong
    assert "Together but there were 100 101" in wrong


def test_what_users_said_is_counted_with_praise_blame_and_their_reasons() -> None:
    manifest = a_manifest(
        signal_counts={"thumb": 9}, praise={"thumb": 7}, blame={"thumb": 2}, reasons={HOSTILE: ("u1", "u2", "u3")}
    )
    text = Reader(page(result(), business(), manifest=manifest)).text
    assert "Thumbs up or down 7 good · 2 bad 9" in text
    assert f"{' '.join(HOSTILE.split())} 3" in text


def test_answers_that_users_turned_down_are_shown_beside_what_they_wanted() -> None:
    item = an_eval_item("q1", "u1", reference="Within five days.", rejected="Within nine days.")
    html = page(an_eval_result(a_scored(item, {"golden": 0.0}, {"golden": 1.0})), business())
    assert "Within <mark>nine</mark> days." in html
    assert "Within <mark>five</mark> days." in html


SCORES = [0.0, 0.1, 0.2, 0.5, 0.5, 0.5, 0.5, 0.8, 0.9, 1.0]


def scored_from(scores: list[float], question: str = "Question {n}?") -> EvalResult:
    return an_eval_result(
        *(
            a_scored(
                an_eval_item(f"q{n}", f"u{n}", messages=({"role": "user", "content": question.format(n=n)},)),
                {"golden": 0.5},
                {"golden": score},
            )
            for n, score in enumerate(scores)
        )
    )


def test_side_by_side_shows_the_best_the_worst_and_others_by_how_much_they_differ() -> None:
    text = Reader(page(scored_from(SCORES), business())).text
    told = text[text.index("Before and after") : text.index("Each check")]
    asked = [int(number) for number in re.findall(r"Question (\d)\?", told)]
    assert set(asked) > {0, 1, 2, 7, 8, 9}
    assert len(asked) == 9
    gains = [abs(SCORES[number] - 0.5) for number in asked]
    assert gains == sorted(gains, reverse=True)
    assert "3 better" in told
    assert "4 the same" in told


def test_the_same_question_is_shown_once() -> None:
    text = Reader(page(scored_from(SCORES, "Always this?"), business())).text
    assert text.count("Always this?") == 1


def test_which_answer_is_new_is_hidden_behind_a_coin_that_the_seed_decides() -> None:
    items = result().items
    primary = decide(result(), business().gate).checks[0]
    say = Speaker("en", business().zone)
    sides = ("version 6", "version 7")
    firsts = []
    for seed in range(40):
        shown = samples(items, primary, seed, sides, say)
        assert shown == samples(items, primary, seed, sides, say)
        for sample in shown:
            versions = [side.version for side in sample.unveiled]
            texts = ["".join(span.text for span in answer.spans) for answer in sample.answers]
            assert ["new" if "new answer" in text else "old" for text in texts] == [
                "new" if version == "version 7" else "old" for version in versions
            ]
            firsts.append(versions[0] == "version 7")
    assert 0.3 < sum(firsts) / len(firsts) < 0.7


def test_an_answer_of_a_hundred_thousand_characters_is_cut_and_says_so() -> None:
    item = an_eval_item("q1", "u1", messages=({"role": "user", "content": "?" * 5000},), reference="r" * 9000)
    long = a_scored(item, {"golden": 0.0}, {"golden": 1.0}, ("a" * 100_000, "b" * 100_000))
    html = page(an_eval_result(long), business())
    assert len(html) < 100_000
    assert "98,000 more characters" in html


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
    assert "Not one answer got worse, " in Reader(page(an_eval_result(*items), business())).text


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
        assert shown.tags.count("script") == 1  # our own
        assert shown.unbalanced == []


def test_a_rollout_page_gives_each_step_its_users_and_numbers() -> None:
    text = Reader(render_rollout_report(a_rollout_report(), business=business(), generated_at=NIGHT)).text
    assert "104 users on the new version, 97 in the comparison group" in text
    assert "5% of users" in text
    assert "1% (limit 5%)" in text
    assert "+2 points (−1 … +5)" in text


def test_why_a_rollout_stands_where_it_stands_is_said_in_the_reader_s_language() -> None:
    waiting = Reader(render_rollout_report(a_rollout_report(), business=business("zh"), generated_at=NIGHT)).text
    assert "本步骤需要 200 位用户使用新版本，目前 104 位。" in waiting
    report = a_rollout_report(state="rolled_back", reason="complaints")
    failing = report.steps[-1].checks[1].model_copy(update={"passed": False})
    worse = report.model_copy(
        update={"steps": (report.steps[0], report.steps[1].model_copy(update={"checks": (failing,)}))}
    )
    told = Reader(render_rollout_report(worse, business=business("zh"), generated_at=NIGHT)).text
    assert "差评：超出允许范围，且不是偶然。" in told
    by_a_person = Reader(render_rollout_report(report, business=business("zh"), generated_at=NIGHT)).text
    assert "Complaints" in by_a_person[: by_a_person.index("逐步扩大")]


def test_a_decision_s_page_follows_the_rollout_of_its_version() -> None:
    html = page(result(), business())
    assert "the trial had not begun" in Reader(html).text
    followed = with_canary(html, a_rollout_report(reason=HOSTILE), business())
    for lang, words in (("en", "is being tried with 10% of the users"), ("zh", "正面向 10% 的用户试用")):
        shown = Reader(in_language(followed, lang))
        assert words in shown.text
        assert shown.unbalanced == []
    assert "the trial had not begun" not in followed
    ended = with_canary(followed, a_rollout_report(state="rolled_back"), business())
    assert "is being tried" not in ended
    assert "Version 7 was taken back" in ended
    assert with_canary(ended, a_rollout_report(state="rolled_back"), business()) == ended
    assert with_canary("<p>no place</p>", a_rollout_report(), business()) == "<p>no place</p>"


def test_a_decision_s_page_made_again_keeps_what_it_told_of_the_rollout() -> None:
    html = page(result(), business())
    followed = with_canary(html, a_rollout_report(reason=HOSTILE), business())
    assert keep_canary(html, followed) == followed
    assert keep_canary(html, html) == keep_canary(html, "<p>no place</p>") == html
    assert keep_canary("<p>no place</p>", followed) == "<p>no place</p>"


def test_examples_leave_the_page_in_both_languages_and_the_figures_stay() -> None:
    item = an_eval_item(
        "q1", "u1", messages=({"role": "user", "content": "QZX?"},), reference="QZX a", rejected="QZX b"
    )
    html = page(an_eval_result(a_scored(item, {"golden": 0.0}, {"golden": 1.0}, ("QZX c", "QZX d"))), business())
    assert html.count("QZX") > 8
    cleaned = without_examples(html)
    assert "QZX" not in cleaned
    assert without_examples(cleaned) == cleaned
    for lang, told in (("en", "had their data erased"), ("zh", "要求删除了其数据")):
        shown = Reader(in_language(cleaned, lang))
        assert shown.text.count(told) == 2
        assert shown.unbalanced == []
    assert "2 answers = 1 used + 1 left out" in Reader(cleaned).text


def an_entry(version: int = 7, outcome: str = "promote", kind: str = "decision", **fields: Any) -> Entry:
    values: dict[str, Any] = {"kind": kind, "version": version, "at": NIGHT, "outcome": outcome}
    measured = {"metric": "golden", "estimate": 0.2, "low": 0.1, "high": 0.3} if kind == "decision" else {}
    return Entry.model_validate(values | measured | fields)


def test_the_overview_lists_what_stands_in_the_folder_newest_first(tmp_path: Path) -> None:
    older = page(result(after=0.0), business(), version=6, generated_at=NIGHT - timedelta(days=1))
    (tmp_path / "decision-v6.html").write_text(older, encoding="utf-8")
    (tmp_path / "decision-v7.html").write_text(page(result(), business()), encoding="utf-8")
    rollout = render_rollout_report(a_rollout_report(), business=business(), generated_at=NIGHT + timedelta(hours=1))
    (tmp_path / "rollout-v7.html").write_text(rollout, encoding="utf-8")
    (tmp_path / "copy of decision-v7.html").write_text(page(result(), business()), encoding="utf-8")
    (tmp_path / "notes.html").write_text("<p>by hand</p>", encoding="utf-8")
    entries = read_entries(tmp_path)
    assert [entry.file for entry in entries] == ["rollout-v7.html", "decision-v7.html", "decision-v6.html"]
    html = render_index(entries, business=business(), generated_at=NIGHT)
    (tmp_path / INDEX).write_text(html, encoding="utf-8")
    assert read_entries(tmp_path) == entries
    links = {value for name, value in Reader(html).attributes if name == "href"} - {"#en", "#zh"}
    assert {link.split("#")[0] for link in links if link} == {entry.file for entry in entries}
    text = Reader(html).text
    assert "Version 7 is on trial with users" in text
    assert "2 decisions so far; 1 of them found a version fit for service." in text


def a_night(days: int) -> tuple[str, str]:
    """Name and page of a night, so many days after `NIGHT`, in which 12 examples were too few."""
    about = business(dataset={"min_rows": 50, "window_days": 14})
    manifest = a_manifest(rows={"train": {"sft": 12}}, reasons={"the users' own words": ("u1", "u2", "u3")})
    return render_night_report(manifest, business=about, night=NIGHT + timedelta(days=days))


def test_nights_that_trained_nothing_stand_in_the_overview_and_say_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "decision-v7.html").write_text(page(result(), business()), encoding="utf-8")
    for days in (-1, 1, 2, 3):
        name, html = a_night(days)
        (tmp_path / name).write_text(html, encoding="utf-8")
    for lang, words in (("en", "Nothing was trained: 12 of 50 examples needed"), ("zh", "需要 50 条样本，只有 12 条")):
        shown = Reader(in_language(html, lang))
        assert words in shown.text
        assert shown.unbalanced == []
    assert "2 answers = 1 used + 1 left out" in Reader(html).text
    assert "looks at the last 14 days again" in Reader(html).text
    assert "own words" not in html
    entries = read_entries(tmp_path)
    overview = render_index(entries, business=business(), generated_at=NIGHT)
    assert [entry.kind for entry in entries] == ["night", "night", "night", "decision", "night"]
    text = Reader(in_language(overview, "en")).text
    assert text.count("Nothing was trained: 12 of 50 examples needed") == 3  # the headline, and two lines
    assert "like 2 nights before it" in text
    assert f'href="{entries[0].file}#en"' in overview


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_outcome_has_its_line(lang: str) -> None:
    entries = [an_entry(9, verdict.value) for verdict in Verdict]
    states = get_args(RolloutReport.model_fields["state"].annotation)
    entries += [an_entry(8, state, "rollout") for state in states]
    text = Reader(render_index(entries, business=business(lang), generated_at=NIGHT)).text
    assert text.count("8") >= len(states)


def test_a_trend_of_many_nights_names_some_and_says_what_is_left_out() -> None:
    html = render_index([an_entry(n) for n in range(45, 0, -1)], business=business(), generated_at=NIGHT)
    labels = re.findall(r"<span>(\d*)</span>", html.split('<div class="nights"')[1].split("</div>")[0])
    assert len(labels) == 30
    assert [label for label in labels if label] == [str(n) for n in range(18, 46, 3)]
    assert "The newest 30 are drawn." in Reader(html).text
    assert "15 decisions without" not in Reader(html).text


def test_an_overview_without_pages_says_so(tmp_path: Path) -> None:
    assert read_entries(tmp_path / "absent") == []
    html = render_index([], business=business(), generated_at=NIGHT)
    assert "Nothing has been decided yet" in Reader(html).text
    assert "<svg role" not in html


def test_the_trend_holds_every_dot_and_says_what_it_cannot_draw() -> None:
    entries = [an_entry(9), an_entry(8, low=-5.0, high=5.0), an_entry(7, metric="chrf"), an_entry(6, estimate=None)]
    html = render_index(entries, business=business(), generated_at=NIGHT)
    positions = [float(y) for y in re.findall(r'c[xy]="([\d.]+)%"', html)]
    assert len(positions) == 2 * 2 * 2
    assert all(0 <= y <= 100 for y in positions)
    text = Reader(html).text
    assert "Longer than the plot: the lines of versions 8." in text
    assert "2 decisions without such a measurement not drawn." in text


@given(st.lists(st.tuples(*[st.floats(-1, 1)] * 3).map(sorted), min_size=1, max_size=40))
def test_no_mark_of_a_trend_lies_outside(bounds: list[list[float]]) -> None:
    entries = [an_entry(n + 1, low=low, estimate=dot, high=high) for n, (low, dot, high) in enumerate(bounds)]
    html = render_index(entries, business=business(), generated_at=NIGHT)
    assert all(0 <= float(at) <= 100 for at in re.findall(r'[xy]\d?="(-?[\d.e-]+)%"', html))


@given(st.text(max_size=60), st.text(max_size=60))
def test_marked_texts_are_the_texts_and_equal_ones_have_no_mark(left: str, right: str) -> None:
    found = differing(left, right)
    assert "".join(span.text for span in found.left) == left
    assert "".join(span.text for span in found.right) == right
    assert 0 <= found.in_common <= 1
    same = differing(left, left)
    assert (same.in_common, any(span.marked for span in same.left + same.right)) == (1.0, False)


@pytest.mark.parametrize(
    ("left", "right", "marked"),
    [
        ("It takes 5 to 7 days.", "It takes 3 to 7 days.", (["5"], ["3"])),
        ("48小时内发货，请放心", "24小时内发货，请放心", (["48"], ["24"])),
        ("可以机洗。", "不可以机洗。", ([], ["不"])),
        ("Yes.", "It keeps off light rain for an hour.", ([], [])),
    ],
)
def test_the_words_that_differ_are_marked(left: str, right: str, marked: tuple[list[str], list[str]]) -> None:
    found = differing(left, right)
    assert tuple([span.text for span in side if span.marked] for side in (found.left, found.right)) == marked


def test_a_threshold_lies_where_the_check_s_verdict_changes() -> None:
    say = Speaker("en", business().zone)
    check = decide(result(), business().gate).checks[0]

    def plotted(direction_of: str, **fields: Any) -> Strip:
        found = strip(check.model_copy(update={"metric": direction_of} | fields), say, goal_better=True)
        assert found is not None
        return found

    better = plotted("golden", low=0.1, estimate=0.2, high=0.3, margin=0.1)
    assert better.edge == better.low
    harm = plotted("refusal", role="guardrail", low=0.0, estimate=0.01, high=0.02, margin=0.02)
    assert (harm.edge, harm.high) == (harm.low, harm.zero)
    nothing_asked = plotted("golden", role="information", low=-0.1, estimate=0.0, high=0.1)
    assert nothing_asked.edge is None


def test_what_could_not_be_shown_is_said() -> None:
    text = Reader(page(result(after=0.25), business())).text
    told = text[text.index("What could not be shown") :]
    assert "Empty answers, " in told
    assert "Both did the same throughout." in told


def a_judging(**fields: Any) -> Judging:
    values: dict[str, Any] = {
        "judge": "judge-9b at http://judge.internal",
        "answers": {"wins": 40, "losses": 11, "ties": 20, "order_disagreements": 8, "unparsable": 3},
        "human_pairs": {"wins": 50, "losses": 20, "ties": 5},
        "human_users": 31,
        "agreement": 0.7,
        "agreement_low": 0.61,
        "agreement_high": 0.78,
        "prompt_tokens": 90_000,
        "completion_tokens": 1_000,
        "cost": 0.31,
        "currency": "USD",
        "budget": 2.0,
        "problem": None,
    }
    return Judging.model_validate(values | fields)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("doubt", [None, *JudgeDoubt])
def test_a_judge_s_word_is_told_with_what_it_is_worth(lang: str, doubt: JudgeDoubt | None) -> None:
    evaluated, about = result(), business(lang)
    decision = decide(evaluated, about.gate)
    judged = decision.model_copy(update={"judging": a_judging(), "judge_doubts": (doubt,) if doubt else ()})
    html = render_gate_report(
        judged, evaluated, a_manifest(), business=about, version=7, baseline_version=6, generated_at=NIGHT
    )
    text = Reader(html).text
    assert "70%" in text
    assert "0.31" in text
    assert ("does not count" in text or "不计入结论" in text) is (doubt is not None)
    unmeasured = judged.model_copy(
        update={"judging": a_judging(agreement=None, agreement_low=None, agreement_high=None, budget=None)}
    )
    render_gate_report(
        unmeasured, evaluated, a_manifest(), business=about, version=7, baseline_version=6, generated_at=NIGHT
    )


def test_nothing_is_said_of_a_judge_that_nobody_asked() -> None:
    assert "What the judge said" not in page(result(), business())


def test_a_ratio_of_lengths_is_explained() -> None:
    assert "×2 means twice or half as long" in Reader(page(result(), business())).text


def test_lineage_names_snapshot_recipe_adapter_and_engine() -> None:
    text = Reader(page(result(), business(), lineage=LINEAGE)).text
    for words in ("a" * 64, LINEAGE.adapter.sha256, "learning_rate", "gpu-0, gpu-1", "goes on from the base model"):
        assert words in text


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
    assert set(METRICS) <= set(METRIC_NAMES)
    for name, metric in METRIC_NAMES.items():
        assert re.search(r"[\u4e00-\u9fff]", metric.zh), name
        assert metric.en, name
        assert re.search(r"[\u4e00-\u9fff]", metric.en) is None, name
    for texts in (SIGNALS, DROPS, PII):
        assert all(text.en and text.zh for text in texts.values())
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
