"""The effort of completion: the recall on valid that it states is that of the candidates it gives."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from plogicnet.graph import SPLITS, KnowledgeGraph, TripleSet
from plogicnet.inference.fitted import FittedModel
from plogicnet.inference.pool import RECALLS, WITHOUT_VALID, choose_efforts, effort_for
from small import family_rows, fitted


def candidates(model: FittedModel, recall: float, known: Sequence[str] = ("train",)) -> TripleSet:
    pool = model.pool(recall, known)
    counted: list[float] = []
    parts = [pool.candidates(r, lambda n=1, note="": counted.append(n)) for r in range(len(model.graph.relations))]  # noqa: ARG005
    assert sum(counted) == pool.n_queries()
    return TripleSet.of(np.concatenate(parts), len(model.graph.entities))


@pytest.mark.parametrize("values", [{}, {"em.neural": False}, {"em.rules": False}], ids=str)
def test_the_candidates_have_the_stated_recall(values: dict[str, object]) -> None:
    rows = family_rows()
    model = fitted(values, KnowledgeGraph.from_names(rows[:60], rows[60:])).fitted
    sizes = []
    assert [effort.target for effort in model.efforts] == list(RECALLS)
    for target, effort in zip(RECALLS, model.efforts, strict=True):
        found = candidates(model, target)
        sizes.append(len(found))
        assert effort_for(model.efforts, target) == effort
        assert found.contains(model.graph.valid).mean() >= (effort.recall or 0.0), "ties can add candidates"
        assert (effort.recall or 0.0) >= target or effort.recall == model.efforts[-1].recall, "the largest recall"
        assert not model.graph.observed.contains(found.triples).any()
        new = candidates(model, target, SPLITS)
        assert not new.contains(model.graph.valid).any(), "a fact of the graph's own files is not missing"
        assert new.contains(
            found.triples[~TripleSet.of(model.graph.valid, found.entities).contains(found.triples)]
        ).all()
    assert sizes == sorted(sizes)


def test_a_higher_recall_than_any_has_the_largest_effort() -> None:
    model = fitted().fitted
    assert effort_for(model.efforts, 1.0) == model.efforts[-1]
    assert effort_for((), 0.9) == WITHOUT_VALID


def test_without_validation_triples_there_is_nothing_to_choose() -> None:
    model = fitted().fitted
    graph = replace(model.graph, valid=model.graph.valid[:0])
    hidden = model.outcome.rule_model.hidden
    assert choose_efforts(graph, model.outcome.neural, model.rules, hidden, seed=0) == ()
