"""The pages in a real browser: they fit a phone, can be read, ask for nothing, and change their language."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.gate import decide
from evals.report import INDEX, read_entries, render_gate_report, render_index, render_rollout_report, with_canary
from pipeline.config import BusinessConfig
from tests.browser import ARGUMENTS, CHROMIUM, CUT_OFF, PALE
from tests.builders import NOON, a_manifest, a_rollout_report, a_scored, an_eval_item, an_eval_result

pytestmark = pytest.mark.browser

UNBROKEN = "https://example.org/" + "a" * 300
"""Words that no line can break."""
HEADINGS = {
    ("decision-v7.html", "en"): "Version 7 is better and may go into service",
    ("decision-v7.html", "zh"): "版本 7 更好，可以上线",
    ("rollout-v7.html", "en"): "Version 7 is being tried with 10% of the users",
    ("rollout-v7.html", "zh"): "版本 7 正面向 10% 的用户试用",
    (INDEX, "en"): "Version 7 is on trial with users",
    (INDEX, "zh"): "版本 7 正在试用",
}
NAMES = ("decision-v7.html", "rollout-v7.html", INDEX)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is absent (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        yield chromium
        chromium.close()


def business(lang: str) -> BusinessConfig:
    return BusinessConfig.model_validate(
        {
            "business": "support",
            "title": "Shop support",
            "language": lang,
            "report_language": lang,
            "timezone": "UTC",
            "nightly": "0 2 * * *",
            "gate": {"bootstrap_samples": 200},
        }
    )


def gate_page(lang: str) -> str:
    about = business(lang)
    items = [
        a_scored(
            an_eval_item(
                f"q{n}",
                f"u{n}",
                messages=({"role": "system", "content": UNBROKEN}, {"role": "user", "content": f"{n} {UNBROKEN}"}),
                reference=UNBROKEN,
                rejected=f"In {n} days, says {UNBROKEN}.",
                checks=({"kind": "regex", "pattern": "x" * 120},),
            ),
            {"golden": 0.2},
            {"golden": 0.9},
            (f"It takes {n} days. {UNBROKEN}", f"It takes {n + 1} days. {UNBROKEN} {'9' * 500}"),
        )
        for n in range(30)
    ]
    result = an_eval_result(*items)
    page = render_gate_report(
        decide(result, about.gate),
        result,
        a_manifest(praise={"thumb": 1}, reasons={UNBROKEN: ("u1", "u2", "u3")}),
        business=about,
        version=7,
        baseline_version=6,
        generated_at=NOON,
    )
    return with_canary(page, a_rollout_report(), about)


def written(folder: Path, lang: str) -> Path:
    """A folder of pages, as a night and a rollout leave it."""
    about = business(lang)
    pages = {
        "decision-v7.html": gate_page(lang),
        "rollout-v7.html": render_rollout_report(a_rollout_report(), business=about, generated_at=NOON),
    }
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")
    (folder / INDEX).write_text(render_index(read_entries(folder), business=about, generated_at=NOON), encoding="utf-8")
    return folder


def heading(page: Any) -> str:
    """The one that is shown."""
    shown = [one for one in page.locator("h1").all() if one.is_visible()]
    assert len(shown) == 1
    return str(shown[0].inner_text())


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_can_be_read_and_asks_for_nothing(browser: Any, tmp_path: Path, name: str, lang: str) -> None:
    file = written(tmp_path, lang) / name
    page = browser.new_page()
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: noise.append(request.url) if request.url != file.as_uri() else None)
    page.goto(file.as_uri())
    for details in page.locator("details").all():
        details.evaluate("element => element.open = true")
    assert heading(page) == HEADINGS[name, lang]
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        top = next(one for one in page.locator("h1").all() if one.is_visible()).bounding_box()
        assert top["y"] < 400
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate(PALE) == []
    assert noise == []
    page.close()


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_language_changes_and_is_remembered(browser: Any, tmp_path: Path, lang: str, scripts: bool) -> None:
    other, name = ("zh", "中文") if lang == "en" else ("en", "English")
    folder = written(tmp_path, lang)
    context = browser.new_context(java_script_enabled=scripts)
    page = context.new_page()
    page.goto((folder / INDEX).as_uri())
    assert heading(page) == HEADINGS[INDEX, lang]
    page.get_by_role("link", name=name).click()
    assert page.url.endswith(f"#{other}")
    page.reload()
    assert heading(page) == HEADINGS[INDEX, other]
    page.locator('a[href^="decision-v7.html"]:visible').click()
    assert heading(page) == HEADINGS["decision-v7.html", other]
    assert page.locator("h1:visible").evaluate("one => one.closest('[lang]').lang") == (
        "zh-CN" if other == "zh" else "en"
    )
    page.locator('a[href^="index.html"]:visible').click()
    assert heading(page) == HEADINGS[INDEX, other]
    context.close()


def test_a_printer_prints_the_language_that_is_shown_and_the_key_of_the_samples(browser: Any, tmp_path: Path) -> None:
    file = written(tmp_path, "en") / "decision-v7.html"
    page = browser.new_page(color_scheme="dark")
    page.goto(f"{file.as_uri()}#zh")
    assert not page.locator(".print >> visible=true").count()
    page.emulate_media(media="print")
    assert heading(page) == HEADINGS["decision-v7.html", "zh"]
    assert page.locator(".print >> visible=true").inner_text().startswith("答案:")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(29, 31, 35)"
    assert page.evaluate(PALE) == []
    assert page.pdf(format="A4").count(b"/Type /Page\n") > 2
    page.close()


def test_who_wants_to_know_which_answer_is_new_asks(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto((written(tmp_path, "en") / "decision-v7.html").as_uri())
    before = page.locator("main >> visible=true").inner_text()
    assert "The new answer scored better." not in before
    page.get_by_text("Which is the new one?").locator("visible=true").first.click()
    assert "The new answer scored better." in page.locator("main >> visible=true").inner_text()
    page.close()


def test_a_page_reads_the_same_in_a_sandboxed_frame(browser: Any) -> None:
    """As the registry's artifact viewer shows it: a blob in an iframe that may run scripts and nothing else."""
    page = browser.new_page(viewport={"width": 900, "height": 800})
    page.set_content('<iframe sandbox="allow-scripts" style="width:100%;height:700px"></iframe>')
    page.evaluate(
        "html => { document.querySelector('iframe').src = URL.createObjectURL(new Blob([html], {type: 'text/html'})) }",
        gate_page("en"),
    )
    frame = page.frame_locator("iframe")
    frame.locator("h1 >> visible=true").wait_for(timeout=10_000)
    assert frame.locator("h1 >> visible=true").inner_text() == HEADINGS["decision-v7.html", "en"]
    bar = frame.locator("svg.bar rect.fill.after >> visible=true").first
    assert bar.evaluate("bar => bar.getBoundingClientRect().width") > 100
    frame.get_by_role("link", name="中文").click()
    assert frame.locator("html").get_attribute("lang") == "zh-CN"
    assert frame.locator("h1 >> visible=true").inner_text() == HEADINGS["decision-v7.html", "zh"]
    page.close()
