"""The path model on unusual graphs, with unusual settings, in EM, and after an interruption."""

import logging
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from plogicnet import Config, PLogicNet
from plogicnet.graph import KnowledgeGraph, add_facts
from plogicnet.neural.paths import model as path_model
from plogicnet.neural.paths.cost import training_cost
from plogicnet.neural.paths.model import PathModel
from plogicnet.neural.paths.settings import PathSettings
from plogicnet.neural.paths.steps import PathSteps
from plogicnet.neural.protocol import Checkpoint, Examples
from plogicnet.support.errors import InputError
from plogicnet.training.cost import require_memory
from small import small_graph

SMALL = PathSettings(dim=8, layers=2, steps=6, batch=4)
SETTINGS = {
    "neural.model": "Paths",
    "neural.steps": 10,
    "neural.batch": 8,
    "neural.paths.dim": 8,
    "neural.paths.layers": 2,
    "device": "cpu",
}


@pytest.mark.parametrize(
    "facts",
    [
        [("a", "r", "b")],
        [("a", "r", "a")],
        [("a", "r", "b"), ("b", "r", "a"), ("a", "s", "b")],
    ],
)
def test_tiny_graphs_are_trained(facts: list[tuple[str, str, str]]) -> None:
    """Graphs of one triple, one entity, one relation, and an entity without training triples."""
    graph = KnowledgeGraph.from_names(facts, valid=[("a", "r", "alone")])
    model = PathModel(graph, SMALL)
    model.fit(Examples.of(graph.train), seed=0)
    n = len(graph.entities)
    scores = model.score_answers(np.arange(n), np.zeros(n, dtype=np.int64), "tail")
    assert scores.shape == (n, n)
    assert bool(torch.isfinite(scores).all())


def test_a_training_without_triples_is_refused() -> None:
    graph = KnowledgeGraph.from_names([("a", "r", "b")])
    with pytest.raises(InputError, match="train has no triples"):
        PathModel(graph, SMALL).fit(Examples.of(graph.train[:0]), seed=0)


def test_a_diverging_training_names_the_learning_rate() -> None:
    graph = small_graph()
    model = PathModel(graph, PathSettings(dim=8, layers=2, steps=60, batch=4, learning_rate=1e30))
    with pytest.raises(FloatingPointError, match=r"smaller neural\.learning_rate"):
        model.fit(Examples.of(graph.train), seed=0)


def test_more_memory_than_there_is_is_refused_before_training() -> None:
    config = Config().with_values(SETTINGS | {"neural.batch": 10_000_000, "neural.paths.dim": 1000})
    with pytest.raises(InputError, match=r"MB of memory are needed.* use a smaller neural\.batch"):
        require_memory(small_graph(), config)


def test_fused_steps_need_much_less_memory() -> None:
    graph = small_graph()
    plain, fused = (training_cost(graph, PathSettings(), backend).bytes for backend in ("plain", "fused"))
    assert plain > 2 * fused
    assert training_cost(graph, PathSettings(), "fused", negatives=True).bytes > 1.5 * fused


def test_another_optimizer_is_refused() -> None:
    with pytest.raises(InputError, match=r"neural\.optimizer: the path model is trained with adam"):
        PathModel(small_graph(), PathSettings(optimizer="adagrad"))


