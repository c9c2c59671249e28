"""The other systems through the real commands: train, evaluate, predict, explain, resume; and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from calling import Call, answer
from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, demo_family
from plogicnet.model import Hooks
from plogicnet.support.errors import InputError
from reproduction.tables import paper
from small import SMALL, small_graph, write_small_graph
from stopping import StoppedError, different, stop_at

SYSTEMS = ("blp", "ruge", "nne_aer")
SOFTMAX = {"neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1}
QUICK = [f"--set={key}={value}" for key, value in SMALL.items() if key not in ("device", "threads")]
QUICK += ["--device=cpu", "--threads=1"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_train_evaluate_predict_and_explain(call: Call, tmp_path: Path, system: str) -> None:
    graph, run = write_small_graph(tmp_path), tmp_path / "run"
    trained = answer(call, "train", graph, "--out", run, *QUICK, f"--set=system={system}")
    figures = answer(call, "evaluate", run)
    assert figures == trained["test"]
    own = "rules" if system == "blp" else "neural"
    assert 0 < figures[own]["mrr"] <= 1
    # the system alone judges: what is best by it is what is shown
    assert figures["plogicnet*"]["mrr"] == figures[own]["mrr"]
    name = {"blp": "BLP (rules alone)", "ruge": "RUGE (neural model alone)", "nne_aer": "NNE-AER (neural model alone)"}
    assert own_lines(call("evaluate", run)[1]) == [name[system]]
    found = answer(call, "predict", run, "--head", "man0", "--relation", "parent", "--top", "3")["predictions"]
    assert len(found) == 3
    key = "p_w" if system == "blp" else "q"
    assert [f[key] for f in found] == sorted((f[key] for f in found), reverse=True)
    about = answer(call, "explain", run, "man0", "parent", found[0]["tail"])
    assert about["p_w"] == pytest.approx(found[0]["p_w"])
    assert (about["q"] is None) == (system == "blp")
    rules = answer(call, "rules", run)["rules"]
    assert rules
    assert all(rule["weight"] >= 0 for rule in rules if rule["weight"] is not None) or system != "blp"
    code, _, said = call("resume", run)
    assert code == 2
    assert "it is trained once, without EM" in said  # more iterations would be refused


def own_lines(table: str) -> list[str]:
    """What lines of a table of figures are called, of those that name one of the other systems."""
    titles = [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]
    return [title for title in titles if "(" in title]


@pytest.mark.parametrize(
    ("system", "left"),
    [
        ("blp", "BLP is one probability for all of a relation's triples"),
        ("ruge", "RUGE is plain ComplEx;"),
        ("nne_aer", "NNE-AER is ComplEx with entities in [0, 1];"),
    ],
)
def test_a_training_without_rules_says_what_is_left(
    call: Call, tmp_path: Path, caplog: pytest.LogCaptureFixture, system: str, left: str
) -> None:
    train = ["train", write_small_graph(tmp_path), *QUICK, f"--set=system={system}"]
    answer(call, *train, "--out", tmp_path / "with")
    assert not [r for r in caplog.records if r.name == "plogicnet.systems.system"]
    answer(call, *train, "--out", tmp_path / "without", "--set=rules.min_support=100000")
    (said,) = [r.getMessage() for r in caplog.records if r.name == "plogicnet.systems.system"]
    assert f"no rule is left, so {left}" in said
    assert "a lower rules.min_precision or rules.min_support" in said


def test_ruge_says_so_where_its_rules_conclude_nothing_new(caplog: pytest.LogCaptureFixture) -> None:
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
    said = call(*train, "--out", tmp_path / "run")[1]
    assert own_lines(said) == ["BLP (rules alone)"]
    assert own_lines(call(*train, "--out", tmp_path / "runs", "--seeds=0,1")[1]) == ["BLP (rules alone)"]


@pytest.mark.parametrize("values", [{}, SOFTMAX])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_training_that_was_stopped_ends_in_the_same_bits(
    tmp_path: Path, system: str, values: dict[str, object]
) -> None:
    config = Config().with_values(SMALL | {"neural.steps": 60, "system": system} | values)
    PLogicNet(config).fit(small_graph(), out=tmp_path / "whole")
    stopped = tmp_path / "stopped"
    place, after = ("grounding", 0) if system == "blp" else ("training", 50)
    hooks = Hooks(stop_at(place, error=KeyboardInterrupt, after=after))
    with pytest.raises((StoppedError, KeyboardInterrupt)):
        PLogicNet(config).fit(small_graph(), out=stopped, hooks=hooks)
    assert (stopped / "checkpoint" / "e_step.safetensors").exists() == (system != "blp")
    PLogicNet.resume(stopped)
    assert different(tmp_path / "whole", stopped) == []
    again = PLogicNet.load(stopped)
    assert again.evaluate() == again.metrics["test"]


def test_another_guide_does_not_go_on_from_a_checkpoint() -> None:
    """The fingerprint of a training holds what guides it."""
    from plogicnet.systems.nne_aer import Entailments

    one = np.zeros(1, dtype=np.int64)
    guides = [Entailments(one, one, np.ones(1), np.ones(1), mu) for mu in (0.1, 0.2)]
    assert guides[0].digest != guides[1].digest


def test_guided_vectors_differ_from_plain_ones_and_from_each_other() -> None:
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


def test_ruge_raises_what_rules_conclude() -> None:
    """On the family: the hidden triples' mean q is higher the more is asked of them."""

    def hidden_q(c: float) -> float:
        values = {"system": "ruge", "neural.steps": 300, "systems.ruge.c": c}
        model = PLogicNet(Config().with_values(SMALL | values)).fit(demo_family())
        return float(model.fitted.outcome.hidden_q.mean())

    assert hidden_q(0.5) > hidden_q(0.0) + 0.1


