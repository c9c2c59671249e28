"""The page in headless Chromium: typical use, and names that would do harm as HTML."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

import httpx
import numpy as np
import pytest

from plogicnet import Config, PLogicNet
from plogicnet.graph import KnowledgeGraph
from plogicnet.rules import RuleIndex
from plogicnet.support.numbers import format_probability
from plogicnet.web.connections import Limits
from small import SMALL, family_rows, fitted
from web_servers import HOSTILE, LONG, RIGHT_TO_LEFT, SCRIPT, in_process, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip(
        "the page is not tested: Chromium is not installed (Debian: apt install chromium)", allow_module_level=True
    )
playwright = pytest.importorskip("playwright.sync_api", reason="the page is not tested: Playwright is not installed")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage"
)
WAIT = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield started
        started.close()


@pytest.fixture
def page(browser: "Browser", address: str) -> Iterator["Page"]:
    """A page. The fixture checks that it requests only this server, runs no script from a name and has no errors."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, color_scheme="light")
    context.set_default_timeout(WAIT)
    page = context.new_page()
    problems: list[str] = []
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on(
        "console",
        lambda message: (
            problems.append(message.text) if message.type == "error" and "404" not in message.text else None
        ),
    )
    yield page
    assert problems == []
    assert requested
    assert {urlsplit(url).netloc for url in requested} == {urlsplit(address).netloc}
    assert page.evaluate("window.pwned") is None
    assert page.locator("main script, main img, main iframe, main object").count() == 0
    context.close()


def open_view(page: "Page", address: str, view: str, **values: str) -> None:
    hash_ = f"#/{view}" + (f"?{urlencode(values, quote_via=quote)}" if values else "")
    page.goto("about:blank")
    page.goto(f"{address}/{hash_}")
    ready(page)


def ready(page: "Page") -> None:
    """Wait until the page shows the view of its URL. It is polled, because its content policy forbids eval."""
    for _ in range(WAIT // 20):
        if page.evaluate("document.getElementById('view').dataset.ready === location.hash"):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"{page.url} is not ready: {page.locator('main').inner_text()[:500]}")


def test_search_open_filter_explain_and_back(page: "Page", address: str) -> None:
    open_view(page, address, "")
    assert page.locator("h1").inner_text() == "Missing facts in families <b>&amp;"
    page.get_by_role("combobox", name="Search for an entity").fill("MAN1")
    option = page.get_by_role("option").first
    assert option.locator("bdi").inner_text() == "man1"
    option.click()
    ready(page)
    assert page.locator("h1").inner_text() == "man1"
    assert page.title() == "man1 · plogicnet"
    predicted, known = page.locator("section.card").nth(0), page.locator("section.card").nth(1)
    assert predicted.locator("h2").inner_text() == "Predicted facts"
    assert known.locator(".chip").first.inner_text() == "known"
    width = predicted.locator(".fill").first.evaluate("node => parseFloat(node.style.width)")
    shown = predicted.locator(".fact .number").first.inner_text()
    assert format_probability(width / 100) == shown

    page.get_by_role("link", name="as head: parent").click()
    ready(page)
    relations = page.locator(".fact .relation").all_inner_texts()
    assert relations
    assert set(relations) == {"parent"}
    filtered = page.url

    row = page.locator(".fact").first
    names = row.locator(".sentence bdi").all_inner_texts()
    row.locator(".why").click()
    ready(page)
    assert page.locator("h1 bdi").all_inner_texts() == names
    assert re.fullmatch(r"<0\.001|0\.\d{3}|>0\.999", page.locator(".overview .big").inner_text())
    assert page.get_by_text("base rate of parent").is_visible()

    page.go_back()
    ready(page)
    assert page.url == filtered
    assert page.locator("h1").inner_text() == "man1"


def test_probabilities_are_written_as_in_the_commands(page: "Page", address: str) -> None:
    open_view(page, address, "")
    values = [0, 1e-9, 0.00049, 0.0005, 0.0012, 0.5, 0.9412, 0.9994, 0.9995, 1]
    script = "values => import('/static/dom.js').then(dom => values.map(dom.formatProbability))"
    assert page.evaluate(script, values) == [format_probability(p) for p in values]


