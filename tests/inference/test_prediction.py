"""The best answers and the missing facts against brute force over all candidates, on small graphs full of ties."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.calibration import Calibration
from plogicnet.evaluation.orders import Combination
from plogicnet.graph import HEAD, OPEN, RELATION, TAIL, IntArray, KnowledgeGraph, Vocabulary, as_triples, open_graph
from plogicnet.grounding.rulebook import find_rules
from plogicnet.inference import prediction
from plogicnet.inference.fitted import Fitted, Judged
from plogicnet.inference.prediction import Ends, answers, complete, completions, ends
from plogicnet.neural.protocol import Examples, NeuralModel, make_model
from plogicnet.support.errors import InputError
from plogicnet.training.em import begin
from plogicnet.training.hooks import Hooks
from small import SMALL, TableModel, fitted

MODELS = [
    *((model, "sampled") for model in ("TransE", "RotatE", "DistMult", "ComplEx", "HolE", "ConvE")),
    *((model, "one_vs_all") for model in ("DistMult", "ComplEx", "HolE", "ConvE")),
]
Triple = tuple[int, int, int]


def made(
    graph: KnowledgeGraph, neural: NeuralModel | None, weights: list[float], calibration: Calibration, ties: Combination
) -> Fitted:
    """A model of real rules, mined from the graph, with these weights; and of any neural model."""
    every = dict.fromkeys(("composition", "inverse", "symmetric", "subrelation"), 0.0)
    values = SMALL | {f"rules.min_precision.{pattern}": least for pattern, least in every.items()}
    config = Config().with_values(values)
    mined = find_rules(graph, config, [])
    start = begin(graph, config, mined.rules, mined.constraints, Hooks())
    own = np.resize(weights, len(mined.rules))
    model = replace(start.rule_model, rules=mined.rules.with_weights(own))
    return Fitted(graph, replace(start, neural=neural, rule_model=model), calibration, mined.candidates, ties)


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    n, m = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    every = list(itertools.product(range(n), range(m), range(n)))
    facts = draw(st.lists(st.sampled_from(every), unique=True, min_size=1, max_size=14))
    entities = Vocabulary("entity", tuple(f"e{i}" for i in range(n)))
    relations = Vocabulary("relation", tuple(f"r{i}" for i in range(m)))
    nothing = as_triples([])
    return KnowledgeGraph.from_numbers(entities, relations, [as_triples(facts), nothing, nothing], "tiny")


CALIBRATIONS = st.builds(
    Calibration,
    st.sampled_from([-3.0, 0.0]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([-1.0, 0.0, 1.0]),
)
TIES = st.sampled_from([Combination(), Combination(rule_share=1.0), Combination(rule_share=2.0, combine="log_odds")])


@st.composite
def models(draw: st.DrawFn) -> Fitted:
    """Scores, weights and coefficients of few values, so that many candidates are equal in all or in some."""
    graph = draw(graphs())
    n, m = len(graph.entities), len(graph.relations)
    values = draw(st.lists(st.sampled_from([-2, 0, 1, 40, 50, 90]), min_size=m * n * n, max_size=m * n * n))
    neural = TableModel(np.array(values, dtype=np.float64).reshape(m, n, n))
    weights = draw(st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0]), min_size=1, max_size=5))
    if draw(st.booleans()):
        return made(graph, neural, weights, draw(CALIBRATIONS), draw(TIES))
    return made(graph, None, weights, draw(CALIBRATIONS), Combination(neural=False))


def slow_best(f: Fitted, candidates: list[Triple]) -> list[Triple]:
    """Best first: by probability, then by the system's keys; equals by relation, head, tail."""
    judged = f.judged(as_triples(candidates))
    columns = (judged.probability, judged.score, judged.base, judged.log_odds, judged.forbidden)

    def keys(p: float, score: float, base: float, odds: float, forbidden: bool) -> tuple[float, ...]:
        evidence = odds - base
        p_w = float(special.expit(base + evidence))
        if forbidden:
            return p, -np.inf, -np.inf
        if not f.ties.neural:
            return p, p_w, evidence
        if f.ties.rule_share == 0:
            return p, score, score
        if f.ties.combine == "probability":
            return p, float(special.expit(score)) + f.ties.rule_share * p_w, score
        return p, score + f.ties.rule_share * evidence, score

    rows = zip(candidates, *(column.tolist() for column in columns), strict=True)
    decorated = [(tuple(-x for x in keys(*values)), t[1], t[0], t[2]) for t, *values in rows]
    return [(h, r, t) for _, r, h, t in sorted(decorated)]


