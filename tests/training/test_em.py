"""The EM loop: the examples of an E-step, the choice of λ, and every variant end to end on a small graph."""

import itertools
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.calibration import sample
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.ranking import rank
from plogicnet.evaluation.results import Ranks
from plogicnet.evaluation.scaling import platt
from plogicnet.graph import KnowledgeGraph, TripleSet, Vocabulary
from plogicnet.grounding.engine import MiningResult
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.mln import RuleModel, RuleScores, build_rule_model
from plogicnet.neural.protocol import Examples
from plogicnet.neural.vectors.model import VectorModel
from plogicnet.rules import RuleTable
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Advance, Progress, Timer, no_progress
from plogicnet.training.em import initial_state, make_examples, run_em
from plogicnet.training.hooks import Hooks
from plogicnet.training.selection import choose_lambda, ranking_orders
from plogicnet.training.state import Outcome
from small import SMALL, TableModel, family_rows


def small_graph(valid: bool = True) -> KnowledgeGraph:
    """Return the small graph, with or without validation triples."""
    rows = family_rows()
    if not valid:
        return KnowledgeGraph.from_names(rows[:100], [], rows[100:], "small")
    return KnowledgeGraph.from_names(rows[:86], rows[86:102], rows[102:], "small")


def small_config(**values: object) -> Config:
    return Config().with_values(SMALL | {k.replace("__", "."): v for k, v in values.items()})


def mined_of(graph: KnowledgeGraph, config: Config) -> MiningResult:
    return collect_rules(graph, config)


def em_of(graph: KnowledgeGraph, config: Config) -> Outcome:
    mined = mined_of(graph, config)
    return run_em(graph, config, initial_state(graph, config, mined.rules, mined.constraints, Hooks()), Hooks())


def rule_model_of(graph: KnowledgeGraph, config: Config, hidden_q: float = 0.5) -> RuleModel:
    mined = mined_of(graph, config)
    model = build_rule_model(graph, config, mined.rules, mined.constraints)
    return model.learn(np.full(len(model.groundings.hidden), hidden_q), config, seed=0)


def test_the_small_graph_has_rules_hidden_triples_and_constraints() -> None:
    graph, config = small_graph(), small_config()
    model = rule_model_of(graph, config)
    assert len(model.rules) > 5
    assert len(model.groundings.hidden) > 10
    assert len(model.constraints) == len(graph.relations)
    assert not graph.observed.contains(model.groundings.hidden).any()


@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_hard_examples_are_observed_and_accepted_triples_with_weight_one(tau: float) -> None:
    graph, config = small_graph(), small_config(em__targets="hard", em__tau_triplet=tau)
    model = rule_model_of(graph, config)
    accepted = model.hidden_p_w >= tau
    got = make_examples(graph, model, accepted, config)
    expected = list(map(tuple, graph.train.tolist()))
    expected += [tuple(t) for t, p in zip(model.groundings.hidden.tolist(), model.hidden_p_w, strict=True) if p >= tau]
    assert sorted(map(tuple, got.positives.tolist())) == sorted(expected)
    assert got.weights.tolist() == [1.0] * len(expected)
    assert len(got.negatives) == 0


def test_soft_examples_include_all_hidden_triples_weighted_by_p_w() -> None:
    graph, config = small_graph(), small_config(em__targets="soft", em__tau_triplet=0.9)
    model = rule_model_of(graph, config)
    got = make_examples(graph, model, np.zeros(len(model.groundings.hidden), dtype=bool), config)
    weight_of = dict(zip(map(tuple, got.positives.tolist()), got.weights.tolist(), strict=True))
    assert len(weight_of) == len(got.positives) == len(graph.train) + len(model.groundings.hidden)
    assert all(weight_of[tuple(t)] == 1.0 for t in graph.train.tolist())
    for triple, p in zip(model.groundings.hidden.tolist(), model.hidden_p_w.tolist(), strict=True):
        assert weight_of[tuple(triple)] == pytest.approx(p)