def test_an_explanation_draws_premises_and_its_terms_add_up(page: "Page", address: str) -> None:
    open_view(page, address, "rules", q="husband wife")
    page.locator(".rules summary").first.click()
    page.locator(".premises a[href^='#/fact']").first.click()
    ready(page)
    drawing = page.locator("svg.drawing")
    assert drawing.locator("path.edge.explained").count() == 1
    assert drawing.locator("path.edge:not(.explained)").count() >= 1
    ends = page.locator("h1 a bdi").all_inner_texts()
    assert set(ends) <= {text.strip() for text in drawing.locator("a > text").all_text_contents()}
    lists = page.locator(".odds").all()
    assert len(lists) == 2  # the contributions of the rules, and how the probability is computed
    for odds in lists:
        numbers = [float(t.replace("−", "-")) for t in odds.locator(".line > .number").all_inner_texts()]
        assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.01 * len(numbers))
    page.locator(".odds .rule").first.hover()
    assert drawing.locator("[data-rules~='0'].dim").count() == 0
    drawing.locator("a").first.click()
    ready(page)
    assert page.url.split("#")[1].startswith("/entity")


def test_permalinks_open_their_view(page: "Page", address: str) -> None:
    open_view(page, address, "fact", h="man0", r="husband", t="woman0")
    assert page.locator("h1 bdi").all_inner_texts() == ["man0", "husband", "woman0"]
    open_view(page, address, "entity", name="man2", relation="parent", side="tail")
    assert page.locator(".filter a[aria-current] bdi").inner_text() == "parent"
    open_view(page, address, "rules", n="0")
    assert page.get_by_role("heading", name="This rule").is_visible()
    assert page.locator(".rules details[open] .premises li").count() > 0
    open_view(page, address, "entity", name="nobody")
    assert "No entity is named nobody." in page.get_by_role("alert").inner_text()
    open_view(page, address, "fact", h="man0", r="husbandry", t="woman0")
    assert "No relation is named husbandry." in page.get_by_role("alert").inner_text()
    page.get_by_role("alert").get_by_role("link", name="husband").click()
    ready(page)
    assert page.locator("h1 bdi").all_inner_texts() == ["man0", "husband", "woman0"]
    open_view(page, address, "constructor")
    assert "does not exist" in page.get_by_role("alert").inner_text()
    open_view(page, address, "nowhere")
    assert page.get_by_role("alert").is_visible()


def test_queries_for_tail_head_and_relation(page: "Page", address: str) -> None:
    open_view(page, address, "ask")
    for label, text in (("Head", "man0"), ("Relation", "pare")):
        field = page.get_by_role("combobox", name=label)
        field.fill(text)
        page.get_by_role("option").first.wait_for()
        field.press("Enter")
    page.get_by_role("button", name="Ask", exact=True).click()
    page.wait_for_url("**#/ask?h=man0&r=parent")
    ready(page)
    assert page.locator(".fact").count() == 10
    assert set(page.locator(".fact .sentence > :first-child").all_inner_texts()) == {"man0"}
    open_view(page, address, "ask", r="husband", t="woman1", known="1")
    assert page.locator(".fact .chip.known").count() <= page.locator(".fact").count()
    open_view(page, address, "ask", h="man0", t="woman0", top="50")
    assert page.locator(".fact").count() > 3
    open_view(page, address, "ask", h="man0")
    assert page.get_by_text("Fill in two of the three fields").is_visible()
    open_view(page, address, "ask", h="man77", r="parent")
    alert = page.get_by_role("alert")
    assert "No entity is named man77." in alert.inner_text()
    assert "/api" not in alert.inner_text()
    alert.get_by_role("link").first.click()
    ready(page)
    assert page.locator(".fact").count() == 10


