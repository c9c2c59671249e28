"""Filtered ranks compared with brute force on tiny graphs with many ties, and metrics compared with loops."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special
from test_metrics import slow_metrics

from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import filter_splits, rank
from plogicnet.evaluation.results import RankingMetrics, Ranks
from plogicnet.graph import FloatArray, KnowledgeGraph, TripleSet, Vocabulary, as_triples
from plogicnet.mln import RuleScores
from small import TableModel

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class TinyProblem:
    """A tiny graph with neural scores and rule log-odds, in plain Python."""

    entities: int
    splits: Mapping[str, list[Triple]]
    score: FloatArray
    odds: Mapping[Triple, float]
    base: list[float]
    irreflexive: list[bool]

    @property
    def graph(self) -> KnowledgeGraph:
        return KnowledgeGraph.from_ids(
            Vocabulary("entity", tuple(f"e{i}" for i in range(self.entities))),
            Vocabulary("relation", tuple(f"r{i}" for i in range(len(self.base)))),
            [as_triples(self.splits[s]) for s in ("train", "valid", "test")],
            "tiny",
        )

    @property
    def neural(self) -> TableModel:
        return TableModel(self.score)

    @property
    def rules(self) -> RuleScores:
        reached = TripleSet.of(list(self.odds), self.entities)
        odds = np.array([self.odds[h, r, t] for h, r, t in reached.triples.tolist()], dtype=np.float64)
        observed = TripleSet.of(self.splits["train"], self.entities)
        return RuleScores(reached, odds, np.array(self.base), np.array(self.irreflexive), observed)


@st.composite
def tiny_problems(draw: st.DrawFn) -> TinyProblem:
    n, m = draw(st.integers(2, 6)), draw(st.integers(1, 2))
    every = list(itertools.product(range(n), range(m), range(n)))
    some = st.lists(st.sampled_from(every), unique=True, max_size=8)
    splits = {"train": draw(some.filter(bool)), "valid": draw(some), "test": draw(some)}
    # σ is 1 for both 40 and 50 in float64; many scores are equal
    values = st.sampled_from([-2, 0, 1, 3, 40, 50])
    score = draw(st.lists(values, min_size=m * n * n, max_size=m * n * n))
    return TinyProblem(
        n,
        splits,
        np.array(score, dtype=np.float64).reshape(m, n, n),
        draw(st.dictionaries(st.sampled_from(every), st.sampled_from([-3.0, -1.0, 0.0, 1.0, 2.5]), max_size=10)),
        draw(st.lists(st.sampled_from([-3.0, 0.0, 1.0]), min_size=m, max_size=m)),
        draw(st.lists(st.booleans(), min_size=m, max_size=m)),
    )


def sigmoid(x: float) -> float:
    return float(special.expit(x))


def forbidden(problem: TinyProblem, triple: Triple) -> bool:
    """Return whether a triple is a loop of an irreflexive relation, not observed and without p_w ≥ 0.5 by rules."""
    h, r, t = triple
    likely_by_rules = triple in problem.odds and problem.odds[triple] >= 0
    return h == t and problem.irreflexive[r] and triple not in problem.splits["train"] and not likely_by_rules


def slow_key(problem: TinyProblem, order: CombinedOrder, triple: Triple, reranked: bool) -> tuple[float, float, float]:
    """Return the sort key of a candidate; larger is better."""
    h, r, t = triple
    score = float(problem.score[r, h, t])
    odds = problem.odds.get(triple, problem.base[r])
    if order.constraint and forbidden(problem, triple):
        return 0.0, 0.0, 0.0
    if not order.neural:
        return 2.0, sigmoid(odds), 0.0
    if not reranked:
        return 1.0, score, score
    if order.lambda_ == 0:
        return 2.0, score, score
    if order.combine == "probability":
        return 2.0, sigmoid(score) + order.lambda_ * sigmoid(odds), score
    return 2.0, score + order.lambda_ * (odds - problem.base[r]), score


def slow_ranks(problem: TinyProblem, split: str, order: CombinedOrder) -> tuple[list[list[int]], list[list[int]]]:
    filtered = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}[split]
    known = {t for s in filtered for t in problem.splits[s]}
    better: list[list[int]] = []
    tied: list[list[int]] = []
    for h, r, t in problem.splits[split]:
        counts = []
        for side in (0, 2):
            candidates: list[Triple] = []
            for e in range(problem.entities):
                candidate = (e, r, t) if side == 0 else (h, r, e)
                if candidate == (h, r, t) or candidate not in known:
                    candidates.append(candidate)
            scores = {c: float(problem.score[c[1], c[0], c[2]]) for c in candidates}
            # the target can be among the neural model's best like any other candidate
            top = {c for c in candidates if sum(s > scores[c] for s in scores.values()) < order.rerank}
            keys = {c: slow_key(problem, order, c, not order.rerank or c in top) for c in candidates}
            target = keys.pop((h, r, t))
            counts.append((sum(k > target for k in keys.values()), sum(k == target for k in keys.values())))
        better.append([b for b, _ in counts])
        tied.append([e for _, e in counts])
    return better, tied


def assert_equal_to_brute_force(problem: TinyProblem, orders: Mapping[str, CombinedOrder]) -> None:
    for split in ("valid", "test"):
        got = rank(problem.graph, split, problem.neural, problem.rules, orders)
        for name, order in orders.items():
            better, tied = slow_ranks(problem, split, order)
            shape = (len(problem.splits[split]), 2)
            np.testing.assert_array_equal(got[name].n_better, np.array(better, dtype=int).reshape(shape), name)
            np.testing.assert_array_equal(got[name].n_tied, np.array(tied, dtype=int).reshape(shape), name)


COMBINES: tuple[Literal["probability", "log_odds"], ...] = ("probability", "log_odds")
ORDERS = {
    "neural": CombinedOrder(constraint=False),
    "plogicnet": CombinedOrder(),
    "rules": CombinedOrder(neural=False),
    "rules, no constraint": CombinedOrder(neural=False, constraint=False),
} | {
    f"{combine} λ={lambda_} {'constraint' if constraint else ''}": CombinedOrder(
        lambda_=lambda_, combine=combine, constraint=constraint
    )
    for combine in COMBINES
    for lambda_ in (0.0, 0.5, 1.0, 20.0)
    for constraint in (True, False)
}
RERANKED = {
    f"{combine} λ={lambda_} of {rerank} {'constraint' if constraint else ''}": CombinedOrder(
        lambda_=lambda_, combine=combine, constraint=constraint, rerank=rerank
    )
    for combine in COMBINES
    for lambda_ in (0.0, 1.0)
    for constraint in (True, False)
    for rerank in (1, 3, 100)
}


@given(tiny_problems())
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_equal_brute_force(problem: TinyProblem) -> None:
    assert_equal_to_brute_force(problem, ORDERS)


@given(tiny_problems())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_reranked_ranks_equal_brute_force(problem: TinyProblem) -> None:
    assert_equal_to_brute_force(problem, RERANKED)


def test_rerank_applies_rules_within_the_best() -> None:
    """The target is second by the neural model and first by the rules; re-ranking the best two must put it first."""
    problem = TinyProblem(
        4,
        {"train": [(0, 0, 0)], "valid": [], "test": [(0, 0, 1)]},
        np.zeros((1, 4, 4)),
        {(0, 0, 1): 3.0},
        [-3.0],
        [False],
    )
    problem.score[0, 0] = [0, 1, 2, -1]
    got = rank(problem.graph, "test", problem.neural, problem.rules, {"*": CombinedOrder(lambda_=5.0, rerank=2)})["*"]
    assert got.realistic[0, 1] == 1.0


def test_rerank_keeps_the_others_below_the_best() -> None:
    problem = TinyProblem(
        4,
        {"train": [(0, 0, 0)], "valid": [], "test": [(0, 0, 1)]},
        np.zeros((1, 4, 4)),
        {(0, 0, 1): 3.0},
        [-3.0],
        [False],
    )
    problem.score[0, 0] = [0, -2, 2, -1]
    got = rank(problem.graph, "test", problem.neural, problem.rules, {"*": CombinedOrder(lambda_=5.0, rerank=2)})["*"]
    assert got.realistic[0, 1] == 3.0


@given(tiny_problems())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_without_a_neural_model_equal_brute_force(problem: TinyProblem) -> None:
    orders = {"rules": CombinedOrder(neural=False), "plogicnet*": CombinedOrder(neural=False, lambda_=2.0, rerank=1)}
    for split in ("valid", "test"):
        got = rank(problem.graph, split, None, problem.rules, orders)
        better, tied = slow_ranks(problem, split, orders["rules"])
        for name in orders:
            assert got[name].n_better.tolist() == better
            assert got[name].n_tied.tolist() == tied


@given(tiny_problems(), st.integers(1, 3))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_do_not_depend_on_the_batch_size(problem: TinyProblem, queries: int) -> None:
    both = dict(list((ORDERS | RERANKED).items())[::4])
    expected = rank(problem.graph, "test", problem.neural, problem.rules, both)
    with pytest.MonkeyPatch.context() as patch:
        # one megabyte is then enough for exactly this many queries
        patch.setattr("plogicnet.evaluation.batches.BYTES_PER_CANDIDATE", 2**20 // (queries * problem.entities))
        batched = rank(problem.graph, "test", problem.neural, problem.rules, both, batch_memory_mb=1)
    for name in both:
        np.testing.assert_array_equal(expected[name].n_better, batched[name].n_better)
        np.testing.assert_array_equal(expected[name].n_tied, batched[name].n_tied)


def test_ranks_over_many_entities_do_not_depend_on_batch_memory() -> None:
    rng = np.random.default_rng(0)
    n = 3000
    triples = [(int(h), 0, int(t)) for h, t in rng.integers(n, size=(40, 2))]
    problem = TinyProblem(
        n,
        {"train": triples[:20], "valid": [], "test": triples[20:]},
        rng.integers(5, size=(1, n, n)).astype(np.float64),
        {},
        [-3.0],
        [True],
    )
    neural, rules, graph = problem.neural, problem.rules, problem.graph
    a, b = (rank(graph, "test", neural, rules, {"p": CombinedOrder()}, memory)["p"] for memory in (0, 1))
    np.testing.assert_array_equal(a.n_better, b.n_better)
    np.testing.assert_array_equal(a.n_tied, b.n_tied)


@given(tiny_problems())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_lambda_zero_is_exactly_plogicnet(problem: TinyProblem) -> None:
    orders = {"plogicnet": CombinedOrder()} | {str(c): CombinedOrder(lambda_=0.0, combine=c) for c in COMBINES}
    got = rank(problem.graph, "test", problem.neural, problem.rules, orders)
    for ranks in got.values():
        np.testing.assert_array_equal(ranks.n_better, got["plogicnet"].n_better)
        np.testing.assert_array_equal(ranks.n_tied, got["plogicnet"].n_tied)


@given(tiny_problems(), st.integers(1, 3))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_lambda_zero_is_exactly_plogicnet_with_any_rerank(problem: TinyProblem, n: int) -> None:
    orders = {"plogicnet": CombinedOrder(), "plogicnet*": CombinedOrder(lambda_=0.0, rerank=n)}
    got = rank(problem.graph, "test", problem.neural, problem.rules, orders)
    np.testing.assert_array_equal(got["plogicnet*"].n_better, got["plogicnet"].n_better)
    np.testing.assert_array_equal(got["plogicnet*"].n_tied, got["plogicnet"].n_tied)


@given(tiny_problems())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_optimistic_pessimistic_and_realistic_ranks(problem: TinyProblem) -> None:
    got = rank(problem.graph, "test", problem.neural, problem.rules, {"p": CombinedOrder(lambda_=1.0)})["p"]
    better, tied = slow_ranks(problem, "test", CombinedOrder(lambda_=1.0))
    for i, j in itertools.product(range(len(better)), range(2)):
        b, e = better[i][j], tied[i][j]
        assert got.optimistic[i, j] == 1 + b
        assert got.pessimistic[i, j] == 1 + b + e
        assert got.realistic[i, j] == ((1 + b) + (1 + b + e)) / 2
    mrr = [compute_metrics(r)["mrr"] for r in (got.pessimistic, got.realistic, got.optimistic)]
    assert mrr[0] <= mrr[1] <= mrr[2]


def test_the_raw_score_breaks_ties_of_saturated_scores() -> None:
    problem = TinyProblem(
        3, {"train": [(0, 0, 0)], "valid": [], "test": [(0, 0, 1)]}, np.zeros((1, 3, 3)), {}, [0.0], [False]
    )
    problem.score[0, 0] = [0, 40, 50]
    got = rank(problem.graph, "test", problem.neural, problem.rules, {"*": CombinedOrder(lambda_=0.1)})["*"]
    assert got.n_better[0, 1] == 1
    assert got.n_tied[0, 1] == 0


def test_valid_filters_train_and_valid_and_test_filters_all() -> None:
    """A test triple competes on valid and is filtered on test."""
    assert filter_splits("valid") == ["train", "valid"]
    assert filter_splits("test") == ["train", "valid", "test"]
    problem = TinyProblem(
        4,
        {"train": [(0, 0, 0)], "valid": [(0, 0, 1)], "test": [(0, 0, 2), (0, 0, 3)]},
        np.zeros((1, 4, 4)),
        {},
        [0.0],
        [False],
    )
    problem.score[0, 0] = [9, 0, 5, 4]
    on_valid = rank(problem.graph, "valid", problem.neural, problem.rules, {"p": CombinedOrder()})["p"]
    on_test = rank(problem.graph, "test", problem.neural, problem.rules, {"p": CombinedOrder()})["p"]
    assert on_valid.n_better[:, 1].tolist() == [2]
    assert on_test.n_better[:, 1].tolist() == [0, 0]


def test_the_constraint_puts_loops_last_unless_observed_or_likely_by_rules() -> None:
    n = 4
    splits = {"train": [(1, 0, 1), (1, 0, 0)], "valid": [], "test": [(e, 0, 3) for e in range(3)]}
    problem = TinyProblem(n, splits, np.zeros((1, n, n)), {(2, 0, 2): 0.0}, [-2.0], [True])
    for e in range(n):
        problem.score[0, e, e] = 10
    got = rank(
        problem.graph, "test", problem.neural, problem.rules, {"with": CombinedOrder(), "without": ORDERS["neural"]}
    )
    # tails of 0: its loop is last; of 1: the loop is observed, so filtered; of 2: a rule gives its loop p_w = 0.5
    assert got["with"].n_better[:, 1].tolist() == [0, 0, 1]
    assert got["without"].n_better[:, 1].tolist() == [1, 0, 1]


def slow_category(train: list[Triple], relation: int) -> str:
    pairs = {(h, t) for h, r, t in train if r == relation}
    if not pairs:
        return "1-1"
    tails_per_head = len(pairs) / len({h for h, _ in pairs})
    heads_per_tail = len(pairs) / len({t for _, t in pairs})
    return f"{'N' if heads_per_tail > 1.5 else '1'}-{'N' if tails_per_head > 1.5 else '1'}"


@given(tiny_problems().filter(lambda w: bool(w.splits["test"])), st.integers(0, 2**31))
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
def test_metrics_equal_a_loop(problem: TinyProblem, seed: int) -> None:
    triples = problem.splits["test"]
    rng = np.random.default_rng(seed)
    ranks = Ranks(rng.integers(12, size=(len(triples), 2)), rng.integers(4, size=(len(triples), 2)))
    metrics = RankingMetrics.from_ranks(problem.graph, "test", ranks)
    got = metrics.to_json()
    assert RankingMetrics.from_json(got) == metrics

    def expected(policy: FloatArray, rows: list[int], columns: tuple[int, ...] = (0, 1)) -> object:
        return pytest.approx(slow_metrics([float(policy[i, j]) for i in rows for j in columns]))

    rows, realistic = list(range(len(triples))), np.asarray(ranks.n_better + ranks.n_tied / 2 + 1, dtype=np.float64)
    assert {k: got[k] for k in ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")} == expected(realistic, rows)
    assert got["optimistic"] == expected(np.asarray(ranks.n_better + 1, dtype=np.float64), rows)
    assert got["pessimistic"] == expected(np.asarray(ranks.n_better + ranks.n_tied + 1, dtype=np.float64), rows)
    assert got["by_side"] == {"head": expected(realistic, rows, (0,)), "tail": expected(realistic, rows, (1,))}
    relations = sorted({r for _, r, _ in triples})
    assert got["by_relation"] == {
        f"r{x}": expected(realistic, [i for i in rows if triples[i][1] == x]) for x in relations
    }
    category = [slow_category(problem.splits["train"], r) for _, r, _ in triples]
    assert got["by_category"] == {
        c: expected(realistic, [i for i in rows if category[i] == c]) for c in sorted(set(category))
    }