def test_log_odds_are_the_base_rate_plus_the_weights_of_all_groundings() -> None:
    """The expected values come from a loop over all paths of observed triples for each rule."""
    graph, config = small_graph(), small_config()
    model = rule_model_of(graph, config)
    known = set(map(tuple, graph.train.tolist()))
    people = range(len(graph.entities))
    pairs = len(graph.entities) ** 2
    expected: dict[tuple[int, ...], float] = {}
    for rule, weight in zip(model.rules.rules, model.rules.weight.tolist(), strict=True):
        assert rule.chain is not None
        steps = [(graph.relations.id(step.relation), step.forward) for step in rule.chain]
        head = graph.relations.id(rule.head.relation)
        for path in itertools.product(people, repeat=len(steps) + 1):
            premises = {(a, r, b) if forward else (b, r, a) for a, b, (r, forward) in zip(path, path[1:], steps)}  # noqa: B905
            hypothesis = (path[0], head, path[-1])
            if premises <= known and hypothesis not in premises:
                expected[hypothesis] = expected.get(hypothesis, 0.0) + weight
    scores = model.scores(graph)
    assert {tuple(t) for t in scores.reached.triples.tolist()} == set(expected)
    for triple, odds in zip(scores.reached.triples.tolist(), scores.log_odds.tolist(), strict=True):
        facts = sum(r == triple[1] for _, r, _ in known)
        base = math.log(facts / pairs / (1 - facts / pairs))
        assert odds == pytest.approx(base + expected[tuple(triple)], abs=1e-9)
    assert {tuple(t) for t in model.groundings.hidden.tolist()} == set(expected) - known


def validation_problem(seed: int) -> tuple[KnowledgeGraph, TableModel, RuleScores]:
    """Return random scores and rules that conclude random triples and some validation triples."""
    rng = np.random.default_rng(seed)
    n = 12
    triples = np.unique(np.column_stack([rng.integers(m, size=70) for m in (n, 2, n)]), axis=0)
    triples = triples[rng.permutation(len(triples))]
    graph = KnowledgeGraph.from_ids(
        Vocabulary("entity", tuple(map(str, range(n)))),
        Vocabulary("relation", ("r", "s")),
        [triples[:20], triples[20:40], triples[40:]],
        "random",
    )
    random_triples = np.column_stack([rng.integers(m, size=60) for m in (n, 2, n)])
    reached = TripleSet.of(np.concatenate([random_triples, triples[20:30]]), n)
    base = np.array([-3.0, -2.0])
    odds = np.asarray(base[reached.triples[:, 1]] + rng.integers(-2, 5, size=len(reached)), dtype=np.float64)
    rules = RuleScores(reached, odds, base, np.array([True, False]), graph.observed)
    return graph, TableModel(rng.normal(0, 2, size=(2, n, n))), rules


@pytest.mark.parametrize("combine", ["probability", "log_odds"])
@pytest.mark.parametrize("seed", range(6))
def test_lambda_has_the_best_validation_mrr(seed: int, combine: str) -> None:
    graph, neural, rules = validation_problem(seed)
    grid = [5.0, 0.0, 0.3, 1.0, 0.05]
    config = small_config(em__lambda_grid=grid, em__combine=combine)
    best, metrics = choose_lambda(graph, config, neural, rules, no_progress)
    mrr = {}
    for value in grid:
        star = ranking_orders(config, value)["plogicnet*"]
        mrr[value] = compute_metrics(rank(graph, "valid", neural, rules, {"*": star})["*"].realistic)["mrr"]
    assert best == min(value for value in grid if mrr[value] == max(mrr.values()))
    assert metrics["plogicnet*"]["mrr"] == mrr[best]
    assert metrics["plogicnet"]["mrr"] == mrr[0.0]
    assert set(metrics) == {"neural", "rules", "plogicnet", "plogicnet*"}


