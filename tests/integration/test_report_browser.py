"""The pages in a real browser: nothing overflows on a phone, nothing is blocked, the verdict is there to be read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.gate import decide
from evals.report import render_gate_report, render_rollout_report
from pipeline.config import BusinessConfig
from tests.builders import NOON, a_manifest, a_rollout_report, a_scored, an_eval_item, an_eval_result

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
WIDTHS = (390, 1280)
CUT_OFF = """[...document.querySelectorAll('main *:not(svg, svg *)')]
    .filter(element => !element.closest('.wide') && element.scrollWidth > element.clientWidth + 1
        && getComputedStyle(element).display != 'inline')
    .map(element => element.className + ': ' + element.textContent.slice(0, 40))"""
"""Elements whose text is wider than they are, hidden or not. Only the engineers' table may be scrolled sideways."""
VERDICTS = {"en": "Version 7 is better and may go into service", "zh": "版本 7 更好，可以上线"}
ROLLOUTS = {"en": "Version 7 is being tried with 10% of the users", "zh": "版本 7 正面向 10% 的用户试用"}


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
    """With words that no line can break: a long link, a long number."""
    about = business(lang)
    unbroken = "https://example.org/" + "a" * 300
    items = [
        a_scored(
            an_eval_item(
                f"q{n}",
                f"u{n}",
                messages=({"role": "system", "content": unbroken}, {"role": "user", "content": f"{n} {unbroken}"}),
                reference=unbroken,
                checks=({"kind": "regex", "pattern": "x" * 120},),
            ),
            {"golden": 0.2},
            {"golden": 0.9},
            (unbroken, "9" * 500),
        )
        for n in range(30)
    ]
    result = an_eval_result(*items)
    return render_gate_report(
        decide(result, about.gate),
        result,
        a_manifest(),
        business=about,
        version=7,
        baseline_version=6,
        generated_at=NOON,
    )


def pages(lang: str) -> dict[str, tuple[str, str]]:
    rollout = render_rollout_report(a_rollout_report(), business=business(lang), generated_at=NOON)
    return {"gate": (gate_page(lang), VERDICTS[lang]), "rollout": (rollout, ROLLOUTS[lang])}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", ["gate", "rollout"])
def test_a_page_fits_and_tells_its_verdict(browser: Any, tmp_path: Path, name: str, lang: str, width: int) -> None:
    html, verdict = pages(lang)[name]
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 800})
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: noise.append(request.url) if not request.url.startswith("file:") else None)
    page.goto((tmp_path / "page.html").as_uri())
    for details in page.locator("details").all():
        details.evaluate("element => element.open = true")
    assert page.locator("#verdict").inner_text() == verdict
    assert page.locator("#verdict").bounding_box()["y"] < 400
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CUT_OFF) == []
    assert noise == []
    page.close()


def test_a_page_reads_the_same_in_a_sandboxed_frame(browser: Any) -> None:
    """As the registry's artifact viewer shows it: a blob in an iframe that may run scripts and nothing else."""
    html, verdict = pages("en")["gate"]
    page = browser.new_page(viewport={"width": 900, "height": 800})
    page.set_content('<iframe sandbox="allow-scripts" style="width:100%;height:700px"></iframe>')
    page.evaluate(
        "html => { document.querySelector('iframe').src = URL.createObjectURL(new Blob([html], {type: 'text/html'})) }",
        html,
    )
    frame = page.frame_locator("iframe")
    frame.locator("#verdict").wait_for(timeout=10_000)
    assert frame.locator("#verdict").inner_text() == verdict
    bar = frame.locator("svg.bar rect.fill.after").first
    assert bar.evaluate("bar => bar.getBoundingClientRect().width") > 100
    page.close()
