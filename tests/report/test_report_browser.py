"""The report in a real browser: no network requests, no console messages, no scripts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import hostile_graph

from plogicnet.report import write_report
from small import fitted

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's chromium is not installed")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    return write_report(fitted({"neural.steps": 60}, hostile_graph()), folder / "run", folder / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_no_requests_no_messages_and_no_horizontal_scrolling(browser: Any, page: Path, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab = context.new_page()
    messages: list[str] = []
    requests: list[str] = []
    tab.on("console", lambda message: messages.append(message.text))
    tab.on("pageerror", lambda error: messages.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(page.as_uri())
    title = tab.title()
    for summary in tab.query_selector_all("summary")[:5]:
        summary.click()
    tab.click("nav a[href='#mistakes']")
    assert tab.url == page.as_uri() + "#mistakes"
    assert tab.title() == title
    assert title.endswith("plogicnet report")
    assert messages == []
    assert requests == [page.as_uri()]
    assert tab.evaluate("document.querySelectorAll('img, script, iframe').length") == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] > 127")
    assert light == (scheme == "light")  # the policy allows the style sheet
    context.close()
