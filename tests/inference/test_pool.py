"""The effort of completion: the recall on valid that it states is that of the candidates it gives."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from plogicnet.graph import SIDES, SPLITS, KnowledgeGraph, TripleSet
from plogicnet.inference.fitted import FittedModel
from plogicnet.inference.pool import (
    CANDIDATE_COST,
    RECALLS,
    TOPS,
    WITHOUT_VALID,
    Effort,
    choose_efforts,
    count_queries,
    effort_for,
)
from plogicnet.support.errors import InputError
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


def test_the_effort_for_a_recall_between_two_is_the_larger_one() -> None:
    efforts = fitted().fitted.efforts
    assert effort_for(efforts, 0.0) == efforts[0]
    assert effort_for(efforts, 0.96) == efforts[RECALLS.index(0.98)]
    assert effort_for(efforts, 1.0) == efforts[-1]
    assert effort_for((), 0.9) == WITHOUT_VALID


def test_without_validation_triples_there_is_nothing_to_choose() -> None:
    model = fitted().fitted
    graph = replace(model.graph, valid=model.graph.valid[:0])
    hidden = model.outcome.rule_model.hidden
    assert choose_efforts(graph, model.outcome.neural, model.rules, hidden, seed=0) == ()


@pytest.mark.parametrize("values", [{}, {"em.rules": False}], ids=str)
def test_the_effort_is_the_cheapest_one(values: dict[str, object]) -> None:
    """Try every evidence that an entity has, and every number of answers."""
    rows = family_rows()
    model = fitted(values, KnowledgeGraph.from_names(rows[:60], rows[60:80])).fitted
    graph, slots = model.graph, model.slots
    every = np.unique(np.concatenate([slots.evidence(r, side) for r in range(slots.n_relations) for side in SIDES]))
    options = []
    for evidence, top in itertools.product([*every, 1.0], TOPS):
        found = candidates(replace(model, efforts=(Effort(float(evidence), top, 1.0, 1.0),)), 1.0)
        queries = int(count_queries(slots, np.array([evidence]))[0])
        cost = queries * (len(graph.entities) + CANDIDATE_COST * top)
        options.append((cost, float(found.contains(graph.valid).mean())))
    for effort in model.efforts:
        cost = (effort.queries or 0) * (len(graph.entities) + CANDIDATE_COST * effort.top)
        reached = [c for c, recall in options if recall >= (effort.target or 0.0)]
        assert cost == min(reached), effort


def test_a_recall_must_be_a_share() -> None:
    with pytest.raises(InputError, match="recall must be between 0 and 1, got 7"):
        fitted({"em.neural": False}).complete(0.0, recall=7)


def test_an_entity_that_the_neural_model_cannot_score_has_only_conclusions_of_rules() -> None:
    model = fitted().with_facts([("man0", "parent", "newkid"), ("woman0", "parent", "newkid")])
    found = model.missing_about("newkid", top=30)
    assert found
    assert all(p.in_hidden for p in found)