@pytest.mark.parametrize(("grid", "smallest"), [([5.0, 2.0, 1.0], 1.0), ([0.5, 0.0, 0.1], 0.0)])
def test_ties_go_to_the_smallest_lambda(grid: list[float], smallest: float) -> None:
    graph, neural, rules = validation_problem(0)
    # the only concluded triple answers no validation query, so λ has no effect
    candidates = itertools.product(range(12), range(2), range(12))
    queries = {(h, r) for h, r, _ in graph.valid.tolist()} | {(t, r) for _, r, t in graph.valid.tolist()}
    unrelated = next((h, r, t) for h, r, t in candidates if (h, r) not in queries and (t, r) not in queries)
    reached = TripleSet.of([unrelated], 12)
    rules = RuleScores(reached, np.array([3.0]), rules.base, rules.irreflexive, rules.observed)
    assert choose_lambda(graph, small_config(em__lambda_grid=grid), neural, rules, no_progress)[0] == smallest


def test_a_given_lambda_is_used() -> None:
    graph, neural, rules = validation_problem(0)
    assert choose_lambda(graph, small_config(em__lambda=0.7), neural, rules, no_progress)[0] == 0.7


def test_very_close_lambdas_are_distinguished() -> None:
    """The target overtakes its competitor between λ = 0.3 and 0.3000004, so the larger λ is better."""
    graph = KnowledgeGraph.from_ids(
        Vocabulary("entity", ("a", "b", "c")),
        Vocabulary("relation", ("r",)),
        [np.array([[0, 0, 0]]), np.array([[0, 0, 1]]), np.empty((0, 3), dtype=np.int64)],
        "tiny",
    )
    table = np.full((1, 3, 3), -9.0)
    table[0, 0] = [0.0, 0.0, 0.3000002]
    odds, base = np.array([-1.0]), np.array([-2.0])
    rules = RuleScores(TripleSet.of([(0, 0, 1)], 3), odds, base, np.array([False]), graph.observed)
    config = small_config(em__lambda_grid=[0.3, 0.3000004], em__combine="log_odds")
    best, metrics = choose_lambda(graph, config, TableModel(table), rules, no_progress)
    assert best == 0.3000004
    assert metrics["plogicnet*"]["mrr"] == 1.0


def test_the_choice_of_lambda_does_not_use_test() -> None:
    graph, neural, rules = validation_problem(2)
    without_test = KnowledgeGraph(graph.name, graph.entities, graph.relations, graph.train, graph.valid)
    config = small_config()
    assert choose_lambda(graph, config, neural, rules, no_progress) == choose_lambda(
        without_test, config, neural, rules, no_progress
    )


def check(outcome: Outcome, graph: KnowledgeGraph, config: Config) -> None:
    """Check what must be true after EM with any settings."""
    model = outcome.rule_model
    hidden = len(model.groundings.hidden)
    assert outcome.hidden_q.shape == outcome.accepted.shape == model.hidden_p_w.shape == (hidden,)
    assert np.isfinite(model.rules.weight).all()
    assert np.isfinite(model.log_odds).all()
    assert ((outcome.hidden_q >= 0) & (outcome.hidden_q <= 1)).all()
    np.testing.assert_array_equal(outcome.accepted, model.hidden_p_w >= config.em.tau_triplet)
    assert outcome.lambda_ in config.em.lambda_grid
    for number, line in enumerate(outcome.history, 1):
        assert line.iteration == number
        assert line.hidden == hidden
    last = outcome.history[-1]
    assert last.accepted == int(outcome.accepted.sum())
    assert last.lambda_ == outcome.lambda_
    held_out = set(map(tuple, np.concatenate([graph.valid, graph.test]).tolist()))
    is_held_out = [tuple(t) in held_out for t in model.groundings.hidden[outcome.accepted].tolist()]
    assert last.accepted_precision == (pytest.approx(sum(is_held_out) / len(is_held_out)) if is_held_out else None)
    if outcome.neural is not None and hidden:
        score = outcome.neural.score(model.groundings.hidden).double()
        np.testing.assert_allclose(outcome.hidden_q, torch.sigmoid(score).numpy(), rtol=1e-12)


