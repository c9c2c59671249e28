"""Filtered ranks against brute force on tiny graphs full of ties; the figures against loops."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special
from test_metrics import slow_summary

from plogicnet.evaluation.figures import RankingFigures, Ranks
from plogicnet.evaluation.metrics import summary
from plogicnet.evaluation.orders import Combination
from plogicnet.evaluation.ranking import filter_splits, rank
from plogicnet.graph import FloatArray, KnowledgeGraph, TripleSet, Vocabulary, as_triples
from plogicnet.mln import RuleScores
from small import TableModel

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class World:
    """A tiny graph with what neural model and rules say of it, in plain Python."""

    entities: int
    splits: Mapping[str, list[Triple]]
    score: FloatArray
    odds: Mapping[Triple, float]
    base: list[float]
    irreflexive: list[bool]

    @property
    def graph(self) -> KnowledgeGraph:
        return KnowledgeGraph.from_numbers(
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
def worlds(draw: st.DrawFn) -> World:
    n, m = draw(st.integers(2, 6)), draw(st.integers(1, 2))
    every = list(itertools.product(range(n), range(m), range(n)))
    some = st.lists(st.sampled_from(every), unique=True, max_size=8)
    splits = {"train": draw(some.filter(bool)), "valid": draw(some), "test": draw(some)}
    # 40 and 50 are both 1 under σ in float64; many scores are equal
    values = st.sampled_from([-2, 0, 1, 3, 40, 50])
    score = draw(st.lists(values, min_size=m * n * n, max_size=m * n * n))
    return World(
        n,
        splits,
        np.array(score, dtype=np.float64).reshape(m, n, n),
        draw(st.dictionaries(st.sampled_from(every), st.sampled_from([-3.0, -1.0, 0.0, 1.0, 2.5]), max_size=10)),
        draw(st.lists(st.sampled_from([-3.0, 0.0, 1.0]), min_size=m, max_size=m)),
        draw(st.lists(st.booleans(), min_size=m, max_size=m)),
    )


def sigmoid(x: float) -> float:
    return float(special.expit(x))


def forbidden(world: World, triple: Triple) -> bool:
    """A loop of an irreflexive relation, unless observed or given p_w ≥ 0.5 by rules."""
    h, r, t = triple
    held_by_rules = triple in world.odds and world.odds[triple] >= 0
    return h == t and world.irreflexive[r] and triple not in world.splits["train"] and not held_by_rules


def slow_key(world: World, system: Combination, triple: Triple, reranked: bool) -> tuple[float, float, float]:
    """What a candidate is ordered by; a tuple, larger is better."""
    h, r, t = triple
    score = float(world.score[r, h, t])
    odds = world.odds.get(triple, world.base[r])
    if system.constraint and forbidden(world, triple):
        return 0.0, 0.0, 0.0
    if not system.neural:
        return 2.0, sigmoid(odds), 0.0
    if not reranked:
        return 1.0, score, score
    if system.rule_share == 0:
        return 2.0, score, score
    if system.combine == "probability":
        return 2.0, sigmoid(score) + system.rule_share * sigmoid(odds), score
    return 2.0, score + system.rule_share * (odds - world.base[r]), score


def slow_ranks(world: World, split: str, system: Combination) -> tuple[list[list[int]], list[list[int]]]:
    filtered = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}[split]
    known = {t for s in filtered for t in world.splits[s]}
    better: list[list[int]] = []
    level: list[list[int]] = []
    for h, r, t in world.splits[split]:
        counts = []
        for place in (0, 2):
            candidates: list[Triple] = []
            for e in range(world.entities):
                candidate = (e, r, t) if place == 0 else (h, r, e)
                if candidate == (h, r, t) or candidate not in known:
                    candidates.append(candidate)
            scores = {c: float(world.score[c[1], c[0], c[2]]) for c in candidates}
            # the truth takes part in the neural model's best as any other candidate
            best = {c for c in candidates if sum(s > scores[c] for s in scores.values()) < system.rerank}
            keys = {c: slow_key(world, system, c, not system.rerank or c in best) for c in candidates}
            own = keys.pop((h, r, t))
            counts.append((sum(k > own for k in keys.values()), sum(k == own for k in keys.values())))
        better.append([b for b, _ in counts])
        level.append([e for _, e in counts])
    return better, level


def assert_equal_to_brute_force(world: World, systems: Mapping[str, Combination]) -> None:
    for split in ("valid", "test"):
        got = rank(world.graph, split, world.neural, world.rules, systems)
        for name, system in systems.items():
            better, level = slow_ranks(world, split, system)
            wide = (len(world.splits[split]), 2)
            np.testing.assert_array_equal(got[name].better, np.array(better, dtype=int).reshape(wide), name)
            np.testing.assert_array_equal(got[name].level, np.array(level, dtype=int).reshape(wide), name)


COMBINES: tuple[Literal["probability", "log_odds"], ...] = ("probability", "log_odds")
SYSTEMS = {
    "neural": Combination(constraint=False),
    "plogicnet": Combination(),
    "rules": Combination(neural=False),
    "rules, no constraint": Combination(neural=False, constraint=False),
} | {
    f"{combine} λ={share} {'constraint' if constraint else ''}": Combination(
        rule_share=share, combine=combine, constraint=constraint
    )
    for combine in COMBINES
    for share in (0.0, 0.5, 1.0, 20.0)
    for constraint in (True, False)
}
RERANKED = {
    f"{combine} λ={share} of {rerank} {'constraint' if constraint else ''}": Combination(
        rule_share=share, combine=combine, constraint=constraint, rerank=rerank
    )
    for combine in COMBINES
    for share in (0.0, 1.0)
    for constraint in (True, False)
    for rerank in (1, 3, 100)
}


@given(worlds())
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_ranks_of_every_system_equal_brute_force(world: World) -> None:
    assert_equal_to_brute_force(world, SYSTEMS)


@given(worlds())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_reranked_ranks_equal_brute_force(world: World) -> None:
    assert_equal_to_brute_force(world, RERANKED)


def test_rerank_lets_rules_lift_the_truth_within_the_best() -> None:
    """The truth is second by the neural model, first by the rules; re-ranking the best two must put it first."""
    world = World(
        4,
        {"train": [(0, 0, 0)], "valid": [], "test": [(0, 0, 1)]},
        np.zeros((1, 4, 4)),
        {(0, 0, 1): 3.0},
        [-3.0],
        [False],
    )
    world.score[0, 0] = [0, 1, 2, -1]
    got = rank(world.graph, "test", world.neural, world.rules, {"*": Combination(rule_share=5.0, rerank=2)})["*"]
    assert got.realistic[0, 1] == 1.0


def test_rerank_leaves_what_is_below_the_best_below() -> None:
    world = World(
        4,
        {"train": [(0, 0, 0)], "valid": [], "test": [(0, 0, 1)]},
        np.zeros((1, 4, 4)),
        {(0, 0, 1): 3.0},
        [-3.0],
        [False],
    )
    world.score[0, 0] = [0, -2, 2, -1]
    got = rank(world.graph, "test", world.neural, world.rules, {"*": Combination(rule_share=5.0, rerank=2)})["*"]
    assert got.realistic[0, 1] == 3.0


@given(worlds())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_rank_without_a_neural_model(world: World) -> None:
    systems = {"rules": Combination(neural=False), "plogicnet*": Combination(neural=False, rule_share=2.0, rerank=1)}
    for split in ("valid", "test"):
        got = rank(world.graph, split, None, world.rules, systems)
        better, level = slow_ranks(world, split, systems["rules"])
        for name in systems:
            assert got[name].better.tolist() == better
            assert got[name].level.tolist() == level


@given(worlds(), st.integers(1, 3))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_chunks_change_nothing(world: World, queries: int) -> None:
    both = dict(list((SYSTEMS | RERANKED).items())[::4])
    whole = rank(world.graph, "test", world.neural, world.rules, both)
    with pytest.MonkeyPatch.context() as patch:
        # one megabyte is then enough for so many queries and no more
        patch.setattr("plogicnet.evaluation.batches.BYTES_PER_CANDIDATE", 2**20 // (queries * world.entities))
        pieces = rank(world.graph, "test", world.neural, world.rules, both, batch_memory_mb=1)
    for name in both:
        np.testing.assert_array_equal(whole[name].better, pieces[name].better)
        np.testing.assert_array_equal(whole[name].level, pieces[name].level)


def test_little_memory_changes_nothing_over_many_entities() -> None:
    rng = np.random.default_rng(0)
    n = 3000
    triples = [(int(h), 0, int(t)) for h, t in rng.integers(n, size=(40, 2))]
    world = World(
        n,
        {"train": triples[:20], "valid": [], "test": triples[20:]},
        rng.integers(5, size=(1, n, n)).astype(np.float64),
        {},
        [-3.0],
        [True],
    )
    neural, rules, graph = world.neural, world.rules, world.graph
    a, b = (rank(graph, "test", neural, rules, {"p": Combination()}, memory)["p"] for memory in (0, 1))
    np.testing.assert_array_equal(a.better, b.better)
    np.testing.assert_array_equal(a.level, b.level)


@given(worlds())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_a_lambda_of_zero_is_exactly_plogicnet(world: World) -> None:
    systems = {"plogicnet": Combination()} | {str(c): Combination(rule_share=0.0, combine=c) for c in COMBINES}
    got = rank(world.graph, "test", world.neural, world.rules, systems)
    for ranks in got.values():
        np.testing.assert_array_equal(ranks.better, got["plogicnet"].better)
        np.testing.assert_array_equal(ranks.level, got["plogicnet"].level)


@given(worlds(), st.integers(1, 3))
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_a_lambda_of_zero_is_exactly_plogicnet_however_many_are_reranked(world: World, n: int) -> None:
    systems = {"plogicnet": Combination(), "plogicnet*": Combination(rule_share=0.0, rerank=n)}
    got = rank(world.graph, "test", world.neural, world.rules, systems)
    np.testing.assert_array_equal(got["plogicnet*"].better, got["plogicnet"].better)
    np.testing.assert_array_equal(got["plogicnet*"].level, got["plogicnet"].level)


@given(worlds())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_tie_policies(world: World) -> None:
    got = rank(world.graph, "test", world.neural, world.rules, {"p": Combination(rule_share=1.0)})["p"]
    better, level = slow_ranks(world, "test", Combination(rule_share=1.0))
    for i, j in itertools.product(range(len(better)), range(2)):
        b, e = better[i][j], level[i][j]
        assert got.optimistic[i, j] == 1 + b
        assert got.pessimistic[i, j] == 1 + b + e
        assert got.realistic[i, j] == ((1 + b) + (1 + b + e)) / 2
    mrr = [summary(r)["mrr"] for r in (got.pessimistic, got.realistic, got.optimistic)]
    assert mrr[0] <= mrr[1] <= mrr[2]


def test_saturated_scores_are_told_apart_by_the_raw_score() -> None:
    world = World(3, {"train": [(0, 0, 0)], "valid": [], "test": [(0, 0, 1)]}, np.zeros((1, 3, 3)), {}, [0.0], [False])
    world.score[0, 0] = [0, 40, 50]
    got = rank(world.graph, "test", world.neural, world.rules, {"*": Combination(rule_share=0.1)})["*"]
    assert got.better[0, 1] == 1
    assert got.level[0, 1] == 0


def test_filters_of_valid_and_test() -> None:
    """A test triple still competes on valid, and is filtered on test."""
    assert filter_splits("valid") == ["train", "valid"]
    assert filter_splits("test") == ["train", "valid", "test"]
    world = World(
        4,
        {"train": [(0, 0, 0)], "valid": [(0, 0, 1)], "test": [(0, 0, 2), (0, 0, 3)]},
        np.zeros((1, 4, 4)),
        {},
        [0.0],
        [False],
    )
    world.score[0, 0] = [9, 0, 5, 4]
    on_valid = rank(world.graph, "valid", world.neural, world.rules, {"p": Combination()})["p"]
    on_test = rank(world.graph, "test", world.neural, world.rules, {"p": Combination()})["p"]
    assert on_valid.better[:, 1].tolist() == [2]
    assert on_test.better[:, 1].tolist() == [0, 0]


def test_constraint_puts_loops_last_but_not_observed_or_ruled_ones() -> None:
    n = 4
    splits = {"train": [(1, 0, 1), (1, 0, 0)], "valid": [], "test": [(e, 0, 3) for e in range(3)]}
    world = World(n, splits, np.zeros((1, n, n)), {(2, 0, 2): 0.0}, [-2.0], [True])
    for e in range(n):
        world.score[0, e, e] = 10
    got = rank(world.graph, "test", world.neural, world.rules, {"with": Combination(), "without": SYSTEMS["neural"]})
    # tails of 0: its own loop is last; of 1: the loop is observed, so filtered; of 2: a rule holds it as likely as not
    assert got["with"].better[:, 1].tolist() == [0, 0, 1]
    assert got["without"].better[:, 1].tolist() == [1, 0, 1]


def slow_category(train: list[Triple], relation: int) -> str:
    pairs = {(h, t) for h, r, t in train if r == relation}
    if not pairs:
        return "1-1"
    tails_per_head = len(pairs) / len({h for h, _ in pairs})
    heads_per_tail = len(pairs) / len({t for _, t in pairs})
    return f"{'N' if heads_per_tail > 1.5 else '1'}-{'N' if tails_per_head > 1.5 else '1'}"


@given(worlds().filter(lambda w: bool(w.splits["test"])), st.integers(0, 2**31))
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
def test_figures_equal_the_loop(world: World, seed: int) -> None:
    triples = world.splits["test"]
    rng = np.random.default_rng(seed)
    ranks = Ranks(rng.integers(12, size=(len(triples), 2)), rng.integers(4, size=(len(triples), 2)))
    figures = RankingFigures.of(world.graph, "test", ranks)
    got = figures.to_json()
    assert RankingFigures.of_json(got) == figures

    def of(policy: FloatArray, rows: list[int], columns: tuple[int, ...] = (0, 1)) -> object:
        return pytest.approx(slow_summary([float(policy[i, j]) for i in rows for j in columns]))

    rows, realistic = list(range(len(triples))), np.asarray(ranks.better + ranks.level / 2 + 1, dtype=np.float64)
    assert {k: got[k] for k in ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")} == of(realistic, rows)
    assert got["optimistic"] == of(np.asarray(ranks.better + 1, dtype=np.float64), rows)
    assert got["pessimistic"] == of(np.asarray(ranks.better + ranks.level + 1, dtype=np.float64), rows)
    assert got["by_side"] == {"head": of(realistic, rows, (0,)), "tail": of(realistic, rows, (1,))}
    relations = sorted({r for _, r, _ in triples})
    assert got["by_relation"] == {f"r{x}": of(realistic, [i for i in rows if triples[i][1] == x]) for x in relations}
    category = [slow_category(world.splits["train"], r) for _, r, _ in triples]
    assert got["by_category"] == {
        c: of(realistic, [i for i in rows if category[i] == c]) for c in sorted(set(category))
    }