def test_the_page_can_be_used_with_the_keyboard(page: "Page", address: str) -> None:
    open_view(page, address, "")
    page.keyboard.press("/")
    search = page.get_by_role("combobox", name="Search for an entity")
    assert search.evaluate("node => node === document.activeElement")
    page.keyboard.type("woman")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    selected = page.locator("[role=option][aria-selected=true]")
    assert selected.count() == 1
    name = selected.locator("bdi").inner_text()
    assert search.get_attribute("aria-activedescendant") == selected.get_attribute("id")
    page.keyboard.press("Escape")
    assert page.get_by_role("option").count() == 0
    page.keyboard.press("ArrowDown")
    page.get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    if selected.locator("bdi").inner_text() != name:
        page.keyboard.press("ArrowDown")
    name = selected.locator("bdi").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url("**#/entity?name=*")
    ready(page)
    assert page.locator("h1").inner_text() == name
    page.locator("a.why").first.focus()
    first = page.evaluate("document.activeElement.href")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.href") != first
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.href") == first
    page.keyboard.press("Enter")
    page.wait_for_url("**#/fact?*")
    ready(page)
    page.keyboard.press("Escape")
    page.wait_for_url("**#/entity?name=*")
    ready(page)
    page.keyboard.press("r")
    page.wait_for_url("**#/rules")
    ready(page)
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()


def test_enter_ignores_suggestions_for_an_earlier_text(page: "Page", address: str) -> None:
    open_view(page, address, "")
    search = page.get_by_role("combobox", name="Search for an entity")
    search.press_sequentially("man")
    page.get_by_role("option").first.wait_for()
    first = page.get_by_role("option").first.locator("bdi").inner_text()
    assert first != "man4"
    page.keyboard.insert_text("4")  # before the suggestions are updated
    page.keyboard.press("Enter")
    page.wait_for_url("**#/entity?name=*")
    ready(page)
    assert page.locator("h1").inner_text() == "man4"


def test_the_filter_keeps_the_typed_text_and_the_focus(page: "Page", address: str) -> None:
    open_view(page, address, "rules")
    field = page.get_by_label("Filter")
    field.click()
    for part in ("husband", " ", "wi", "fe"):
        page.keyboard.type(part)
        page.wait_for_timeout(400)  # longer than the delay of the filter
    page.wait_for_url("**#/rules?q=husband+wife")
    ready(page)
    assert field.input_value() == "husband wife"
    assert field.evaluate("node => node === document.activeElement")
    texts = page.locator(".rules summary .code").all_inner_texts()
    assert texts
    assert all("wife" in text and "husband" in text for text in texts)
    assert page.get_by_text(f"{len(texts)} rules with these words").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")  # leave before the filter is applied
    ready(page)


def test_rules_are_filtered_by_relation_and_pattern(page: "Page", address: str, served_model: PLogicNet) -> None:
    open_view(page, address, "rules")
    numbers = RuleIndex(served_model.rules).by_importance(np.arange(len(served_model.rules)))[:50]
    texts = page.locator(".rules summary .code").all_inner_texts()
    assert texts[:3] == [str(served_model.rules.rules[i]) for i in numbers[:3]]
    field = page.get_by_label("Relation", exact=True).first
    field.fill("wife")
    page.get_by_role("option", name="wife").first.click()
    page.wait_for_url("**#/rules?relation=wife")
    ready(page)
    of_wives = page.locator(".rules summary .code").all_inner_texts()
    assert of_wives
    assert all("wife(" in text.rpartition("=> ")[2] for text in of_wives)
    page.get_by_label("Pattern").select_option("inverse")
    page.wait_for_url("**#/rules?relation=wife&pattern=inverse")
    ready(page)
    assert set(page.locator(".rules summary .chip").all_inner_texts()) == {"inverse"}
    field.fill("")
    field.blur()
    page.wait_for_url("**#/rules?pattern=inverse")
    ready(page)
    of_all = page.locator(".rules summary .code").all_inner_texts()
    assert any("wife(" not in text.rpartition("=> ")[2] for text in of_all)