@pytest.mark.parametrize(
    ("system", "setting", "said"),
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
def test_senseless_settings_are_refused(call: Call, tmp_path: Path, system: str, setting: str, said: str) -> None:
    graph = write_small_graph(tmp_path)
    code, out, error = call(
        "train", graph, "--out", tmp_path / "run", *QUICK, f"--set=system={system}", "--set", setting
    )
    assert (code, out) == (2, "")
    assert said in error
    assert not (tmp_path / "run").exists()


def test_written_rules_that_are_no_entailments_are_refused() -> None:
    config = Config().with_values(SMALL | {"system": "nne_aer"})
    with pytest.raises(InputError, match="one premise"):
        PLogicNet(config).fit(small_graph(), rules="parent(X, Y) & sibling(Y, Z) => parent(X, Z)")


def test_settings_said_after_the_system_win_over_those_that_it_sets() -> None:
    config = Config().with_assignments(["system=ruge", "rules.patterns=[inverse]"])
    assert (config.neural.model, config.rules.patterns) == ("ComplEx", ("inverse",))
    assert Config().with_yaml(config.to_yaml(), "config.yaml") == config
    # a file is read as a whole, wherever in it the system stands
    text = "rules: {patterns: [inverse]}\nsystem: ruge\n"
    assert Config().with_yaml(text, "my.yaml") == config


def test_every_row_of_these_systems_has_a_run() -> None:
    rows = [row for row in paper().rows("1", "2", "8", "9") if row.name in ("BLP", "RUGE", "NNE-AER")]
    assert len(rows) == 4 + 2 + 4
    for row in rows:
        (compared,) = [line for line in row.lines if line.compared]
        run = paper().runs[compared.runs[0]]
        assert run.config().system == row.name.lower().replace("-", "_")
        assert run.preset == f"paper/{row.dataset}-{run.config().system}"


def test_a_refused_resume_leaves_the_run_as_it_was(call: Call, tmp_path: Path) -> None:
    graph, run = write_small_graph(tmp_path), tmp_path / "run"
    answer(call, "train", graph, "--out", run, *QUICK, "--set=system=ruge")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and file.name != "log.txt"}
    code, _, said = call("resume", run, "--set", "em.iterations=2")
    assert code == 2
    assert "is trained once" in said
    assert {file: file.read_bytes() for file in before} == before
    answer(call, "evaluate", run)
