"""The contract of a neural model, on which the rest of the program relies.

A test of a model calls `check_model(make, folder)`. `make` must return the same untrained model of a graph each time.
"""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from plogicnet.graph import KnowledgeGraph, Side, add_facts
from plogicnet.neural.protocol import Checkpoint, Examples, ExtensibleModel, NeuralModel, ProposingModel
from small import small_graph

Make = Callable[[KnowledgeGraph], NeuralModel]
SIDES: tuple[Side, Side] = ("head", "tail")


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def check_model(make: Make, folder: Path) -> None:
    """Check the whole contract on the small graph."""
    graph = small_graph()
    model = make(graph)
    model.fit(Examples.of(graph.train), seed=3)
    check_scores(model, graph)
    check_scale(model, graph)
    check_fit(make, model, graph, folder)
    check_save(make, model, graph, folder)
    check_bind(model, graph)
    check_larger_graph(make, model, graph, folder)
    check_copy(model, graph)
    check_attributes(model, graph)
    check_hide_self(model, graph)


def grid(graph: KnowledgeGraph, entities: int = 6) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """Return all triples over the first entities."""
    return np.indices((entities, len(graph.relations), entities)).reshape(3, -1).T.copy()


def check_scores(model: NeuralModel, graph: KnowledgeGraph) -> None:
    """Check that `score`, `score_all` and `score_answers` agree and do not depend on the other queries."""
    triples = grid(graph)
    scores = model.score(triples)
    assert scores.shape == (len(triples),)
    assert scores.device == model.device
    assert bool(torch.isfinite(scores).all())
    assert_near(model.score(triples[::-1].copy()).flip(0), scores)
    assert model.score(triples[:0]).shape == (0,)
    for side in SIDES:
        known, answer = (2, 0) if side == "head" else (0, 2)
        every = model.score_all(triples[:, known], triples[:, 1], side)
        whole = model.score_answers(triples[:, known], triples[:, 1], side)
        assert every.shape == whole.shape == (len(triples), len(graph.entities))
        at = torch.arange(len(triples)), torch.from_numpy(triples[:, answer].copy())
        assert_near(whole[at], scores)
        some = np.array([3, 1, 5])
        part = model.score_answers(triples[:, known], triples[:, 1], side, some)
        assert_near(part, whole[:, some])
        single = model.score_all(triples[:1, known], triples[:1, 1], side)
        assert_near(single, every[:1])
        every.fill_(0.0)  # the caller can overwrite the tensor
        torch.testing.assert_close(model.score(triples), scores, rtol=0, atol=0)


def check_scale(model: NeuralModel, graph: KnowledgeGraph) -> None:
    """Check that `rescale` changes the scores linearly."""
    triples = grid(graph)
    before = model.score(triples)
    model.rescale(2.0, -1.0)
    assert_near(model.score(triples), 2 * before - 1)
    model.rescale(1.0, 0.0)


def check_fit(make: Make, model: NeuralModel, graph: KnowledgeGraph, folder: Path) -> None:
    """Check that the same seed gives the same bits, also with a checkpoint, and that all examples matter."""
    triples, examples = grid(graph), Examples.of(graph.train)
    again, other, saved = make(graph), make(graph), make(graph)
    again.fit(examples, seed=3)
    other.fit(examples, seed=4)
    assert torch.equal(again.score(triples), model.score(triples))
    assert not torch.equal(other.score(triples), model.score(triples))
    checkpoint = Checkpoint(folder / "state.safetensors", every_steps=1)
    saved.fit(examples, seed=3, checkpoint=checkpoint)
    resumed = make(graph)
    resumed.fit(examples, seed=3, checkpoint=checkpoint)
    assert torch.equal(resumed.score(triples), model.score(triples))
    weighted, with_negatives = make(graph), make(graph)
    weighted.fit(Examples(graph.train, np.linspace(0.1, 1, len(graph.train)), graph.train[:0]), seed=3)
    with_negatives.fit(Examples(graph.train, np.ones(len(graph.train)), triples[:5]), seed=3)
    assert not torch.equal(weighted.score(triples), model.score(triples)), "weights must matter"
    assert not torch.equal(with_negatives.score(triples), model.score(triples)), "explicit negatives must matter"


def check_save(make: Make, model: NeuralModel, graph: KnowledgeGraph, folder: Path) -> None:
    """Check that `load` restores the saved model bit for bit, including the scale."""
    triples = grid(graph)
    model.rescale(1.5, 0.25)
    model.save(folder / "neural.safetensors")
    loaded = make(graph)
    loaded.load(folder / "neural.safetensors")
    assert torch.equal(loaded.score(triples), model.score(triples))
    model.rescale(1.0, 0.0)