def test_the_rules_after_the_strongest_are_summed_and_can_be_shown(browser: "Browser") -> None:
    rows = [
        row
        for i in range(20)
        for row in ((f"a{i}", "spouse", f"b{i}"), *((f"a{i}", f"r{n}", f"b{i}") for n in range(15)))
    ]
    graph = KnowledgeGraph.from_names([*rows, ("x", "spouse", "y")], [("x", "r1", "y")])
    with in_process(fitted({"em.neural": False}, graph), Limits()) as port:
        page = browser.new_page()
        page.set_default_timeout(WAIT)
        open_view(page, f"http://127.0.0.1:{port}", "fact", h="a0", r="spouse", t="b0")
        assert page.locator(".odds .rule").count() == 12
        total = page.locator(".odds").first.inner_text()
        assert "3 other rules together" in total
        page.get_by_role("button", name="Show all").click()
        page.locator(".odds .rule").nth(14).wait_for()
        assert page.locator(".odds .rule").count() == 15
        assert page.get_by_text("other rules together").count() == 0
        page.close()


def test_constraints_are_shown_as_constraints(page: "Page", address: str, served_model: PLogicNet) -> None:
    table = served_model.rules
    number = next(i for i, rule in enumerate(table.rules) if rule.negated and rule.head.relation == "wife")
    facts = int(table.support[number])
    open_view(page, address, "rules", n=str(number))
    inside = page.locator(".rules details[open] .inside")
    assert inside.inner_text().startswith(f"{facts} of {facts} wife facts are not self-loops")
    assert inside.locator("li").count() == 0
    learned, constraints = len(table) - int(table.constraints.sum()), int(table.constraints.sum())
    open_view(page, address, "rules", q=str(table.rules[number]))
    assert page.get_by_text("1 constraint with these words", exact=True).is_visible()
    open_view(page, address, "rules", n=str(number))
    assert page.get_by_text(f"{learned} rules and {constraints} constraints", exact=True).is_visible()
    assert page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id).toSorted().join()") == page.evaluate(
        "[...new Set([...document.querySelectorAll('[id]')].map(e => e.id))].toSorted().join()"
    )


def test_errors_are_shown_and_can_be_retried(browser: "Browser", address: str) -> None:
    context = browser.new_context()
    context.set_default_timeout(WAIT)
    page = context.new_page()
    open_view(page, address, "rules")
    fail = '{"error": "too busy"}'
    page.route("**/api/rule?*", lambda route: route.fulfill(status=503, body=fail))
    summary = page.locator(".rules summary").first
    summary.click()
    assert page.get_by_role("alert").inner_text() == "too busy"
    page.unroute("**/api/rule?*")
    summary.click()
    summary.click()
    page.locator(".premises li").first.wait_for()
    assert page.get_by_role("alert").count() == 0
    page.route("**/api/rules?*", lambda route: route.fulfill(status=503, body=fail))
    page.get_by_label("Filter").fill("wife")
    assert page.get_by_role("alert").inner_text() == "too busy"
    page.unroute("**/api/rules?*")
    # pretend that there are more facts than in one response
    page.route("**/api/known?*", lambda route: route.fulfill(json=httpx.get(route.request.url).json() | {"total": 99}))
    open_view(page, address, "entity", name="man0")
    more = page.locator("section.card", has_text="Known facts (").get_by_role("button", name="Show more")
    page.unroute("**/api/known?*")
    page.route("**/api/known?*", lambda route: route.fulfill(status=503, body=fail))
    more.click()
    assert page.get_by_role("alert").inner_text() == "too busy"
    page.unroute("**/api/known?*")
    more.click()  # this loads the end of the list
    more.wait_for(state="detached")
    assert page.get_by_role("alert").count() == 0
    context.close()


def test_escape_does_not_leave_the_site(page: "Page", address: str) -> None:
    open_view(page, address, "entity", name="man0")  # after a blank page
    page.locator("a.why").first.click()
    page.wait_for_url("**#/fact?*")
    ready(page)
    page.go_back()
    ready(page)
    page.go_forward()
    ready(page)
    page.keyboard.press("Escape")
    page.wait_for_url("**#/entity?name=man0")
    ready(page)
    open_view(page, address, "fact", h="man0", r="husband", t="woman0")
    page.get_by_role("link", name="Ask", exact=True).click()
    page.wait_for_url("**#/ask")
    ready(page)
    page.go_back()
    page.wait_for_url("**#/fact?*")
    ready(page)
    page.keyboard.press("Escape")  # this view was the first of the site
    page.wait_for_url("**#/entity?name=man0")
    ready(page)