def every_query(graph: KnowledgeGraph) -> IntArray:
    n, m = len(graph.entities), len(graph.relations)
    rows = [
        *((h, r, OPEN) for h, r in itertools.product(range(n), range(m))),
        *((OPEN, r, t) for r, t in itertools.product(range(m), range(n))),
        *((h, OPEN, t) for h, t in itertools.product(range(n), range(n))),
    ]
    return as_triples(rows)[np.random.default_rng(0).permutation(len(rows))]


def candidates_of(graph: KnowledgeGraph, query: list[int], include_known: bool) -> list[Triple]:
    n, m = len(graph.entities), len(graph.relations)
    h, r, t = (range(size) if part == OPEN else [part] for part, size in zip(query, (n, m, n), strict=True))
    known = set() if include_known else {tuple(x) for x in graph.train.tolist()}
    return [c for c in itertools.product(h, r, t) if c not in known]


def by_query(found: Iterator[tuple[IntArray, Judged]], queries: int) -> list[list[Triple]]:
    lists: list[list[Triple]] = [[] for _ in range(queries)]
    last = -1
    for owners, judged in found:
        for owner, (h, r, t) in zip(owners.tolist(), judged.triples.tolist(), strict=True):
            assert owner >= last, "answers come in the order of the queries"
            last = owner
            lists[owner].append((h, r, t))
    return lists


@given(models(), st.integers(1, 8), st.booleans(), st.sampled_from([1, 7, 1 << 19]))
@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
def test_the_best_answers_equal_brute_force(f: Fitted, top: int, include_known: bool, at_once: int) -> None:
    queries = every_query(f.graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "AT_ONCE", at_once)
        found = by_query(answers(f, queries, top, include_known), len(queries))
    for query, got in zip(queries.tolist(), found, strict=True):
        assert got == slow_best(f, candidates_of(f.graph, query, include_known))[:top]


@pytest.mark.parametrize(("model", "recipe"), MODELS)
@given(graphs(), st.integers(0, 9), st.integers(1, 4))
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
def test_with_vectors_the_best_answers_are_the_most_probable(
    model: str, recipe: str, graph: KnowledgeGraph, seed: int, top: int
) -> None:
    values = SMALL | {"neural.model": model, "neural.vectors.recipe": recipe, "neural.vectors.dim": 4}
    neural = make_model(graph, Config().with_values(values | {"neural.steps": 1}))
    neural.fit(Examples.of(graph.train), seed)
    f = made(graph, neural, [1.0, -0.5, 2.0], Calibration(-1.0, 0.7, 2.0, 0.3), Combination(rule_share=1.0))
    queries = every_query(graph)
    lists = by_query(answers(f, queries, top), len(queries))
    for query, got in zip(queries.tolist(), lists, strict=True):
        candidates = candidates_of(graph, query, include_known=False)
        every = dict(zip(candidates, f.judged(as_triples(candidates)).probability.tolist(), strict=True))
        assert len(got) == len(set(got)) == min(top, len(every))
        own = [every[c] for c in got]
        np.testing.assert_allclose(own, sorted(every.values(), reverse=True)[:top], rtol=1e-6)
    probabilities = np.unique(f.judged(as_triples(list(itertools.product(*map(range, sizes(graph)))))).probability)
    gap = int(np.argmax(np.diff(probabilities)))  # in the widest gap, where rounding does not matter
    least = float(probabilities[gap : gap + 2].mean())
    for all_pairs in (False, True):
        pieces = Judged.joined([f.nothing(), *completions(f, lambda: least, all_pairs)])
        assert {tuple(t) for t in pieces.triples.tolist()} == {
            c for c in missing_candidates(f, all_pairs) if float(f.judged(as_triples([c])).probability[0]) >= least
        }