VARIANTS: list[dict[str, object]] = [
    {},
    {"mln__hidden_premises": "sampled"},
    {"mln__blanket": "full"},
    {"mln__blanket": "full", "mln__hidden_premises": "sampled"},
    {"mln__aggregate": "mean"},
    {"mln__solver": "gradient", "mln__gradient__iterations": 50, "mln__gradient__step": 0.01},
    {"mln__unit_clauses": False},
    {"em__targets": "soft"},
    {"em__warm_start": True},
    {"em__combine": "log_odds"},
    {"em__iterations": 3},
    {"rules__counting": "paths"},
    {"rules__irreflexive": False},
    {"rules__negative": ("functional", "disjoint"), "rules__min_precision__functional": 0.1},
    {"evaluation__rerank": 5},
    {"mln__l2": 0.0},
]


@pytest.mark.parametrize("values", VARIANTS, ids=lambda v: ",".join(f"{k}={x}" for k, x in v.items()) or "default")
def test_every_variant_runs_end_to_end(values: dict[str, object]) -> None:
    graph, config = small_graph(), small_config(**values)
    outcome = em_of(graph, config)
    assert len(outcome.history) == config.em.iterations
    check(outcome, graph, config)


def test_em_is_reproducible() -> None:
    graph, config = small_graph(), small_config(mln__hidden_premises="sampled")
    a, b = em_of(graph, config), em_of(graph, config)
    assert a.history == b.history
    np.testing.assert_array_equal(a.hidden_q, b.hidden_q)
    np.testing.assert_array_equal(a.rule_model.rules.weight, b.rule_model.rules.weight)


def test_weights_are_at_the_maximum_of_the_pseudolikelihood() -> None:
    """The gradient of the last M-step, computed triple by triple, is zero."""
    graph, config = small_graph(), small_config()
    outcome = em_of(graph, config)
    model = outcome.rule_model
    matrix = model.matrix.toarray()
    target = iter(outcome.hidden_q.tolist())
    gradient = -config.mln.l2 * model.rules.weight
    for row, (odds, observed) in enumerate(zip(model.log_odds.tolist(), model.groundings.observed, strict=True)):
        y = 1.0 if observed else next(target)
        gradient = gradient + (y - 1 / (1 + math.exp(-odds))) * matrix[row]
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_the_first_e_step_uses_only_observed_triples_and_later_ones_also_accepted_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[tuple[Examples, bool]] = []
    fit = VectorModel.fit

    def spy(
        self: VectorModel,
        examples: Examples,
        seed: int,
        warm: bool = False,
        progress: Progress = no_progress,
        **rest: Any,
    ) -> None:
        learned.append((examples, warm))
        fit(self, examples, seed, warm, progress, **rest)

    monkeypatch.setattr(VectorModel, "fit", spy)
    graph = small_graph()
    for warm in (False, True):
        learned.clear()
        outcome = em_of(graph, small_config(em__iterations=3, em__warm_start=warm, em__tau_triplet=0.2))
        assert [w for _, w in learned] == [False, warm, warm]
        assert sorted(learned[0][0].positives.tolist()) == sorted(graph.train.tolist())
        for (examples, _), line in zip(learned[1:], outcome.history[:-1], strict=True):
            accepted = line.accepted
            assert isinstance(accepted, int)
            assert accepted > 0
            assert len(examples.positives) == len(graph.train) + accepted


def test_warm_start_changes_only_later_iterations() -> None:
    graph = small_graph()
    cold, warm = (em_of(graph, small_config(em__warm_start=w)) for w in (False, True))
    assert cold.history[0] == warm.history[0]
    assert cold.hidden_q.tolist() != warm.hidden_q.tolist()