def test_mean_aggregation_held_out_facts_similar_entities_and_unknown_entities(browser: "Browser") -> None:
    rows = family_rows()
    graph = KnowledgeGraph.from_names(rows[:86], [*rows[86:102], ("stranger", "sibling", "a0")], rows[102:])
    model = fitted({"neural.steps": 60, "mln.aggregate": "mean"}, graph)
    with in_process(model, Limits()) as port:
        address = f"http://127.0.0.1:{port}"
        context = browser.new_context()
        context.set_default_timeout(WAIT)
        page = context.new_page()
        shares = 0
        for h, r, t in (graph.names(triple) for triple in graph.test):
            open_view(page, address, "fact", h=h, r=r, t=t)
            assert page.get_by_text("Held out: in the test split").is_visible()
            for line in page.locator(".odds .rule .line").all():
                text = line.locator("summary .small").inner_text()
                weight, count, total = map(
                    float, re.findall(r"weight (-?[\d.]+), (\d+) of the (\d+) grounding", text)[0]
                )
                contribution = line.locator(".number").first.inner_text().replace("−", "-")
                assert float(contribution) == pytest.approx(weight * count / total, abs=0.011)
                shares += count < total
            similar = page.locator(".card", has_text="Known facts with similar entities").locator(".fact")
            similarities = [float(text) for text in similar.locator(".number").all_inner_texts()]
            assert similarities == sorted(similarities, reverse=True)
            labels = similar.locator("> .small").all_inner_texts()
            assert all(text in (f"similar to {h}", f"similar to {t}") for text in labels)
            if shares:
                break
        assert shares
        path = {"path": [["man0", "husband", "woman0"], ["woman0", "parent", "a0"]], "share": 0.75}
        page.route(
            "**/api/explain?*",
            lambda route: route.fulfill(json=httpx.get(route.request.url).json() | {"paths": [path]}),
        )
        open_view(page, address, "fact", h="man0", r="parent", t="a0")
        text = page.locator(".card", has_text="Paths from head to tail").locator("li").inner_text()
        assert text.split() == ["+0.75", *("man0", "husband", "woman0"), "and", *("woman0", "parent", "a0")]
        page.unroute("**/api/explain?*")
        open_view(page, address, "ask", h=h, r=r, top="50")
        assert page.locator(".fact", has_text="held out").count() > 0
        open_view(page, address, "entity", name="stranger")
        assert page.get_by_role("heading", name="No known facts").is_visible()
        page.locator("main").get_by_role("link", name="Ask").click()
        page.wait_for_url("**#/ask?h=stranger")
        context.close()


def test_labels_stay_inside_a_narrow_drawing(browser: "Browser") -> None:
    relations = [f"a_long_name_{i}" for i in range(3)]
    rules = "\n".join(
        [
            *(f"=1: {relation}(X, Y) => goal(X, Y)" for relation in relations),
            "=1: step(X, Y) & step(Y, Z) => goal(X, Z)",
        ]
    )
    steps = [(f, "step", t) for mid in ("c", "d") for f, t in (("a", mid), (mid, "b"))]
    graph = KnowledgeGraph.from_names(
        [*(("a", relation, "b") for relation in relations), *steps, ("c", "goal", "d")], steps[:1]
    )
    model = PLogicNet(Config().with_values(SMALL | {"rules.mine": False, "em.neural": False}))
    with in_process(model.fit(graph, rules=rules), Limits()) as port:
        page = browser.new_page(viewport={"width": 375, "height": 740})
        open_view(page, f"http://127.0.0.1:{port}", "fact", h="a", r="goal", t="b")
        assert page.locator("svg.drawing path.edge").count() == 1 + len(relations) + len(steps)
        drawing = page.locator("svg.drawing").bounding_box()
        assert drawing
        for label in page.locator("svg.drawing .label-box").all():
            box = label.bounding_box()
            assert box
            assert drawing["x"] <= box["x"]
            assert box["x"] + box["width"] <= drawing["x"] + drawing["width"]
        page.close()


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_shown_as_text(page: "Page", address: str, name: str) -> None:
    open_view(page, address, "entity", name=name)
    assert page.locator("h1").text_content() == name
    search = page.get_by_role("combobox", name="Search for an entity")
    search.fill(name)
    page.get_by_role("option").first.wait_for()
    assert name in page.locator("[role=option] bdi").all_text_contents()
    page.keyboard.press("Enter")
    ready(page)
    partner = HOSTILE[(HOSTILE.index(name) + 1) % len(HOSTILE)]
    open_view(page, address, "fact", h=partner, r="wife", t=name)
    assert page.locator("h1 bdi").all_text_contents() == [partner, "wife", name]
    if name in (LONG, SCRIPT, RIGHT_TO_LEFT):
        open_view(page, address, "fact", h=name, r=SCRIPT, t="man0")
        open_view(page, address, "ask", h=name, r=SCRIPT)
        assert page.locator(".fact").count() == 10
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


