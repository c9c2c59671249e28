"""Candidates of queries, compared with brute force, and training queries, compared with graphs without their facts."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph
from plogicnet.grounding.engine import Resources
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.conclusions import TOP, Conclusions, Queries, conclude, scale
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.native.rule_index import SMOOTHING, RuleIndex
from plogicnet.rules import Rule, RuleTable, Variable
from plogicnet.rules.rule import FORMULAS
from reference import Triple, as_set, graphs, numbered_graph

RULES = (
    Config()
    .with_values(
        {
            "rules.max_length": 3,
            "rules.backward": True,
            "rules.constants": True,
            "rules.min_precision": dict.fromkeys(("composition", "subrelation", "chain", "constant"), 0.0),
        }
    )
    .rules
)
Candidate = tuple[dict[str, float], dict[str, float]]
"""The values of the rules that conclude a candidate, by text, and the values of the formulas, by name."""


def parts(graph: KnowledgeGraph, rules: RuleTable, queries: Queries, hide_pair: bool = False) -> list[Conclusions]:
    adjacency = Adjacency.of(graph.observed, len(graph.relations))
    index = RuleIndex.of(graph, rules, RULES, adjacency)
    return list(conclude(adjacency, index, queries, hide_pair=hide_pair, threads=1))


def as_dictionaries(rules: RuleTable, found: list[Conclusions]) -> list[dict[int, Candidate]]:
    """Return the candidates of each query by entity."""
    result: list[dict[int, Candidate]] = []
    for part in found:
        for low, high in itertools.pairwise(part.begin.tolist()):
            candidates = {}
            for i in range(low, high):
                rows = slice(part.rule_begin[i], part.rule_begin[i + 1])
                pairs = zip(part.rule[rows].tolist(), part.rule_value[rows].tolist(), strict=True)
                values = {str(rules.rules[rule]): value for rule, value in pairs}
                formulas = dict(zip(FORMULAS, part.values[i].tolist(), strict=True))
                candidates[int(part.entity[i])] = values, formulas
            result.append(candidates)
    return result


def groundings(rule: Rule, graph: KnowledgeGraph, facts: set[Triple], head: int, tail: int) -> int:
    """Return the number of groundings of a rule that conclude (head, r, tail), by trying all entities."""
    n = len(graph.entities)
    variables = sorted({v for atom in (*rule.body, rule.head) for v in atom.variables}, key=str)
    count = 0
    for values in itertools.product(range(n), repeat=len(variables)):
        bound = dict(zip(variables, values, strict=True))

        def entity(term: object, bound: dict[Variable, int] = bound) -> int:
            return bound[term] if isinstance(term, Variable) else graph.entities.id(term.name)  # type: ignore[attr-defined]

        if (entity(rule.head.head), entity(rule.head.tail)) != (head, tail):
            continue
        atoms = {(entity(a.head), graph.relations.id(a.relation), entity(a.tail)) for a in rule.body}
        count += atoms <= facts
    return count


def by_brute_force(graph: KnowledgeGraph, rules: RuleTable, head: int, relation: int, tail: int) -> Candidate | None:
    """Return the values of a triple that is not in the graph."""
    facts = as_set(graph.train)
    confidence = rules.hits / (rules.support + SMOOTHING)
    by_group: dict[object, tuple[float, int, float]] = {}
    for i, rule in enumerate(rules.rules):
        if graph.relations.id(rule.head.relation) != relation:
            continue
        count = groundings(rule, graph, facts, head, tail)
        if not count:
            continue
        if rule.chain is not None:
            by_group[i] = confidence[i], i, math.log2(1 + count)
            continue
        (premise,) = rule.body
        (subject,) = rule.head.variables
        key = (rule.head.head == subject, premise.head == subject, premise.relation, len(premise.variables))
        entry = confidence[i], -i, float(scale(np.array(confidence[i])))
        by_group[key] = max(by_group.get(key, entry), entry)
    if not by_group:
        return None
    kinds: dict[str, float] = defaultdict(float)
    for c, i, _ in by_group.values():
        rule = rules.rules[abs(i)]
        kind = "chain" if rule.chain else "tail" if isinstance(rule.head.head, Variable) else "head"
        kinds[kind] = max(kinds[kind], c)
    top = sorted((c for c, _, _ in by_group.values()), reverse=True)[:TOP] + [0.0] * TOP
    noisy_or = 1 - math.prod(1 - c for c in top[:TOP])
    tails, heads = [f for f in facts if f[1:] == (relation, tail)], [f for f in facts if f[:2] == (head, relation)]
    formulas = [1.0, *(float(scale(np.array(c))) for c in (top[0], top[1], noisy_or))]
    formulas += [float(scale(np.array(kinds[kind]))) for kind in ("chain", "tail", "head")]
    edges = [end for f in facts for end in (f[0], f[2])]
    formulas += [math.log1p(len(tails)), math.log1p(edges.count(tail))]
    formulas += [math.log1p(len(heads)), math.log1p(edges.count(head))]
    linked = any((f[0], f[2]) in {(head, tail), (tail, head)} for f in facts)
    formulas += [float(bool(tails)), float(bool(heads)), float(linked)]
    values = {str(rules.rules[abs(i)]): value for _, i, value in by_group.values()}
    return values, dict(zip(FORMULAS, formulas, strict=True))


def is_close(one: Candidate, other: Candidate) -> bool:
    return all(
        a.keys() == b.keys() and all(abs(a[k] - b[k]) < 1e-5 for k in a) for a, b in zip(one, other, strict=True)
    )


def all_queries(graph: KnowledgeGraph) -> Queries:
    """Return every query without an answer."""
    n, r = len(graph.entities), len(graph.relations)
    rows = np.array(list(itertools.product(range(n), range(r), (0, 1))))
    return Queries(rows[:, 0], rows[:, 1], rows[:, 2], np.full(len(rows), -1))


@settings(max_examples=15, deadline=None)
@given(graphs(max_entities=4, max_relations=2, max_triples=8))
def test_candidates_equal_brute_force(graph: KnowledgeGraph) -> None:
    rules = NATIVE.mine(graph, RULES, Resources(threads=1)).rules
    queries, facts = all_queries(graph), as_set(graph.train)
    for i, found in enumerate(as_dictionaries(rules, parts(graph, rules, queries))):
        known, relation, direction = int(queries.known[i]), int(queries.relation[i]), int(queries.direction[i])
        for entity in range(len(graph.entities)):
            head, tail = (known, entity) if direction == 0 else (entity, known)
            if (head, relation, tail) in facts:
                continue  # the facts of a training query are tested below
            expected = by_brute_force(graph, rules, head, relation, tail)
            assert (entity in found) == (expected is not None)
            if expected is not None:
                assert is_close(found[entity], expected)


@settings(max_examples=60, deadline=None)
@given(graphs(max_entities=5, max_relations=2, max_triples=12), st.booleans(), st.sampled_from([0, 1]), st.data())
def test_a_training_query_is_answered_as_if_its_fact_were_not_in_the_graph(
    graph: KnowledgeGraph, hide_pair: bool, direction: int, data: st.DataObject
) -> None:
    """All candidates, rules and formulas equal those of a graph without the hidden facts, so no trace is left."""
    rules = NATIVE.mine(graph, RULES, Resources(threads=1)).rules
    fact = data.draw(st.sampled_from(sorted(as_set(graph.train))))
    h, r, t = fact
    hidden = {f for f in as_set(graph.train) if f == fact or (hide_pair and {f[0], f[2]} == {h, t})}
    assume(len(hidden) < len(as_set(graph.train)))
    smaller = numbered_graph(len(graph.entities), len(graph.relations), as_set(graph.train) - hidden)
    known, answer = (h, t) if direction == 0 else (t, h)
    query = Queries(*(np.array([x]) for x in (known, r, direction, answer)))
    (found,) = as_dictionaries(rules, parts(graph, rules, query, hide_pair))
    # without the fact, the rules that conclude it have one hit less, and those without hits are not mined
    concludes = [
        rule.head.relation == f"r{r}" and groundings(rule, graph, as_set(smaller.train), h, t) > 0
        for rule in rules.rules
    ]
    hits = rules.hits - np.array(concludes, dtype=bool)
    left = replace(rules, hits=hits).take(hits > 0)
    (expected,) = as_dictionaries(left, parts(smaller, left, replace(query, answer=np.array([-1]))))
    assert found.keys() == expected.keys()
    assert all(is_close(found[e], expected[e]) for e in found)


@settings(max_examples=30, deadline=None)
@given(graphs(max_entities=5, max_relations=2, max_triples=12), st.integers(1, 3))
def test_the_best_candidates_are_kept_and_others_excluded(graph: KnowledgeGraph, size: int) -> None:
    rules = NATIVE.mine(graph, RULES, Resources(threads=1)).rules
    adjacency = Adjacency.of(graph.observed, len(graph.relations))
    index, queries = RuleIndex.of(graph, rules, RULES, adjacency), all_queries(graph)
    excluded = np.arange(len(queries) + 1), np.zeros(len(queries), np.int64)  # entity 0 is no candidate
    everything = as_dictionaries(rules, list(conclude(adjacency, index, queries, threads=1)))
    some = as_dictionaries(rules, list(conclude(adjacency, index, queries, size, excluded, threads=2)))
    for full, best in zip(everything, some, strict=True):
        full.pop(0, None)
        ranked = sorted(full, key=lambda e: (-full[e][1]["noisy_or"], e))
        scores = [full[e][1]["noisy_or"] for e in ranked[:size]]
        assert len(best) == len(scores)
        assert np.allclose(sorted(scores), sorted(best[e][1]["noisy_or"] for e in best), atol=1e-6)
        assert all(is_close(best[e], full[e]) for e in best)


def standardised_rank(graph: KnowledgeGraph, leak: str) -> float:
    """Return the mean rank of the answers of all training queries, in standard errors from that of a random order."""
    rules = NATIVE.mine(graph, replace(RULES, max_length=2), Resources(threads=1)).rules
    adjacency = Adjacency.of(graph.observed, len(graph.relations))
    index = RuleIndex.of(graph, rules, RULES, adjacency)
    if leak == "own hit":
        index = replace(index, arrays=index.arrays._replace(left_out=index.arrays.confidence))
    triples = np.tile(graph.train, (2, 1))
    n, direction = len(graph.train), np.repeat([0, 1], len(graph.train))
    known, answer = (np.where(direction == 0, triples[:, a], triples[:, b]) for a, b in ((0, 2), (2, 0)))
    is_told = leak != "own fact"
    queries = Queries(known, triples[:, 1], direction, answer if is_told else np.full(2 * n, -1))
    others = [
        [f[2 if d == 0 else 0] for f in as_set(graph.train) if f[1] == r and f[0 if d == 0 else 2] == k]
        for k, r, d in zip(known.tolist(), triples[:, 1].tolist(), direction.tolist(), strict=True)
    ]
    excluded = np.cumsum([0, *map(len, others)]), np.array([e for row in others for e in row])
    if not is_told:
        excluded = np.zeros(2 * n + 1, np.int64), excluded[1][:0]
    column = FORMULAS.index("noisy_or" if leak != "own fact" else "tail_facts")
    total, variance, start = 0.0, 0.0, 0
    for part in conclude(adjacency, index, queries, 0, excluded, threads=1):
        for q, (low, high) in enumerate(itertools.pairwise(part.begin.tolist()), start):
            scores, size = part.values[low:high, column], high - low
            own = np.flatnonzero(part.entity[low:high] == answer[q])
            if len(own) and size > 1:
                better, tied = int(np.sum(scores > scores[own[0]])), int(np.sum(scores == scores[own[0]])) - 1
                total += better + tied / 2 - (size - 1) / 2
                variance += (size**2 - 1) / 12
        start += len(part.begin) - 1
    return total / math.sqrt(variance)


def test_the_facts_of_a_random_graph_cannot_be_predicted() -> None:
    """Heads and tails are independent and uniform. Answers rank like random candidates, unless a leak is planted."""
    rng = np.random.default_rng(5)
    rows = np.stack([rng.integers(0, 60, 500), rng.integers(0, 2, 500), rng.integers(0, 60, 500)], axis=1)
    graph = numbered_graph(60, 2, [(h, r, t) for h, r, t in rows.tolist()])
    assert abs(standardised_rank(graph, "nothing")) < 3
    assert standardised_rank(graph, "own hit") < -3  # better than random
    assert standardised_rank(graph, "own fact") < -3