@pytest.mark.parametrize("stop", [3, 7])
def test_an_interrupted_training_ends_with_the_same_bits(
    stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, settings = small_graph(), PathSettings(dim=8, layers=2, steps=10, batch=4)
    whole, part, resumed = (PathModel(graph, settings) for _ in range(3))
    whole.fit(Examples.of(graph.train), seed=1)
    checkpoint, step = Checkpoint(tmp_path / "state.safetensors", every_steps=stop), PathSteps.step

    def fail_after_checkpoint(steps: PathSteps, number: int) -> None:
        if number == stop + 1:
            raise RuntimeError("killed")
        step(steps, number)

    monkeypatch.setattr(PathSteps, "step", fail_after_checkpoint)
    with pytest.raises(RuntimeError, match="killed"):
        part.fit(Examples.of(graph.train), seed=1, checkpoint=checkpoint)
    monkeypatch.setattr(PathSteps, "step", step)
    resumed.fit(Examples.of(graph.train), seed=1, checkpoint=checkpoint)
    for name, value in whole.parameters.items():
        assert torch.equal(value, resumed.parameters[name]), name


def test_accepted_triples_become_edges_if_asked_for() -> None:
    graph = small_graph()
    new = np.array([[0, 0, 5], [1, 0, 4]])
    examples = Examples(np.concatenate([graph.train, new]), np.r_[np.ones(len(graph.train)), 0.9, 0.2], graph.train[:0])
    settings = PathSettings(dim=8, layers=2, steps=2, batch=4, message_graph="accepted")
    model, observed = PathModel(graph, settings), PathModel(graph, SMALL)
    model.fit(examples, seed=0)
    observed.fit(examples, seed=0)
    assert model.accepted.tolist() == [[0, 0, 5]]
    assert len(model.edges) == len(observed.edges) + 2
    wider = model.bind(add_facts(graph, [("newcomer", "parent", "man0")]))
    assert len(wider.edges) == len(model.edges) + 2


@pytest.mark.parametrize("message_graph", ["observed", "accepted"])
def test_a_fact_is_scored_as_if_it_were_not_in_the_graph(message_graph: Literal["observed", "accepted"]) -> None:
    graph = small_graph()
    settings = PathSettings(dim=8, layers=2, steps=20, batch=8, message_graph=message_graph)
    model = PathModel(graph, settings)
    unknown = np.array([[0, 0, 5], [1, 0, 4]])
    model.fit(Examples.of(np.concatenate([graph.train, unknown])), seed=0)
    scores = model.score(np.concatenate([graph.train[:3], unknown]))
    for fact, score in zip([*graph.train[:3], *unknown], scores, strict=True):
        others = graph.train[(graph.train != fact).any(1)]
        without = PathModel(KnowledgeGraph("less", graph.entities, graph.relations, others), settings)
        without.parameters, without.mean_log_count = model.parameters, model.mean_log_count
        without.accepted = model.accepted[(model.accepted != fact).any(1)]
        without._connect()
        torch.testing.assert_close(without.score(fact[None])[0], score, rtol=1e-5, atol=1e-5)
        h, r, t = fact[:, None]
        if fact.tolist() in unknown.tolist():
            expected = without.score_all(h, r, "tail")[0, t[0]]
            torch.testing.assert_close(model.score_all(h, r, "tail")[0, t[0]], expected, rtol=1e-5, atol=1e-5)
    if message_graph == "accepted":  # a graph with the accepted triples as facts has the same edges
        wide = KnowledgeGraph("more", graph.entities, graph.relations, np.concatenate([graph.train, unknown]))
        assert len(model.bind(wide).edges) == len(model.edges)


def test_a_long_scoring_is_announced(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_model, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(path_model, "MAX_CHUNK_BYTES", {"cpu": 1})  # one query in each chunk
    model = PathModel(small_graph(), SMALL)
    with caplog.at_level(logging.WARNING):
        model.score_all(np.arange(6), np.zeros(6, dtype=np.int64), "tail")
    assert "scoring 6 queries takes about" in caplog.text


def test_em_trains_paths_with_rules(tmp_path: Path) -> None:
    """Both iterations, Platt scaling, pLogicNet*, a saved run and facts with a new entity."""
    config = Config().with_values(SETTINGS | {"em.iterations": 2})
    model = PLogicNet(config).fit(small_graph(), out=tmp_path / "run")
    assert len(model.history) == 2
    loaded = PLogicNet.load(tmp_path / "run")
    assert loaded.evaluate("test") == model.evaluate("test")
    slope, offset = loaded.fitted.outcome.neural.tables()["platt"].values  # type: ignore[union-attr]
    assert slope > 0
    assert (slope, offset) != (1, 0)