def check_bind(model: NeuralModel, graph: KnowledgeGraph) -> None:
    """Check that a bound model returns NaN exactly for unscorable entities; `bind` must not change the model."""
    wide = add_facts(graph, [("newcomer", "parent", "man0"), ("man1", "parent", "newcomer")])
    before = model.score(grid(graph))
    bound = model.bind(wide)
    new = wide.entities.id("newcomer")
    assert len(bound.unscorable) == len(wide.entities) == len(model.unscorable) + 1
    unscorable = bound.unscorable
    triples = np.concatenate([grid(wide), [[new, 0, 1], [1, 0, new], [new, 0, new]]])
    has_unscorable = unscorable[triples[:, [0, 2]]].any(axis=1)
    assert torch.isnan(bound.score(triples)).tolist() == has_unscorable.tolist()
    for side in SIDES:
        known = np.array([0, new, 2])
        scores = bound.score_all(known, np.zeros(3, dtype=np.int64), side)
        assert scores.shape == (3, len(wide.entities))
        np.testing.assert_array_equal(torch.isnan(scores).cpu().numpy(), unscorable[known][:, None] | unscorable)
        some = np.array([new, 0])
        part = bound.score_answers(known, np.zeros(3, dtype=np.int64), side, some)
        np.testing.assert_array_equal(torch.isnan(part).cpu().numpy(), unscorable[known][:, None] | unscorable[some])
    assert torch.equal(model.score(grid(graph)), before)


def check_larger_graph(make: Make, model: NeuralModel, graph: KnowledgeGraph, folder: Path) -> None:
    """Check that a bound model can be saved and trained, and that an extensible one learns new entities alone."""
    wide, triples = add_facts(graph, [("newcomer", "parent", "man0"), ("man1", "parent", "newcomer")]), grid(graph)
    new = np.array([wide.entities.id("newcomer")])
    about_new = np.stack(np.broadcast_arrays(new, 0, np.arange(len(wide.entities))), axis=1)
    all_triples = np.concatenate([triples, about_new])

    def saved(other: NeuralModel) -> NeuralModel:
        other.save(folder / "wide.safetensors")
        loaded = make(wide)
        loaded.load(folder / "wide.safetensors")
        torch.testing.assert_close(loaded.score(all_triples), other.score(all_triples), rtol=0, atol=0, equal_nan=True)
        return loaded

    model.rescale(2.0, -1.0)
    bound = model.bind(wide)
    trained = saved(bound)
    if isinstance(bound, ExtensibleModel) and bound.has_entity_parameters:
        unscorable = bound.unscorable
        extended, again, other = (bound.extended(new, 3, seed) for seed in (0, 0, 1))
        assert not extended.unscorable.any()
        assert np.array_equal(bound.unscorable, unscorable), "the model itself must stay"
        assert torch.equal(extended.score(triples), bound.score(triples)), "scores without new entities must stay"
        assert torch.equal(extended.score(about_new), again.score(about_new))
        assert not torch.equal(extended.score(about_new), other.score(about_new))
        saved(extended)
    trained.fit(Examples.of(wide.train), seed=3, warm=True)
    assert not trained.unscorable.any()
    assert bool(torch.isfinite(trained.score(all_triples)).all())
    model.rescale(1.0, 0.0)


def check_copy(model: NeuralModel, graph: KnowledgeGraph) -> None:
    """Check that training a deep copy does not change the model; EM keeps the best iteration this way."""
    before = model.score(grid(graph))
    copied = copy.deepcopy(model)
    copied.fit(Examples.of(graph.train), seed=9, warm=True)
    assert torch.equal(model.score(grid(graph)), before)


def check_attributes(model: NeuralModel, graph: KnowledgeGraph) -> None:
    """Check the types and shapes of attributes, tables and reasons."""
    assert isinstance(model.is_logit, bool)
    assert isinstance(model.is_pairwise, bool)
    assert model.bytes_per_query > 0
    assert not model.unscorable.any(), "every entity of the training graph must be scorable"
    rows = {"entity": len(graph.entities), "relation": len(graph.relations)}
    for name, table in model.tables().items():
        assert name.isidentifier()
        assert table.row_kind is None or len(table.values) == rows[table.row_kind]
    reasons = model.reasons(graph.test[0])
    for neighbour in reasons.neighbours:
        assert graph.observed.contains(neighbour.fact[None, :]).all(), "a neighbour's fact must be known"
    for path in reasons.paths:
        assert graph.observed.contains(path.triples).all(), "a path must consist of known facts"
    if isinstance(model, ProposingModel):
        proposals = model.propose_rules(graph.train[:5])
        assert min(proposals.values(), default=1.0) > 0
        hypotheses = {rule.head.relation for rule in proposals}
        assert hypotheses <= {graph.names(fact)[1] for fact in graph.train[:5]}
        assert all(rule.chain is not None for rule in proposals)


def check_hide_self(model: NeuralModel, graph: KnowledgeGraph) -> None:
    """Check that `hide_self` changes at most the scores of known facts, with the same scale, also after `bind`."""
    triples = np.concatenate([graph.train[:5], graph.test[:5]])
    plain, hidden = model.score(triples), model.score(triples, hide_self=True)
    assert bool(torch.isfinite(hidden).all())
    assert_near(hidden[5:], plain[5:])
    model.rescale(2.0, -1.0)
    assert_near(model.score(triples, hide_self=True), 2 * hidden - 1)
    model.rescale(1.0, 0.0)
    bound = model.bind(add_facts(graph, [("newcomer", "parent", "man0")]))
    assert bool(torch.isfinite(bound.score(triples, hide_self=True)).all())