def sizes(graph: KnowledgeGraph) -> tuple[int, int, int]:
    return len(graph.entities), len(graph.relations), len(graph.entities)


def missing_candidates(f: Fitted, all_pairs: bool) -> set[Triple]:
    """What rules conclude, and for each relation the pairs of entities seen at its two ends, or all; none known."""
    known = {(h, r, t) for h, r, t in f.graph.train.tolist()}
    found = {(h, r, t) for h, r, t in f.outcome.rule_model.groundings.hidden.tolist()}
    for relation in range(len(f.graph.relations)):
        heads = {h for h, r, _ in known if r == relation}
        tails = {t for _, r, t in known if r == relation}
        every = set(range(len(f.graph.entities)))
        found |= set(itertools.product(every if all_pairs else heads, [relation], every if all_pairs else tails))
    return found - known


LEAST = st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5, 0.7, 0.99, 1.0])


@given(models(), LEAST, st.booleans(), st.sampled_from([1, 5, 1 << 19]))
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_completion_equals_brute_force_in_its_order(f: Fitted, least: float, all_pairs: bool, at_once: int) -> None:
    wanted = [c for c in missing_candidates(f, all_pairs) if f.judged(as_triples([c])).probability[0] >= least]
    groups = itertools.groupby(sorted(wanted, key=lambda t: (t[1], t[0], t[2])), key=lambda t: (t[1], t[0]))
    expected = [c for _, group in groups for c in slow_best(f, list(group))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "AT_ONCE", at_once)
        pieces = list(completions(f, lambda: least, all_pairs))
        assert [tuple(t) for piece in pieces for t in piece.triples.tolist()] == expected
        widest = max(len(f.graph.entities), at_once)
        assert all(len(piece) <= widest for piece in pieces), "never more than a piece at once"
        for top in (1, 3, 1000):
            found = complete(f, least, top, all_pairs)
            assert [tuple(t) for t in found.triples.tolist()] == slow_best(f, wanted)[:top]
    assert sum(e.size for e in ends(f, all_pairs)) >= len(missing_candidates(f, all_pairs))


def test_pieces_cover_every_head_once_and_none_is_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "AT_ONCE", 100)
    concluded = np.array([1, 4, 91, *[4] * 60, *[0] * 30, *[2] * 110])
    place = Ends(0, np.arange(0, 90, 3), np.arange(17), concluded)
    pieces = list(place.pieces())
    assert np.concatenate([heads for _, heads, _ in pieces]).tolist() == sorted([*range(0, 90, 3), 1, 2, 4, 91])
    assert np.concatenate([asked for asked, _, _ in pieces]).tolist() == list(range(0, 90, 3))
    assert sum(size for _, _, size in pieces) == place.size
    for asked, heads, size in pieces:
        assert size == len(asked) * 17 + int(np.isin(concluded, heads).sum())
        assert size <= 100 or len(heads) == 1


def test_completion_asks_again_before_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "AT_ONCE", 10)
    f, least = fitted().fitted, [0.0]
    seen = []
    for piece in completions(f, lambda: least[0]):
        seen.append((least[0], piece.probability.min(initial=1.0)))
        least[0] += 0.01
    assert len(seen) > 20
    assert all(lowest >= asked for asked, lowest in seen)


