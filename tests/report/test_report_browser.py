"""The report in a real browser: nothing is asked of the network, nothing is complained of, nothing hostile runs."""

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
    fitted({"neural.steps": 60}, hostile_graph()).save(folder / "run")
    return write_report(folder / "run", folder / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_quiet_alone_and_within_its_width(browser: Any, page: Path, scheme: str, width: int) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.as_uri())
    title = tab.title()
    for summary in tab.query_selector_all("summary")[:5]:
        summary.click()
    tab.click("nav a[href='#mistakes']")
    assert tab.url == page.as_uri() + "#mistakes"
    assert tab.title() == title
    assert title.endswith("plogicnet report")
    assert said == []
    assert asked == [page.as_uri()]
    assert tab.evaluate("document.querySelectorAll('img, script, iframe').length") == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] > 127")
    assert light == (scheme == "light")  # the style is in force, its hash being that of the policy
    context.close()