def test_without_a_neural_model_the_rules_are_learned_once() -> None:
    graph, config = small_graph(), small_config(em__neural=False)
    outcome = em_of(graph, config)
    assert outcome.neural is None
    assert len(outcome.history) == 1
    assert set(ranking_orders(config, outcome.lambda_)) == {"rules", "plogicnet*"}
    check(outcome, graph, config)
    metrics = outcome.history[0].valid
    assert isinstance(metrics, dict)
    assert metrics["rules"] == metrics["plogicnet*"]


def no_rules() -> RuleTable:
    return RuleTable.of([], [], [])


@pytest.mark.parametrize("neural", [True, False])
def test_a_graph_without_rules_runs_one_iteration_with_lambda_zero(neural: bool) -> None:
    rows = [(f"a{i}", f"r{i}", f"b{i}") for i in range(10)]
    graph = KnowledgeGraph.from_names(rows[:8], rows[8:9], rows[9:])
    config = small_config(em__neural=neural)
    outcome = em_of(graph, config)
    assert len(outcome.rule_model.rules) == 0
    assert len(outcome.history) == 1
    assert outcome.lambda_ == 0.0
    check(outcome, graph, config)


def test_without_rules_plogicnet_star_equals_the_neural_model() -> None:
    graph, config = small_graph(), small_config()
    outcome = run_em(graph, config, initial_state(graph, config, no_rules(), no_rules(), Hooks()), Hooks())
    assert outcome.lambda_ == 0.0
    metrics = outcome.history[0].valid
    assert isinstance(metrics, dict)
    assert metrics["neural"] == metrics["plogicnet"] == metrics["plogicnet*"]
    check(outcome, graph, config)


