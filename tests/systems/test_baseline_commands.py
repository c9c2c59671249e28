"""The other systems in the commands train, evaluate, predict, explain and resume, and their errors."""

import re
from pathlib import Path

import numpy as np
import pytest

from calling import Call, call_json
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, demo_family
from plogicnet.model import Hooks
from plogicnet.runs.directory import E_STEP_FILE
from plogicnet.support.errors import InputError
from reproduction.tables import paper
from small import SMALL, small_graph, write_small_graph
from stopping import StoppedError, different, stop_at, tree_of

SYSTEMS = ("blp", "ruge", "nne_aer")
SOFTMAX = {"neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1}
QUICK = [f"--set={key}={value}" for key, value in SMALL.items() if key not in ("device", "threads")]
QUICK += ["--device=cpu", "--threads=1"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_train_evaluate_predict_explain_and_resume(call: Call, tmp_path: Path, system: str) -> None:
    graph, run = write_small_graph(tmp_path), tmp_path / "run"
    trained = call_json(call, "train", graph, "--out", run, *QUICK, f"--set=system={system}")
    metrics = call_json(call, "evaluate", run)
    assert metrics == trained["test"]
    main = "rules" if system == "blp" else "neural"
    assert 0 < metrics[main]["mrr"] <= 1
    # predictions use only the system's main ranking
    assert metrics["plogicnet*"]["mrr"] == metrics[main]["mrr"]
    title = {"blp": "BLP (rules alone)", "ruge": "RUGE (neural model alone)", "nne_aer": "NNE-AER (neural model alone)"}
    assert system_titles(call("evaluate", run)[1]) == [title[system]]
    predictions = call_json(call, "predict", run, "--head", "man0", "--relation", "parent", "--top", "3")["predictions"]
    assert len(predictions) == 3
    key = "p_w" if system == "blp" else "q"
    values = [prediction[key] for prediction in predictions]
    assert values == sorted(values, reverse=True)
    explanation = call_json(call, "explain", run, "man0", "parent", predictions[0]["tail"])
    assert explanation["p_w"] == pytest.approx(predictions[0]["p_w"])
    assert (explanation["q"] is None) == (system == "blp")
    rules = call_json(call, "rules", run)["rules"]
    assert rules
    assert all(rule["weight"] >= 0 for rule in rules if rule["weight"] is not None) or system != "blp"
    code, _, error = call("resume", run)
    assert code == 2
    assert "It is trained once, without EM" in error  # no advice to add iterations


def system_titles(table: str) -> list[str]:
    """Return the row titles of a table of metrics that name one of the other systems."""
    titles = [re.split(r"│|  +", line.strip("│ "))[0].strip() for line in table.splitlines()]
    return [title for title in titles if title.endswith(" alone)")]


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("blp", "BLP gives all triples of a relation the same probability."),
        ("ruge", "RUGE is plain ComplEx."),
        ("nne_aer", "NNE-AER is ComplEx with entity vectors in [0, 1]."),
    ],
)
def test_a_training_without_rules_warns_with_a_remedy(
    call: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture, system: str, text: str
) -> None:
    train = ["train", write_small_graph(tmp_path), *QUICK, f"--set=system={system}"]
    call_json(call, *train, "--out", tmp_path / "with")
    assert not [r for r in caplog.records if r.name == "plogicnet.systems.system"]
    call_json(call, *train, "--out", tmp_path / "without", "--set=rules.min_support=100000")
    (message,) = [r.getMessage() for r in caplog.records if r.name == "plogicnet.systems.system"]
    assert f"there are no rules, so {text}" in message
    assert "lower rules.min_precision or rules.min_support" in message


def test_ruge_warns_if_its_rules_conclude_no_hidden_triple(caplog: pytest.LogCaptureFixture) -> None:
    rows = [(f"a{i}", "husband", f"b{i}") for i in range(9)] + [(f"b{i}", "wife", f"a{i}") for i in range(9)]
    graph = KnowledgeGraph.from_names(rows, rows[:1], rows[:1], "couples")
    values = SMALL | {"system": "ruge", "rules.mine": False, "neural.steps": 2}
    PLogicNet(Config().with_values(values)).fit(graph, rules="husband(X, Y) => wife(Y, X)")
    assert "no rule concludes a triple that is not observed, so RUGE is plain ComplEx" in caplog.text