def test_hostile_names_in_rules_are_shown_as_text(page: "Page", address: str) -> None:
    open_view(page, address, "rules", q="onerror")
    for row in page.locator(".rules summary").all():
        assert "<img src=x" in row.inner_text()
    open_view(page, address, "rules")
    page.get_by_label("Filter").fill("wife")
    page.wait_for_url("**#/rules?q=wife")
    ready(page)
    assert page.get_by_label("Filter").evaluate("node => node === document.activeElement")
    assert all("wife" in text for text in page.locator(".rules summary .code").all_inner_texts())


def test_the_theme_can_be_switched_and_is_remembered(browser: "Browser", page: "Page", address: str) -> None:
    def background(page: "Page") -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    open_view(page, address, "")
    light = background(page)
    page.keyboard.press("t")
    dark = background(page)
    assert dark != light
    page.reload()
    ready(page)
    assert background(page) == dark
    page.get_by_role("button", name="Switch between light and dark").click()
    assert background(page) == light
    other = browser.new_context(color_scheme="dark").new_page()
    open_view(other, address, "")
    assert background(other) == dark  # follows the system
    other.context.close()


def test_a_phone_needs_no_horizontal_scrolling(page: "Page", address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for view, values in (
        ("", {}),
        ("entity", {"name": "man0"}),
        ("entity", {"name": LONG}),
        ("fact", {"h": "man0", "r": "husband", "t": "woman0"}),
        ("fact", {"h": LONG, "r": SCRIPT, "t": "man0"}),
        ("rules", {"n": "0"}),
        ("ask", {"h": "man0", "r": "parent"}),
    ):
        open_view(page, address, view, **values)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
    open_view(page, address, "entity", name="man0")
    page.get_by_text("Relations (").click()
    page.get_by_role("link", name="as head: parent").click()
    ready(page)
    assert set(page.locator(".fact .relation").all_inner_texts()) == {"parent"}


def test_fields_have_labels_and_a_new_view_gets_the_focus(page: "Page", address: str) -> None:
    for view, values in (("", {}), ("ask", {}), ("rules", {}), ("entity", {"name": "man0"})):
        open_view(page, address, view, **values)
        assert page.evaluate(
            "[...document.querySelectorAll('input, select')].every(e => e.labels.length || e.ariaLabel)"
        )
        assert page.evaluate("document.activeElement.tagName") == "H1"
        assert page.locator("h1").count() == 1
        named = "[...document.querySelectorAll('a, button')].every(e => (e.ariaLabel || e.textContent).trim())"
        assert page.evaluate(named)


def test_a_token_in_the_address_becomes_a_cookie(browser: "Browser", served_run: Path) -> None:
    with serving("--token", "a-token-for-the-page", run=served_run) as (_, url):
        context = browser.new_context()
        context.set_default_timeout(WAIT)
        page = context.new_page()
        page.goto(url + "#/entity?name=man0")
        ready(page)
        assert page.locator("h1").inner_text() == "man0"
        assert "token" not in page.url
        assert page.evaluate("document.cookie") == ""
        page.reload()
        ready(page)
        assert page.locator("h1").inner_text() == "man0"
        context.close()