def test_premises_are_sampled_from_q_once_per_m_step() -> None:
    graph, config = small_graph(), small_config(mln__hidden_premises="sampled")
    mined = mined_of(graph, config)
    start = build_rule_model(graph, config, mined.rules, mined.constraints)
    hidden = ~start.groundings.observed
    for q in (0.0, 1.0):
        model = start.learn(np.full(int(hidden.sum()), q), config, seed=1)
        assert set(model.truth[hidden].tolist()) == {bool(q)}
        assert model.truth[~hidden].all()
    half = np.full(int(hidden.sum()), 0.5)
    a, b, c = (start.learn(half, config, seed).truth for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert a.tolist() != c.tolist()
    assert 0.2 < a[hidden].mean() < 0.8


def test_the_timer_measures_all_parts() -> None:
    clock = Timer()
    for _ in range(2):
        with clock("part"):
            pass
    assert list(clock.seconds) == ["part"]
    graph, config = small_graph(), small_config()
    mined = mined_of(graph, config)
    run_em(graph, config, initial_state(graph, config, mined.rules, mined.constraints, Hooks()), Hooks(clock=clock))
    assert {"e_step", "m_step", "validate"} <= set(clock.seconds)


def ranks_of(graph: KnowledgeGraph, config: Config, outcome: Outcome, name: str) -> Ranks:
    rules = outcome.rule_model.scores(graph)
    return rank(graph, "test", outcome.neural, rules, {name: ranking_orders(config, outcome.lambda_)[name]})[name]


@pytest.mark.parametrize("combine", ["probability", "log_odds"])
def test_lambda_zero_is_exactly_plogicnet(combine: str) -> None:
    graph, config = small_graph(), small_config(em__lambda=0, em__combine=combine)
    outcome = em_of(graph, config)
    assert outcome.lambda_ == 0
    star, plain = (ranks_of(graph, config, outcome, name) for name in ("plogicnet*", "plogicnet"))
    np.testing.assert_array_equal(star.optimistic, plain.optimistic)
    np.testing.assert_array_equal(star.pessimistic, plain.pessimistic)
    assert outcome.history[-1].valid["plogicnet*"] == outcome.history[-1].valid["plogicnet"]


@pytest.mark.parametrize("combine", ["probability", "log_odds"])
@pytest.mark.parametrize("lambda_", [1e9, 1e300])
def test_a_huge_lambda_ranks_by_the_rules_and_breaks_ties_by_the_score(lambda_: float, combine: str) -> None:
    graph, neural, rules = validation_problem(3)
    config = small_config(em__lambda=lambda_, em__combine=combine)
    star = rank(graph, "test", neural, rules, {"*": ranking_orders(config, lambda_)["plogicnet*"]})["*"]
    observed = set(map(tuple, graph.train.tolist()))
    known = set(map(tuple, np.concatenate([graph.train, graph.valid, graph.test]).tolist()))
    odds = dict(zip(map(tuple, rules.reached.triples.tolist()), rules.log_odds.tolist(), strict=True))
    ranks = {"head": star.realistic[:, 0], "tail": star.realistic[:, 1]}
    for number, (h, r, t) in enumerate(graph.test.tolist()):
        for side, side_ranks in ranks.items():

            def key(e: int, side: str = side, h: int = h, r: int = r, t: int = t) -> tuple[float, float]:
                v = (e, r, t) if side == "head" else (h, r, e)
                forbidden = v[0] == v[2] and r == 0 and v not in observed and odds.get(v, -1.0) < 0
                log_odds = odds.get(v, float(rules.base[r]))
                return (-math.inf, 0.0) if forbidden else (log_odds, float(neural.table[r, v[0], v[2]]))

            target = h if side == "head" else t
            competitors = [
                e for e in range(12) if e != target and ((e, r, t) if side == "head" else (h, r, e)) not in known
            ]
            better = sum(key(e) > key(target) for e in competitors)
            tied = sum(key(e) == key(target) for e in competitors)
            assert side_ranks[number] == 1 + better + tied / 2


def test_with_a_threshold_of_one_every_e_step_uses_only_observed_triples() -> None:
    graph, config = small_graph(), small_config(em__tau_triplet=1)
    outcome = em_of(graph, config)
    assert [line.accepted for line in outcome.history] == [0, 0]
    assert [line.accepted_precision for line in outcome.history] == [None, None]
    check(outcome, graph, config)
    assert make_examples(graph, outcome.rule_model, outcome.accepted, config).positives.tolist() == graph.train.tolist()


def closed_graph() -> KnowledgeGraph:
    """Return a graph with one symmetric relation and all training triples in both directions: no hidden triples."""
    pairs = [(f"p{i}", f"p{i + 1}") for i in range(12)]
    rows = [(a, "next_to", b) for a, b in pairs] + [(b, "next_to", a) for a, b in pairs]
    return KnowledgeGraph.from_names(rows, [("p0", "next_to", "p5")], [("p2", "next_to", "p9")])


@pytest.mark.parametrize("values", [{}, {"em__neural": False}, {"em__hidden_negatives": "explicit"}], ids=str)
def test_one_relation_without_hidden_triples(values: dict[str, object]) -> None:
    graph, config = closed_graph(), small_config(**values)
    outcome = em_of(graph, config)
    assert len(outcome.rule_model.rules) == 1
    assert len(outcome.hidden_q) == 0
    check(outcome, graph, config)
    assert outcome.history[-1].elbo["entropy"] == 0


def test_one_relation_with_hidden_triples() -> None:
    closed = closed_graph()
    names = [closed.names(t) for t in closed.train]
    graph = KnowledgeGraph.from_names(names[:20], [names[20]], names[21:])
    config = small_config()
    outcome = em_of(graph, config)
    hidden = {graph.names(t) for t in outcome.rule_model.groundings.hidden}
    assert hidden == {(t, r, h) for h, r, t in names[:20]} - set(names[:20])
    check(outcome, graph, config)


SOFTMAX: dict[str, object] = {"neural__model": "ComplEx", "neural__vectors__recipe": "one_vs_all"}
SOFTMAX |= {"neural__learning_rate": 0.1}


def test_explicit_negatives_require_hard_targets() -> None:
    config = small_config(em__hidden_negatives="explicit", em__targets="soft")
    with pytest.raises(InputError, match=r"em\.targets=hard"):
        em_of(small_graph(), config)


@pytest.mark.parametrize("values", [{}, SOFTMAX], ids=["sampled", "one_vs_all"])
def test_rejected_hidden_triples_are_the_explicit_negatives(values: dict[str, object]) -> None:
    graph = small_graph()
    config = small_config(**values, em__hidden_negatives="explicit", em__tau_triplet=0.6)
    outcome = em_of(graph, config)
    check(outcome, graph, config)
    model = outcome.rule_model
    rejected = [t for t, p in zip(model.groundings.hidden.tolist(), model.hidden_p_w, strict=True) if p < 0.6]
    assert 0 < len(rejected) < len(outcome.hidden_q)
    assert make_examples(graph, model, outcome.accepted, config).negatives.tolist() == rejected
    without = em_of(graph, small_config(**values, em__tau_triplet=0.6))
    assert without.history[0] == outcome.history[0], "the first E-step uses no hidden triples"
    assert without.hidden_q.tolist() != outcome.hidden_q.tolist()


@pytest.mark.parametrize("values", [{}, {"mln__blanket": "full", "mln__hidden_premises": "sampled"}], ids=str)
def test_parts_of_the_bound_equal_a_loop(values: dict[str, object]) -> None:
    """They are Σ y log p_w + (1 - y) log(1 - p_w) over concluded triples, and the entropy of q."""
    outcome = em_of(small_graph(), small_config(**values, em__iterations=1))
    model = outcome.rule_model
    q = iter(outcome.hidden_q.tolist())
    likelihood = entropy = 0.0
    matrix = model.matrix.toarray()
    for row, (odds, observed) in enumerate(zip(model.log_odds.tolist(), model.groundings.observed, strict=True)):
        y, p = 1.0 if observed else next(q), 1 / (1 + math.exp(-odds))
        if matrix[row].any():
            likelihood += y * math.log(p) + (1 - y) * math.log(1 - p)
        entropy -= sum(x * math.log(x) for x in (y, 1 - y) if x > 0)
    elbo = outcome.history[-1].elbo
    assert elbo["pseudolikelihood"] == pytest.approx(likelihood, rel=1e-9)
    assert elbo["entropy"] == pytest.approx(entropy, rel=1e-9)


def test_softmax_scores_are_rescaled_on_validation_before_the_m_step() -> None:
    """q of the hidden triples is σ(slope · score + offset), with the line fitted to the validation triples."""
    graph, config = small_graph(), small_config(**SOFTMAX, em__iterations=1)
    outcome = em_of(graph, config)
    neural, hidden = outcome.neural, outcome.rule_model.groundings.hidden
    assert isinstance(neural, VectorModel)
    slope, offset = neural.slope, neural.offset
    assert (slope, offset) != (1.0, 0.0)
    neural.rescale(1.0, 0.0)
    raw = neural.score(hidden).double().numpy()
    np.testing.assert_allclose(outcome.hidden_q, 1 / (1 + np.exp(-(slope * raw + offset))), rtol=1e-5)
    labels = sample(graph, "valid", ["train", "valid"], config.seed)
    fitted = platt(neural.score(labels.triples).double().numpy(), labels.label, labels.count)
    assert (slope, offset) == pytest.approx(fitted, rel=1e-9)
    again = outcome.rule_model.learn(outcome.hidden_q, config, seed=1)
    np.testing.assert_array_equal(again.rules.weight, outcome.rule_model.rules.weight)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mln__l2": 0.0},
        {"mln__blanket": "full", "mln__hidden_premises": "sampled"},
        {"mln__aggregate": "mean"},
        {"rules__negative": ("functional", "disjoint"), "rules__min_precision__functional": 0.1},
    ],
    ids=str,
)
def test_the_report_has_standard_errors_and_counts_of_groundings(values: dict[str, object]) -> None:
    """Standard errors are compared with the inverse of the dense Hessian, groundings with a count."""
    graph, config = small_graph(), small_config(**values)
    outcome = em_of(graph, config)
    model = outcome.rule_model
    table = model.report(outcome.hidden_q, config)
    p, matrix = 1 / (1 + np.exp(-model.log_odds)), model.matrix.toarray()
    hessian = (matrix * (p * (1 - p))[:, None]).T @ matrix + config.mln.l2 * np.eye(len(table))
    known = np.isfinite(table.standard_error)
    assert known.all() or config.mln.l2 == 0
    if known.all():
        np.testing.assert_allclose(table.standard_error, np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-6)
    positive = np.flatnonzero(~table.negative)
    counts = [int((model.groundings.rule == j).sum()) for j in positive]
    assert table.groundings[positive].tolist() == counts
    assert sum(counts) == len(model.groundings.rule)
    assert table.groundings[len(positive) :].tolist() == (-matrix[:, len(positive) :].sum(axis=0)).tolist()
    assert bool(table.negative.any()) == ("rules__negative" in values)
    assert table.weight.tolist() == model.rules.weight.tolist()
    assert (model.rules.groundings == -1).all(), "a rule model has no report before `report`"


