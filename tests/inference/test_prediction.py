"""Answers and missing facts compared with brute force over all candidates, on small graphs with many ties."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.calibration import Calibration
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.graph import (
    HEAD,
    MISSING,
    RELATION,
    SPLITS,
    TAIL,
    IntArray,
    KnowledgeGraph,
    Side,
    TripleSet,
    Vocabulary,
    as_triples,
    open_graph,
)
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.inference import prediction
from plogicnet.inference.fitted import FittedModel, PredictionBatch
from plogicnet.inference.pool import WITHOUT_VALID, Effort
from plogicnet.inference.prediction import about, complete, iter_answers, iter_missing
from plogicnet.neural.protocol import Examples, NeuralModel
from plogicnet.neural.registry import make_model
from plogicnet.support.errors import InputError
from plogicnet.training.em import initial_state
from plogicnet.training.hooks import Hooks
from small import SMALL, TableModel, fitted

MODELS = [
    *((model, "sampled") for model in ("TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE")),
    *((model, "one_vs_all") for model in ("DistMult", "ComplEx", "HolE", "ConvE")),
]
Triple = tuple[int, int, int]


def make_fitted(
    graph: KnowledgeGraph,
    neural: NeuralModel | None,
    weights: list[float],
    calibration: Calibration,
    ties: CombinedOrder,
) -> FittedModel:
    """Return a model with mined rules, the given weights and any neural model."""
    min_precision = dict.fromkeys(("composition", "inverse", "symmetric", "subrelation"), 0.0)
    values = SMALL | {f"rules.min_precision.{pattern}": least for pattern, least in min_precision.items()}
    config = Config().with_values(values)
    mined = collect_rules(graph, config, [])
    start = initial_state(graph, config, mined.rules, mined.constraints, Hooks())
    rule_weights = np.resize(weights, len(mined.rules))
    model = replace(start.rule_model, rules=mined.rules.with_weights(rule_weights))
    return FittedModel(graph, replace(start, neural=neural, rule_model=model), calibration, mined.n_candidates, ties)


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    n, m = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    every = list(itertools.product(range(n), range(m), range(n)))
    facts = draw(st.lists(st.sampled_from(every), unique=True, min_size=1, max_size=14))
    entities = Vocabulary("entity", tuple(f"e{i}" for i in range(n)))
    relations = Vocabulary("relation", tuple(f"r{i}" for i in range(m)))
    nothing = as_triples([])
    return KnowledgeGraph.from_ids(entities, relations, [as_triples(facts), nothing, nothing], "tiny")


CALIBRATIONS = st.builds(
    Calibration,
    st.sampled_from([-3.0, 0.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([-1.0, 0.0, 1.0]),
)
TIES = st.sampled_from([CombinedOrder(), CombinedOrder(lambda_=1.0), CombinedOrder(lambda_=2.0, combine="log_odds")])


@st.composite
def models(draw: st.DrawFn) -> FittedModel:
    """Draw scores, weights and coefficients from few values, so that many candidates are tied."""
    graph = draw(graphs())
    n, m = len(graph.entities), len(graph.relations)
    values = draw(st.lists(st.sampled_from([-2, 0, 1, 40, 50, 90]), min_size=m * n * n, max_size=m * n * n))
    neural = TableModel(np.array(values, dtype=np.float64).reshape(m, n, n))
    weights = draw(st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0]), min_size=1, max_size=5))
    if draw(st.booleans()):
        return make_fitted(graph, neural, weights, draw(CALIBRATIONS), draw(TIES))
    return make_fitted(graph, None, weights, draw(CALIBRATIONS), CombinedOrder(neural=False))


def slow_best(fitted_model: FittedModel, candidates: list[Triple]) -> list[Triple]:
    """Sort by probability, then by the keys of the ranking, then by relation, head, tail."""
    batch = fitted_model.predict_batch(as_triples(candidates))
    columns = (batch.probability, batch.score, batch.base, batch.log_odds, batch.forbidden)

    def keys(p: float, score: float, base: float, odds: float, forbidden: bool) -> tuple[float, ...]:
        evidence = odds - base
        p_w = float(special.expit(base + evidence))
        if forbidden:
            return p, -np.inf, -np.inf
        if not fitted_model.ties.neural:
            return p, p_w, evidence
        if fitted_model.ties.lambda_ == 0:
            return p, score, score
        if fitted_model.ties.combine == "probability":
            return p, float(special.expit(score)) + fitted_model.ties.lambda_ * p_w, score
        return p, score + fitted_model.ties.lambda_ * evidence, score

    rows = zip(candidates, *(column.tolist() for column in columns), strict=True)
    decorated = [(tuple(-x for x in keys(*values)), t[1], t[0], t[2]) for t, *values in rows]
    return [(h, r, t) for _, r, h, t in sorted(decorated)]


def every_query(graph: KnowledgeGraph) -> IntArray:
    n, m = len(graph.entities), len(graph.relations)
    rows = [
        *((h, r, MISSING) for h, r in itertools.product(range(n), range(m))),
        *((MISSING, r, t) for r, t in itertools.product(range(m), range(n))),
        *((h, MISSING, t) for h, t in itertools.product(range(n), range(n))),
    ]
    return as_triples(rows)[np.random.default_rng(0).permutation(len(rows))]


def candidates_of(graph: KnowledgeGraph, query: list[int], include_known: bool) -> list[Triple]:
    n, m = len(graph.entities), len(graph.relations)
    h, r, t = (range(size) if part == MISSING else [part] for part, size in zip(query, (n, m, n), strict=True))
    known = set() if include_known else {tuple(x) for x in graph.train.tolist()}
    return [c for c in itertools.product(h, r, t) if c not in known]


def by_query(found: Iterator[tuple[IntArray, PredictionBatch]], queries: int) -> list[list[Triple]]:
    lists: list[list[Triple]] = [[] for _ in range(queries)]
    last = -1
    for owners, batch in found:
        for owner, (h, r, t) in zip(owners.tolist(), batch.triples.tolist(), strict=True):
            assert owner >= last, "answers must have the order of the queries"
            last = owner
            lists[owner].append((h, r, t))
    return lists


@given(models(), st.integers(1, 8), st.booleans(), st.sampled_from([1, 7, 1 << 19]))
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
def test_the_best_answers_equal_brute_force(
    fitted_model: FittedModel, top: int, include_known: bool, chunk: int
) -> None:
    queries = every_query(fitted_model.graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "CHUNK_CANDIDATES", chunk)
        found = by_query(iter_answers(fitted_model, queries, top, include_known), len(queries))
    for query, got in zip(queries.tolist(), found, strict=True):
        assert got == slow_best(fitted_model, candidates_of(fitted_model.graph, query, include_known))[:top]


@pytest.mark.parametrize(("model", "recipe"), MODELS)
@given(graphs(), st.integers(0, 9), st.integers(1, 4))
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
def test_answers_of_vector_models_are_the_most_probable(
    model: str, recipe: str, graph: KnowledgeGraph, seed: int, top: int
) -> None:
    values = SMALL | {"neural.model": model, "neural.vectors.recipe": recipe, "neural.vectors.dim": 4}
    neural = make_model(graph, Config().with_values(values | {"neural.steps": 1}))
    neural.fit(Examples.of(graph.train), seed)
    fitted_model = make_fitted(
        graph, neural, [1.0, -0.5, 2.0], Calibration(-1.0, 0.7, 2.0, 0.3), CombinedOrder(lambda_=1.0)
    )
    queries = every_query(graph)
    lists = by_query(iter_answers(fitted_model, queries, top), len(queries))
    for query, got in zip(queries.tolist(), lists, strict=True):
        candidates = candidates_of(graph, query, include_known=False)
        every = dict(
            zip(candidates, fitted_model.predict_batch(as_triples(candidates)).probability.tolist(), strict=True)
        )
        assert len(got) == len(set(got)) == min(top, len(every))
        found = [every[c] for c in got]
        np.testing.assert_allclose(found, sorted(every.values(), reverse=True)[:top], rtol=1e-6)
    probabilities = np.unique(
        fitted_model.predict_batch(as_triples(list(itertools.product(*map(range, sizes(graph)))))).probability
    )
    gap = int(np.argmax(np.diff(probabilities)))  # rounding does not matter in the widest gap
    least = float(probabilities[gap : gap + 2].mean())
    for all_pairs in (False, True):
        found_missing = PredictionBatch.concat(
            [fitted_model.empty_batch(), *iter_missing(fitted_model, lambda: least, all_pairs)]
        )
        assert {tuple(t) for t in found_missing.triples.tolist()} == {
            c
            for c in missing_candidates(fitted_model, all_pairs)
            if float(fitted_model.predict_batch(as_triples([c])).probability[0]) >= least
        }


def sizes(graph: KnowledgeGraph) -> tuple[int, int, int]:
    return len(graph.entities), len(graph.relations), len(graph.entities)


def missing_candidates(fitted_model: FittedModel, all_pairs: bool) -> set[Triple]:
    """Return the unknown triples of the pool with the first effort, or all unknown triples."""
    graph, (effort, *_) = fitted_model.graph, fitted_model.efforts or (WITHOUT_VALID,)
    known = {(h, r, t) for h, r, t in graph.train.tolist()}
    if all_pairs:
        return {(h, r, t) for h, r, t in itertools.product(*map(range, sizes(graph)))} - known
    found = {(h, r, t) for h, r, t in fitted_model.outcome.rule_model.groundings.hidden.tolist()}
    for entity, relation in itertools.product(*map(range, sizes(graph)[:2])):
        for column, missing in ((HEAD, TAIL), (TAIL, HEAD)):
            if slow_evidence(graph, entity, relation, column) >= effort.evidence:
                query = [entity if i == column else MISSING if i == missing else relation for i in range(3)]
                answers = sorted(candidates_of(graph, query, include_known=False), key=lambda t: t[missing])
                found |= slow_best_halves(fitted_model, answers, effort.top)
    return found - known


def slow_evidence(graph: KnowledgeGraph, entity: int, relation: int, column: int) -> float:
    """Return the evidence that an entity has an unknown fact of a relation, by loops over all facts."""
    names = list(itertools.product(range(len(graph.relations)), (HEAD, TAIL)))
    filled = {
        (e, slot): sum(1 for fact in graph.train.tolist() if fact[slot[1]] == e and fact[RELATION] == slot[0])
        for e in range(len(graph.entities))
        for slot in names
    }
    of_slot = {slot: {e for e in range(len(graph.entities)) if filled[e, slot]} for slot in names}
    asked = relation, column
    if filled[entity, asked]:
        share = sum(count > 1 for count in filled.values()) / sum(count > 0 for count in filled.values())
        several = sum(filled[e, asked] > 1 for e in of_slot[asked])
        return (several + 2 * share) / (len(of_slot[asked]) + 2)
    base, best = len(of_slot[asked]) / len(graph.entities), 0.0
    for slot in names:
        both = len(of_slot[slot] & of_slot[asked])
        if filled[entity, slot] and both:
            best = max(best, (both + 2 * base) / (len(of_slot[slot]) + 2))
    return best


def slow_best_halves(fitted_model: FittedModel, answers: list[Triple], top: int) -> set[Triple]:
    """Return the best answers by score and those by rules. Answers that no rule concludes do not count for rules."""
    if not answers:
        return set()
    batch = fitted_model.predict_batch(as_triples(answers))
    rows = list(range(len(answers)))

    def best(*keys: "np.ndarray[Any, Any]") -> list[int]:
        columns = [np.where(batch.forbidden, -np.inf, key) for key in keys]
        return sorted(rows, key=lambda i: tuple(-float(column[i]) for column in columns))[:top]

    found = {answers[i] for i in best(batch.p_w, batch.log_odds - batch.base) if batch.reached[i]}
    return found if fitted_model.outcome.neural is None else found | {answers[i] for i in best(batch.score)}


LEAST = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5, 0.7, 0.99, 1.0])


EFFORTS = st.builds(Effort, st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8]), st.integers(1, 4))


@given(models(), EFFORTS, LEAST, st.booleans(), st.sampled_from([1, 5, 1 << 19]))
@settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
def test_completion_equals_brute_force(
    fitted_model: FittedModel, effort: Effort, least: float, all_pairs: bool, chunk: int
) -> None:
    fitted_model = replace(fitted_model, efforts=(effort,))
    wanted = [
        c
        for c in missing_candidates(fitted_model, all_pairs)
        if fitted_model.predict_batch(as_triples([c])).probability[0] >= least
    ]
    groups = itertools.groupby(sorted(wanted, key=lambda t: (t[1], t[0], t[2])), key=lambda t: (t[1], t[0]))
    expected = [c for _, group in groups for c in slow_best(fitted_model, list(group))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "CHUNK_CANDIDATES", chunk)
        batches = list(iter_missing(fitted_model, lambda: least, all_pairs))
        assert [tuple(t) for batch in batches for t in batch.triples.tolist()] == expected
        widest = max(len(fitted_model.graph.entities), chunk)
        assert all(len(batch) <= widest for batch in batches), "a batch must not be larger than a chunk"
        for top in (1, 3, 1000):
            found = complete(fitted_model, least, top, all_pairs)
            assert [tuple(t) for t in found.triples.tolist()] == slow_best(fitted_model, wanted)[:top]


@given(models(), EFFORTS, st.integers(1, 5), st.sampled_from([(HEAD, "tail"), (TAIL, "head")]))
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
def test_missing_facts_about_an_entity_equal_brute_force(
    fitted_model: FittedModel, effort: Effort, top: int, sides: tuple[int, Side]
) -> None:
    fitted_model, (column, missing) = replace(fitted_model, efforts=(effort,)), sides
    graph, entity = fitted_model.graph, 0
    hidden = fitted_model.outcome.rule_model.groundings.hidden
    found = {(h, r, t) for h, r, t in hidden[hidden[:, column] == entity].tolist()}
    of_slots = fitted_model.slots.evidence_of(entity).reshape(2, -1)[column // 2]
    for relation in range(len(graph.relations)):
        assert of_slots[relation] == pytest.approx(slow_evidence(graph, entity, relation, column), abs=1e-12)
        if slow_evidence(graph, entity, relation, column) >= effort.evidence:
            query = [entity if i == column else relation if i == RELATION else MISSING for i in range(3)]
            answers = sorted(candidates_of(graph, query, include_known=False), key=lambda t: t[TAIL - column])
            found |= slow_best_halves(fitted_model, answers, max(top, effort.top))
    batch = about(fitted_model, entity, missing, top)
    assert [tuple(t) for t in batch.triples.tolist()] == slow_best(fitted_model, sorted(found))[:top]


def test_completion_calls_the_threshold_before_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "CHUNK_CANDIDATES", 10)
    fitted_model, least = fitted().fitted, [0.0]
    seen = list[tuple[float, float]]()
    for batch in iter_missing(fitted_model, lambda: least[0]):
        seen.append((least[0], batch.probability.min(initial=1.0)))
        least[0] += 0.01
    assert len(seen) > 10
    assert all(lowest >= threshold for threshold, lowest in seen)


def test_a_triple_has_the_same_probability_in_every_query() -> None:
    """Compare queries by head, by tail and by relation, a completion and a single prediction."""
    model = fitted({"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1})
    fitted_model = model.fitted
    for p in model.complete(0.05)[:20]:
        single = model.predict(p.head, p.relation, p.tail)[0].probability
        answers = [
            model.predict(head=p.head, relation=p.relation, top=40),
            model.predict(relation=p.relation, tail=p.tail, top=40),
            model.predict(head=p.head, tail=p.tail, top=40),
        ]
        for found in answers:
            [same] = [x for x in found if (x.head, x.relation, x.tail) == (p.head, p.relation, p.tail)]
            assert same.probability == pytest.approx(single, rel=1e-6)
        assert p.probability == pytest.approx(single, rel=1e-6)
    assert fitted_model.empty_batch().triples.shape == (0, 3)


def test_invalid_queries_are_rejected() -> None:
    fitted_model = fitted().fitted
    with pytest.raises(InputError, match="top must be at least 1, got 0"):
        list(iter_answers(fitted_model, as_triples([(0, 0, MISSING)]), top=0))
    for query in [(0, 0, 0), (MISSING, 0, MISSING)]:
        with pytest.raises(InputError, match="exactly one of head, relation and tail must be missing"):
            list(iter_answers(fitted_model, as_triples([query])))
    with pytest.raises(InputError, match="top must be at least 1, got 0"):
        complete(fitted_model, 0.5, top=0)
    assert list(iter_answers(fitted_model, as_triples([]))) == []


@pytest.fixture(scope="module")
def umls() -> PLogicNet:
    if not (Path(os.environ.get("PLOGICNET_DATA", "no-data")) / "umls").is_dir():
        pytest.skip("UMLS is not available")
    return fitted({"neural.steps": 200, "neural.vectors.dim": 16, "em.iterations": 1}, open_graph("umls"))


@pytest.mark.parametrize("least", [0.02, 0.3])
def test_completion_of_umls_equals_brute_force(umls: PLogicNet, least: float) -> None:
    fitted_model = umls.fitted
    n, m, _ = sizes(fitted_model.graph)
    every = as_triples(np.stack(np.meshgrid(np.arange(n), np.arange(m), np.arange(n), indexing="ij"), -1))
    known = TripleSet.of(np.concatenate([fitted_model.graph.split(s) for s in SPLITS]), n)
    probable = every[(fitted_model.predict_batch(every).probability >= least) & ~known.contains(every)]
    wanted = {tuple(t) for t in probable.tolist()}
    assert len(wanted) > 50
    for all_pairs in (True, False):
        got = [
            tuple(t) for batch in iter_missing(fitted_model, lambda: least, all_pairs) for t in batch.triples.tolist()
        ]
        assert len(got) == len(set(got))
        assert set(got) == wanted if all_pairs else wanted >= set(got)


def test_answers_on_umls_equal_brute_force(umls: PLogicNet) -> None:
    fitted_model = umls.fitted
    queries = np.repeat(fitted_model.graph.test[:40], 3, axis=0)
    for column in (HEAD, RELATION, TAIL):
        queries[column::3, column] = MISSING
    for i, got in enumerate(by_query(iter_answers(fitted_model, queries, top=7), len(queries))):
        candidates = as_triples(candidates_of(fitted_model.graph, queries[i].tolist(), include_known=False))
        best = fitted_model.predict_batch(candidates)
        assert got == [tuple(t) for t in best.take(best.order(fitted_model.ties)[:7]).triples.tolist()]
