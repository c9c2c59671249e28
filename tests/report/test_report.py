"""Reports of small runs: their numbers equal those of the run's files, and hostile names are harmless."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile import HEBREW, IMAGE, LONG, SCRIPT, hostile_graph
from reading import Element, descendants, read

from calling import Call
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.metrics import columns
from plogicnet.graph import KnowledgeGraph
from plogicnet.report import write_report
from plogicnet.report.page import MAX_RULES, changed_settings
from plogicnet.runs.origins import read_origins
from small import family_rows, fitted, small_graph
from stopping import files_of

SECTIONS = ["data", "ranking", "probabilities", "rules", "surprises", "mistakes", "settings", "timings"]
TITLES = {
    "neural": "neural model alone",
    "rules": "rules alone",
    "plogicnet": "pLogicNet",
    "plogicnet*": "pLogicNet*",
}
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a function that trains a model and returns its run directory."""

    def train(values: dict[str, object] | None = None, graph: KnowledgeGraph | None = None) -> Path:
        run = tmp_path_factory.mktemp("runs") / "run"
        fitted({"neural.steps": 60} | (values or {}), graph).save(run)
        return run

    return train


@pytest.fixture(scope="module")
def run(make: Make) -> Path:
    return make()


def page_of(run: Path) -> str:
    return write_report(PLogicNet.load(run), run, run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(run: Path) -> Element:
    return read(page_of(run))


def assert_harmless(text: str) -> Element:
    """Assert that the page has no scripts, handlers or external content, and allows only its own style sheet."""
    page = read(text)
    for element in descendants(page):
        assert element.name not in {
            "script",
            "img",
            "iframe",
            "object",
            "embed",
            "link",
            "base",
            "form",
            "b onmouseover",
        }
        for key, value in element.attributes.items():
            assert not key.startswith("on")
            assert key not in {"src", "srcset", "style", "action", "xlink:href"}
            if key == "href":
                assert value is not None
                assert value.startswith("#")
                assert value[1:] in SECTIONS
    style = page.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(m for m in page.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy")
    content = policy.attributes["content"] or ""
    assert content.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "unsafe" not in content
    assert [s.attributes["id"] for s in page.all("section")] == SECTIONS
    return page


def test_ranks_are_shown_in_bins(page: Element) -> None:
    ranks = page.section("ranking").all("figure")[1]
    assert [t.text for t in ranks.all("text", "middle")] == ["1", "2–3", "4–10", "11–30"]


def metrics_of(run: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads(files_of(run)["metrics.json"])
    return metrics


def test_the_page_has_all_sections_and_figures(run: Path) -> None:
    page = assert_harmless(page_of(run))
    ranking, rules = page.section("ranking"), page.section("rules")
    assert [f.all("h3")[0].text for f in ranking.all("figure")] == ["EM iterations", "Ranks of the correct answers"]
    titles = ["Precision and learned weight", "Accepted hidden triples"]
    assert [f.all("h3")[0].text for f in rules.all("figure")] == titles
    assert page.section("probabilities").all("figure")
    assert page.section("surprises").all("article")
    assert page.section("mistakes").all("article")
    assert page.section("settings").all("pre")
    assert all(figure.all("svg") for figure in page.all("figure"))


def test_tables_and_plots_have_the_values_of_metrics_json(run: Path, page: Element) -> None:
    test = metrics_of(run)["test"]
    expected = [[name, *(m.show(test[system][m.key]) for m in columns())] for system, name in TITLES.items()]
    ranking = page.section("ranking")
    assert ranking.all("table", "rankings")[0].rows() == expected
    by_category, by_relation = (table.rows() for table in ranking.all("table", "groups"))
    for rows, key in ((by_category, "by_category"), (by_relation, "by_relation")):
        assert {row[0] for row in rows} == set(test["plogicnet*"][key])
        for row in rows:
            assert row[3:] == [f"{test[s][key][row[0]]['mrr']:.3f}" for s in ("neural", "rules", "plogicnet*")]
        assert sum(int(row[1]) for row in rows) == len(small_graph().test)
    quality = test["calibration"]
    assert page.section("probabilities").all("table")[0].rows() == [
        ["calibrated", f"{quality['brier']:.4f}", f"{quality['ece']:.4f}"],
        ["uncalibrated", f"{quality['uncalibrated']['brier']:.4f}", f"{quality['uncalibrated']['ece']:.4f}"],
    ]
    dots = page.section("probabilities").all("circle")
    assert [d.attributes["cx"] for d in dots] == [f"{100 * p['predicted']:.2f}%" for p in quality["curve"]]


def test_history_timings_and_rules_equal_the_files_of_the_run(run: Path, page: Element) -> None:
    history = [json.loads(line) for line in files_of(run)["history.jsonl"].splitlines()]
    tooltips = [t.text for t in page.section("ranking").all("figure")[0].all("title")]
    for line in history:
        for system, metrics in line["valid"].items():
            assert f"{TITLES[system]}: {metrics['mrr']:.3f}" in tooltips
    accepted = [t.text for t in page.section("rules").all("figure")[1].all("title")]
    for line in history:
        assert f"{line['accepted']:,} accepted" in accepted
    seconds = read_origins(run)["0001"].seconds
    rows = page.section("timings").all("table")[0].rows()
    assert [row[1] for row in rows] == [f"{s:,.1f} s" for s in (*seconds.values(), sum(seconds.values()))]
    header, *lines = files_of(run)["rules.tsv"].decode().splitlines()
    rules = [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]
    weighted = sorted((r for r in rules if r["weight"]), key=lambda r: -float(r["weight"]))
    assert len(page.section("rules").all("circle")) == len(weighted)
    shown = page.section("rules").all("table", "rules")[0].rows()
    assert 0 < len(shown) <= MAX_RULES
    by_relation: dict[str, list[dict[str, str]]] = {}
    for rule in sorted(weighted, key=lambda r: -abs(float(r["weight"])) * float(r["hits"]) ** 0.5):
        by_relation.setdefault(rule["rule"].partition("=> ")[2].partition("(")[0], []).append(rule)
    expected = [rule for rules in by_relation.values() for rule in rules[: len(shown) // len(by_relation)]]
    for rule in expected:
        counts = f"{float(rule['precision']):.2f} {rule['hits']} of {rule['support']}"
        weight = f"{float(rule['weight']):.2f}"
        assert any(row[0].startswith(weight) and row[2] == counts for row in shown)
    if len(shown) < len(weighted):
        assert f"{len(weighted) - len(shown)} other rules not shown" in page.section("rules").text


def test_settings_that_differ_from_the_defaults_are_listed(run: Path, page: Element) -> None:
    config = PLogicNet.load(run).config
    rows = page.section("settings").all("table")[0].rows()
    assert [tuple(row) for row in rows] == list(changed_settings(config))
    assert next(row[:3] for row in rows if row[0] == "neural.vectors.dim") == ["neural.vectors.dim", "8", "200"]
    assert page.section("settings").all("pre")[0].text == config.to_yaml(comments=True)
    assert list(changed_settings(Config())) == []


def test_the_same_run_gives_the_same_page(run: Path) -> None:
    assert page_of(run) == page_of(run)


def test_hostile_names_are_shown_as_text(make: Make) -> None:
    text = page_of(make(graph=hostile_graph()))
    page = assert_harmless(text)
    shown = page.text
    assert IMAGE in shown
    assert SCRIPT[:60] in shown
    assert HEBREW in shown
    assert LONG not in text  # truncated
    assert "x" * 89 + "…" in shown
    assert page.all("h1")[0].all("bdi")[0].text == "<script>graph</script>"
    for element in page.all("bdi"):  # right-to-left names are isolated
        assert len(element.text) <= 200
    assert not [c for c in text if ord(c) < 32 and c not in "\n\t"]
    assert "\u202e" not in page.section("data").text
    assert len(text) < 2_000_000


def test_labels_are_shown_with_names_as_tooltips(make: Make) -> None:
    labels = {"sibling": "is a sibling of", "a0": "Ada", "a1": "Al"}
    page = assert_harmless(page_of(make(graph=replace(small_graph(), labels=labels))))
    titles = {e.text: e.attributes.get("title") for e in page.all("bdi")}
    assert titles["is a sibling of"] == "sibling"
    assert "sibling" not in titles


def test_without_a_neural_model(make: Make) -> None:
    page = assert_harmless(page_of(make({"em.neural": False})))
    assert [row[0] for row in page.section("ranking").all("table")[0].rows()] == ["rules alone", "pLogicNet*"]
    assert "Supported by the neural model" not in page.section("surprises").text
    assert page.section("surprises").all("article")
    assert "neural model alone (q)" not in [e.text for e in page.all("dt")]


@pytest.mark.parametrize(
    ("system", "title"), [("blp", "BLP (rules alone)"), ("nne_aer", "NNE-AER (neural model alone)")]
)
def test_another_system_has_its_own_title(make: Make, system: str, title: str) -> None:
    page = assert_harmless(page_of(make({"system": system})))
    tables = page.section("ranking").all("table")
    assert [row[0] for row in tables[0].rows() if "(" in row[0]] == [title]
    assert title in tables[1].text
    assert title in page.all("header")[0].text
    assert "combines the neural model and the rules" not in page.all("header")[0].text  # λ is 0


def test_the_caption_explains_that_test_triples_compete_on_valid(make: Make, page: Element) -> None:
    assert "answers that are in test count as wrong" in page.section("ranking").text
    rows = family_rows()
    untested = read(page_of(make(graph=KnowledgeGraph.from_names(rows[:86], rows[86:102], name="untested"))))
    assert "count as wrong" not in untested.section("ranking").text


def test_without_rules(make: Make) -> None:
    page = assert_harmless(page_of(make({"em.rules": False})))
    assert "no rules" in page.section("rules").text
    assert page.section("surprises").all("article")
    assert not page.section("rules").all("figure")


def test_without_rules_and_a_neural_model_all_answers_are_tied(make: Make) -> None:
    page = assert_harmless(page_of(make({"em.neural": False, "rules.min_support": 10**6})))
    assert "neural model alone" not in page.section("rules").text
    assert "combines the neural model and the rules" not in page.text
    for section in ("rules", "surprises"):
        assert "all answers are tied" in page.section(section).text


def test_with_the_mean_contributions_use_shares_of_groundings(make: Make) -> None:
    page = assert_harmless(page_of(make({"mln.aggregate": "mean"})))
    pattern = re.compile(r" weight (-?[\d.]+), ([\d,]+) of the ([\d,]+) groundings?$")
    found = 0
    for term in page.all("ul", "terms"):
        for item in (e for e in term.children if isinstance(e, Element)):
            small = [s for s in item.all("small") if "weight" in s.text]
            if small:
                weight, count, total = (float(x) for x in pattern.findall(small[0].text)[0])
                assert float(item.all("span", "term")[0].text) == pytest.approx(weight * count / total, abs=0.011)
                found += count < total
    assert found


def test_the_text_describes_the_reliability_curve(run: Path, page: Element) -> None:
    curve = metrics_of(run)["test"]["calibration"]["curve"]
    below = sum(p["true"] < p["predicted"] - 0.005 for p in curve)
    text = page.section("probabilities").text
    assert f"In {below} of {len(curve)} groups" in text if below else "In every group" in text
    assert "too optimistic" not in text


def test_probabilities_are_decimals_with_three_digits(page: Element) -> None:
    shown = [e.text for name in ("surprises", "mistakes") for e in page.section(name).all("dd")]
    assert shown
    assert all(re.fullmatch(r"0\.\d{3}|<0\.001|>0\.999", text) for text in shown)
    figure = page.section("probabilities").all("figure")[0]
    assert "%" not in "".join(label.text for label in figure.all("text"))


def test_without_a_test_split(make: Make) -> None:
    graph = KnowledgeGraph.from_names(family_rows(), name="no test")
    run = make(graph=graph)
    page = assert_harmless(page_of(run))
    valid = metrics_of(run)["valid"]
    assert page.section("ranking").all("table")[0].rows()[-1][1] == f"{valid['plogicnet*']['mrr']:.3f}"
    assert "which this check uses as well" in page.section("probabilities").text
    assert "6 training triples were held out" in page.section("data").text


def test_with_nothing_held_out(make: Make) -> None:
    graph = KnowledgeGraph.from_names([("anna", "knows", "ben")], name="one")
    page = assert_harmless(page_of(make({"neural.steps": 1, "neural.batch": 1}, graph)))
    assert "no valid or test split" in page.section("ranking").text
    assert "no valid or test split" in page.section("mistakes").text


def test_the_command(run: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "family.html"
    code, stdout, stderr = call("report", run, "--out", out, "--device", "cpu", "--threads", 1)
    assert (code, stdout) == (0, f"Report written to {out}.\n")
    assert "ranking test" in stderr
    assert_harmless(out.read_text(encoding="utf-8"))
    code, stdout, _ = call("report", run, "--json")
    assert (code, json.loads(stdout)) == (0, {"report": str(run / "report.html")})
    assert (run / "report.html").read_text() == out.read_text()


def test_invalid_paths_are_rejected(run: Path, tmp_path: Path, call: Call) -> None:
    code, _, stderr = call("report", tmp_path / "nowhere")
    assert (code, "no run at" in stderr) == (2, True)
    code, _, stderr = call("report", run, "--out", tmp_path / "no" / "where.html")
    assert (code, "does not exist" in stderr) == (2, True)
    code, _, stderr = call("report", run, "--out", tmp_path)
    assert (code, "is a directory" in stderr) == (2, True)


def test_help_loads_neither_torch_nor_the_report() -> None:
    program = (
        "import sys; sys.argv = ['plogicnet', 'report', '--help']\n"
        "from plogicnet.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'matplotlib', 'plogicnet.report') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