PROPOSED: dict[str, object] = {
    "rules__propose": "paths",
    "rules__proposal_facts": 20,
    "neural__model": "Paths",
    "neural__learning_rate": "auto",
    "neural__paths__dim": 8,
    "neural__paths__layers": 3,
}


def test_the_path_model_proposes_rules_after_the_first_e_step() -> None:
    graph, config = small_graph(), small_config(**PROPOSED)
    mined = set(mined_of(graph, config).rules.rules)
    outcome = em_of(graph, config)
    check(outcome, graph, config)
    rules = outcome.rule_model.rules
    proposed = [i for i, rule in enumerate(rules.rules) if rule not in mined]
    assert mined < set(rules.rules)
    assert {rules.rules[i].pattern for i in proposed} == {"chain"}
    assert (rules.precision[proposed] >= config.rules.min_precision.chain).all()
    assert np.isfinite(rules.weight[proposed]).all()
    again = em_of(graph, config)
    assert again.rule_model.rules.rules == rules.rules


def test_rules_are_proposed_once() -> None:
    shown: list[str] = []

    @contextmanager
    def progress(description: str, total: float) -> Iterator[Advance]:  # noqa: ARG001
        shown.append(description)
        yield lambda units=1, note="": None  # noqa: ARG005

    graph, config = small_graph(), small_config(**PROPOSED)
    mined = mined_of(graph, config)
    hooks = Hooks(progress=progress)
    run_em(graph, config, initial_state(graph, config, mined.rules, mined.constraints, hooks), hooks)
    assert shown.count("training Paths, steps") == 2
    assert shown.count("paths that propose rules, facts") == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"neural__model": "TransE"}, "needs a path model"),
        ({"em__neural": False}, "needs em.neural=true"),
        ({"em__rules": False}, "needs em.rules=true"),
        ({"rules__counting": "paths"}, "rules.counting=distinct"),
    ],
)
def test_settings_that_do_not_permit_proposals_are_refused_before_training(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=rf"rules\.propose=paths .*{re.escape(message)}"):
        PLogicNet(small_config(**({"rules__propose": "paths", "neural__model": "Paths"} | values)))
    for system in ("blp", "ruge", "nne_aer"):
        with pytest.raises(InputError, match="does not use proposed rules"):
            PLogicNet(Config().with_values({"system": system, "rules.propose": "paths"}))