def test_a_rising_threshold_spares_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `top`, what cannot be among the best is not judged any more."""
    monkeypatch.setattr(prediction, "AT_ONCE", 40)
    f, judged = fitted({"neural.steps": 60}).fitted, []
    whole = Fitted.judged
    monkeypatch.setattr(Fitted, "judged", lambda self, t, rules=None: judged.append(len(t)) or whole(self, t, rules))  # type: ignore[func-returns-value]
    best = complete(f, 0.0, top=3)
    few = sum(judged)
    every = Judged.joined(list(completions(f, lambda: 0.0)))
    assert few < (sum(judged) - few) / 2
    assert best.triples.tolist() == every.take(every.order(f.ties)[:3]).triples.tolist()


def test_judgements_do_not_depend_on_the_company() -> None:
    """One number for a triple, whether asked for by head, by tail, by relation, in a completion or alone."""
    model = fitted({"neural.model": "ComplEx", "neural.vectors.recipe": "one_vs_all", "neural.learning_rate": 0.1})
    f = model.fitted
    for p in model.complete(0.05)[:20]:
        alone = model.predict(p.head, p.relation, p.tail)[0].probability
        asked = [
            model.predict(head=p.head, relation=p.relation, top=40),
            model.predict(relation=p.relation, tail=p.tail, top=40),
            model.predict(head=p.head, tail=p.tail, top=40),
        ]
        for found in asked:
            [own] = [x for x in found if (x.head, x.relation, x.tail) == (p.head, p.relation, p.tail)]
            assert own.probability == pytest.approx(alone, rel=1e-6)
        assert p.probability == pytest.approx(alone, rel=1e-6)
    assert f.nothing().triples.shape == (0, 3)


def test_what_is_asked_wrongly_is_said() -> None:
    f = fitted().fitted
    with pytest.raises(InputError, match="0 answers cannot be given"):
        list(answers(f, as_triples([(0, 0, OPEN)]), top=0))
    for query in [(0, 0, 0), (OPEN, 0, OPEN)]:
        with pytest.raises(InputError, match="exactly one open part"):
            list(answers(f, as_triples([query])))
    with pytest.raises(InputError, match="0 facts cannot be given"):
        complete(f, 0.5, top=0)
    assert list(answers(f, as_triples([]))) == []


@pytest.fixture(scope="module")
def umls() -> PLogicNet:
    if not (Path(os.environ.get("PLOGICNET_DATA", "no-data")) / "umls").is_dir():
        pytest.skip("UMLS is not at hand")
    return fitted({"neural.steps": 200, "neural.vectors.dim": 16, "em.iterations": 1}, open_graph("umls"))


@pytest.mark.parametrize("least", [0.02, 0.3])
def test_umls_completed_equals_brute_force_over_all_pairs(umls: PLogicNet, least: float) -> None:
    f = umls.fitted
    n, m, _ = sizes(f.graph)
    every = as_triples(np.stack(np.meshgrid(np.arange(n), np.arange(m), np.arange(n), indexing="ij"), -1))
    probable = every[(f.judged(every).probability >= least) & ~f.graph.observed.contains(every)]
    wanted = {tuple(t) for t in probable.tolist()}
    assert len(wanted) > 50
    for all_pairs in (True, False):
        got = [tuple(t) for piece in completions(f, lambda: least, all_pairs) for t in piece.triples.tolist()]
        assert len(got) == len(set(got))
        assert set(got) == (wanted if all_pairs else wanted & missing_candidates(f, all_pairs=False))


def test_umls_best_answers_equal_brute_force(umls: PLogicNet) -> None:
    f = umls.fitted
    queries = np.repeat(f.graph.test[:40], 3, axis=0)
    for column in (HEAD, RELATION, TAIL):
        queries[column::3, column] = OPEN
    for i, got in enumerate(by_query(answers(f, queries, top=7), len(queries))):
        candidates = as_triples(candidates_of(f.graph, queries[i].tolist(), include_known=False))
        best = f.judged(candidates)
        assert got == [tuple(t) for t in best.take(best.order(f.ties)[:7]).triples.tolist()]
