"""A model, an engine, a system and a metric of another package work in all commands through their entry points."""

import json
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from small import write_small_graph
from toy_modules import TOYS, run_commands
from web_servers import serving

SETTINGS = (
    *("neural.model=Messages", "neural.messages.spread=0.2", "neural.steps=20", "em.iterations=1"),
    *("grounding.engine=plain", "system=frequency", "systems.frequency.smoothing=2"),
)
TRIPLE = ("man0", "parent", "a0")


def test_extensions_work_from_training_to_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, graph = tmp_path / "run", write_small_graph(tmp_path)
    options = [option for setting in SETTINGS for option in ("--set", setting)]
    facts, report, exported = tmp_path / "facts.tsv", tmp_path / "report.html", tmp_path / "exported"
    facts.write_text("newcomer\thusband\twoman0\nnewcomer\tparent\ta0\n")
    commands = {
        "trained": ["train", graph, "--out", run, "--device", "cpu", *options, "--json"],
        "resumed": ["resume", run, "--set", "em.iterations=2", "--json"],
        "table": ["evaluate", run],
        "metrics": ["evaluate", run, "--json"],
        "predicted": ["predict", run, "--head", "man0", "--relation", "parent", "--json"],
        "explained": ["explain", run, *TRIPLE, "--json"],
        "new": ["predict", run, "--facts", facts, "--head", "newcomer", "--relation", "parent", "--json"],
        "new explained": ["explain", run, "--facts", facts, "newcomer", "parent", "a0", "--json"],
        "report": ["report", run, "--out", report],
        "exported": ["export", run, "--out", exported, "--json"],
        "doctor": ["doctor", run, "--json"],
    }
    outputs = dict(zip(commands, run_commands(*commands.values()), strict=True))
    results = {name: json.loads(text) for name, text in outputs.items() if "--json" in commands[name]}
    assert results["resumed"]["iteration"] == 2
    assert "hits_at_2" in results["trained"]["test"]["plogicnet*"]

    # the metric is in every table, and the system's name in its row
    assert "Hits@2" in outputs["table"]
    assert "Frequency (rules alone)" in outputs["table"]
    metrics = results["metrics"]
    star = metrics["plogicnet*"]
    assert star["hits_at_1"] <= star["hits_at_2"] <= star["hits_at_3"]
    assert star["by_relation"]["parent"].keys() == metrics["neural"]["by_side"]["head"].keys() >= {"hits_at_2"}
    assert "Hits@2" in report.read_text(encoding="utf-8")

    explanation = results["explained"]
    assert explanation["rules"]
    contributions = sum(rule["contribution"] for rule in explanation["rules"])
    assert explanation["log_odds"] == pytest.approx(explanation["base"] + contributions)

    # the model scores an entity that is not in the training graph by its new facts
    for name in ("predicted", "new"):
        assert len(results[name]["predictions"]) == 10
        assert all(row["q"] is not None for row in results[name]["predictions"])
    assert results["new explained"]["q"] is not None
    assert results["new explained"]["paths"][0]["path"] == [["newcomer", "parent", "a0"]]

    assert results["exported"]["rules"] > 0
    assert "predictions.tsv" in results["exported"]["files"]
    assert not [name for name in results["exported"]["files"] if name.startswith("entities")], "the model has no tables"

    monkeypatch.setenv("PYTHONPATH", str(TOYS))
    with serving(run=run) as (_, address):

        def get(path: str) -> dict[str, object]:
            with urlopen(f"{address}api/{path}") as response:
                return dict(json.load(response))

        info = get("info")
        assert info["model"] == "Messages"
        assert "hits_at_2" in json.dumps(info)
        head, relation, tail = map(quote, TRIPLE)
        assert get(f"explain?head={head}&relation={relation}&tail={tail}")["q"] == explanation["q"]