def test_tables_of_training_and_of_seeds_name_the_system(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    train = ["train", write_small_graph(tmp_path), *QUICK, "--set=system=blp"]
    output = call(*train, "--out", tmp_path / "run")[1]
    assert system_titles(output) == ["BLP (rules alone)"]
    assert system_titles(call(*train, "--out", tmp_path / "runs", "--seeds=0,1")[1]) == ["BLP (rules alone)"]


@pytest.mark.parametrize("values", [{}, SOFTMAX])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_stopped_and_resumed_training_is_bit_identical(
    tmp_path: Path, system: str, values: dict[str, object]
) -> None:
    config = Config().with_values(SMALL | {"neural.steps": 60, "system": system} | values)
    PLogicNet(config).fit(small_graph(), out=tmp_path / "whole")
    stopped = tmp_path / "stopped"
    step, after = ("grounding", 0) if system == "blp" else ("training", 50)
    hooks = Hooks(stop_at(step, error=KeyboardInterrupt, after=after))
    with pytest.raises((StoppedError, KeyboardInterrupt)):
        PLogicNet(config).fit(small_graph(), out=stopped, hooks=hooks)
    assert (stopped / E_STEP_FILE).exists() == (system != "blp")
    PLogicNet.resume(stopped)
    assert different(tmp_path / "whole", stopped) == []
    again = PLogicNet.load(stopped)
    assert again.evaluate() == again.metrics["test"]


def test_the_digest_of_a_guide_depends_on_its_settings() -> None:
    """So a checkpoint of a training with another guide is not used."""
    from plogicnet.systems.nne_aer import Entailments

    one = np.zeros(1, dtype=np.int64)
    guides = [Entailments(one, one, np.ones(1), np.ones(1), mu) for mu in (0.1, 0.2)]
    assert guides[0].digest != guides[1].digest


def test_guides_change_the_vectors() -> None:
    vectors = []
    for values in (
        {"neural.model": "ComplEx", "em.iterations": 1},
        {"system": "ruge", "systems.ruge.c": 0.5},
        {"system": "nne_aer"},
    ):
        model = PLogicNet(Config().with_values(SMALL | values)).fit(small_graph())
        neural = model.fitted.outcome.neural
        assert neural is not None
        vectors.append(neural.tables()["entities"].values)
    assert not any((a == b).all() for a, b in ((vectors[0], vectors[1]), (vectors[1], vectors[2])))
    assert vectors[2].min() >= 0


def test_ruge_raises_the_probability_of_concluded_triples() -> None:
    """The mean q of the hidden triples grows with C."""

    def hidden_q(c: float) -> float:
        values = {"system": "ruge", "neural.steps": 300, "systems.ruge.c": c}
        model = PLogicNet(Config().with_values(SMALL | values)).fit(demo_family())
        return float(model.fitted.outcome.hidden_q.mean())

    assert hidden_q(0.5) > hidden_q(0.0) + 0.1


@pytest.mark.parametrize(
    ("system", "setting", "remedy"),
    [
        ("ruge", "neural.model=TransE", "neural.model=ComplEx"),
        ("nne_aer", "neural.model=DistMult", "neural.model=ComplEx"),
        ("nne_aer", "rules.patterns=[composition]", "rules.patterns"),
        ("ruge", "em.iterations=2", "em.iterations=1"),
        ("ruge", "em.rules=false", "em.rules=true"),
        ("nne_aer", "em.neural=false", "em.neural=true"),
        ("ruge", "neural.kernels=fused", "neural.kernels=auto"),
        ("ruge", "mln.hidden_premises=sampled", "mln.hidden_premises=false"),
        ("blp", "em.neural=true", "em.neural=false"),
        ("blp", "mln.aggregate=mean", "mln.aggregate=sum"),
        ("blp", "mln.unit_clauses=false", "mln.unit_clauses=true"),
        ("blp", "mln.blanket=full", "mln.blanket=hypothesis"),
    ],
)
def test_contradictory_settings_are_errors(call: Call, tmp_path: Path, system: str, setting: str, remedy: str) -> None:
    graph = write_small_graph(tmp_path)
    code, out, error = call(
        "train", graph, "--out", tmp_path / "run", *QUICK, f"--set=system={system}", "--set", setting
    )
    assert (code, out) == (2, "")
    assert remedy in error
    assert not (tmp_path / "run").exists()


def test_nne_aer_rejects_written_rules_with_several_premises() -> None:
    config = Config().with_values(SMALL | {"system": "nne_aer"})
    with pytest.raises(InputError, match="NNE-AER supports only"):
        PLogicNet(config).fit(small_graph(), rules="parent(X, Y) & sibling(Y, Z) => parent(X, Z)")


def test_later_settings_override_those_that_a_system_implies() -> None:
    config = Config().with_assignments(["system=ruge", "rules.patterns=[inverse]"])
    assert (config.neural.model, config.rules.patterns) == ("ComplEx", ("inverse",))
    assert Config().with_yaml(config.to_yaml(), "config.yaml") == config
    # in a file the order does not matter
    text = "rules: {patterns: [inverse]}\nsystem: ruge\n"
    assert Config().with_yaml(text, "my.yaml") == config


def test_every_row_of_these_systems_in_the_paper_has_a_run() -> None:
    rows = [row for row in paper().rows("1", "2", "8", "9") if row.name in ("BLP", "RUGE", "NNE-AER")]
    assert len(rows) == 4 + 2 + 4
    for row in rows:
        (compared,) = [line for line in row.lines if line.compared]
        run = paper().runs[compared.runs[0]]
        assert run.config().system == row.name.lower().replace("-", "_")
        assert run.preset == f"paper/{row.dataset}-{run.config().system}"


def test_a_rejected_resume_does_not_change_the_run(call: Call, tmp_path: Path) -> None:
    graph, run = write_small_graph(tmp_path), tmp_path / "run"
    call_json(call, "train", graph, "--out", run, *QUICK, "--set=system=ruge")
    before = tree_of(run)
    code, _, error = call("resume", run, "--set", "em.iterations=2")
    assert code == 2
    assert "is trained once" in error
    assert tree_of(run) == before
    call_json(call, "evaluate", run)
