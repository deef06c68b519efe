"""The examples of feedback work as they stand: the helper with the official client, the page in a real browser."""

import asyncio
from pathlib import Path

import pytest

from examples.feedback.ask import Answer, Assistant
from pipeline.gateway.ids import Ids
from pipeline.records import FeedbackKind
from tests.gateway_stub import RunningGateway, StubEngine, free_socket

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "examples" / "feedback" / "thumbs.html").read_text(encoding="utf-8")
LINK = "https://gateway.example/v1/feedback/TOKEN"
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
QUESTION = {"role": "user", "content": "How?"}


def assistant(gateway: RunningGateway) -> Assistant:
    return Assistant(gateway.url, gateway.key, "support")


async def test_the_helper_asks_and_says_how_good_the_answer_was(gateway: RunningGateway) -> None:
    def use() -> Answer:
        support = assistant(gateway)
        answer = support.ask("u1", QUESTION)
        support.thumb(answer, "u1", up=True)
        support.edit(answer, "u1", "So.")
        support.outcome(answer, "u1", passed=False)
        return answer

    answer = await asyncio.to_thread(use)
    assert answer.text == "fine"
    said = [(event.kind, event.value) for event in gateway.feedback()]
    assert said == [(FeedbackKind.THUMB, "up"), (FeedbackKind.EDIT, "So."), (FeedbackKind.OUTCOME, "failed")]
    (logged,) = gateway.interactions()
    for event in gateway.feedback():
        assert (event.interaction_id, event.user_key) == (answer.interaction_id, logged.user_key)


async def serve_page(html: str) -> tuple[asyncio.Server, str]:
    """A web site of another origin than the gateway's."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = html.encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    sock = free_socket()
    server = await asyncio.start_server(answer, sock=sock)
    return server, f"http://127.0.0.1:{sock.getsockname()[1]}/"


@pytest.mark.browser
async def test_the_page_posts_thumbs_and_an_edit_through_its_link(engine: StubEngine, gateway: RunningGateway) -> None:
    if not CHROMIUM.exists():
        pytest.skip(f"no browser: {CHROMIUM} is absent (apt-get install chromium)")
    from playwright.async_api import async_playwright, expect

    def get_link() -> tuple[Answer, str]:
        support = assistant(gateway)
        answer = support.ask("u1", QUESTION)
        return answer, support.link(answer, "u1", "thumb", "edit")

    answer, path = await asyncio.to_thread(get_link)
    assert LINK in PAGE
    server, site = await serve_page(PAGE.replace(LINK, gateway.url + path))
    try:
        async with async_playwright() as playwright:
            chromium = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
            page = await chromium.new_page()
            noise: list[str] = []
            page.on("pageerror", lambda error: noise.append(str(error)))
            page.on("console", lambda message: noise.append(message.text) if message.type == "error" else None)
            await page.goto(site)
            output = page.locator("output")
            for name, count in (("👍", 1), ("👎", 2), ("👍", 3)):
                await page.get_by_role("button", name=name).click()
                await expect(output).to_have_text("Thank you.")
                await _until(gateway, count)
            await page.locator("p").fill("The corrected answer.")
            await page.get_by_role("button", name="Save my version").click()
            await _until(gateway, 4)
            assert noise == [] or all("favicon" in line for line in noise)
            await page.evaluate("document.querySelector('[data-link]').dataset.link += 'x'")
            await page.get_by_role("button", name="👍").click()
            await expect(output).to_have_text("Not saved, please try again.")
            await chromium.close()
    finally:
        server.close()
    said = gateway.feedback()
    assert [event.value for event in said] == ["up", "down", "up", "The corrected answer."]
    assert len({event.event_id for event in said}) == 4
    for event in said:
        assert (event.interaction_id, event.business) == (answer.interaction_id, "support")
        assert event.user_key == Ids("salt").user_key("support", "u1")


async def _until(gateway: RunningGateway, count: int) -> None:
    async with asyncio.timeout(10):
        while len(gateway.feedback()) < count:
            await asyncio.sleep(0.01)
