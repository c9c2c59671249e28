"""Simple, slow reference implementations of docs/guide.md, and hypothesis strategies for tiny graphs."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from plogicnet.graph import IntArray, KnowledgeGraph, TripleSet, Vocabulary, as_triples
from plogicnet.grounding.engine import CountingMode
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.native.walks import Chain, EncodedStep
from plogicnet.grounding.sql.clauses import Clause, EncodedAtom
from plogicnet.rules import Rule, Variable

Triple = tuple[int, int, int]
COUNTINGS: tuple[CountingMode, CountingMode] = ("distinct", "paths")


# Strategies: few entities and relations, so that self-loops, parallel edges and cycles are common.


def triples(entities: int, relations: int) -> st.SearchStrategy[Triple]:
    entity = st.integers(0, entities - 1)
    return st.tuples(entity, st.integers(0, relations - 1), entity)


def numbered_graph(
    entities: int,
    relations: int,
    train: Iterable[Triple],
    valid: Iterable[Triple] = (),
    test: Iterable[Triple] = (),
) -> KnowledgeGraph:
    """Return a graph with entities e0, e1, … and relations r0, r1, …."""
    return KnowledgeGraph.from_ids(
        Vocabulary("entity", tuple(f"e{i}" for i in range(entities))),
        Vocabulary("relation", tuple(f"r{i}" for i in range(relations))),
        [as_triples(list(rows)) for rows in (train, valid, test)],
        "tiny",
    )


@st.composite
def graphs(
    draw: st.DrawFn, max_entities: int = 6, max_relations: int = 4, max_triples: int = 16, held_out: bool = False
) -> KnowledgeGraph:
    """Draw a graph, possibly with duplicate rows. With `held_out` it also has valid and test triples."""
    entities, relations = draw(st.integers(2, max_entities)), draw(st.integers(1, max_relations))
    rows = triples(entities, relations)
    train = draw(st.lists(rows, min_size=1, max_size=max_triples))
    held_out_splits = [draw(st.lists(rows, max_size=5)) if held_out else [] for _ in range(2)]
    return numbered_graph(entities, relations, train, *held_out_splits)


def chains(relations: int, max_steps: int = 3) -> st.SearchStrategy[Chain]:
    """Draw chains of up to three steps, forward or backward."""
    relation = st.integers(0, relations - 1)
    steps = st.lists(st.builds(EncodedStep, relation, st.booleans()), min_size=1, max_size=max_steps)
    return st.builds(Chain, steps.map(tuple), relation)


@st.composite
def graphs_and_chains(
    draw: st.DrawFn, max_entities: int = 5, max_relations: int = 3, max_triples: int = 10, max_chains: int = 3
) -> tuple[KnowledgeGraph, list[Chain]]:
    graph = draw(graphs(max_entities, max_relations, max_triples))
    return graph, draw(st.lists(chains(len(graph.relations)), max_size=max_chains))


@st.composite
def clauses(draw: st.DrawFn, entities: int, relations: int, max_premises: int = 3) -> Clause:
    """Draw any connected Horn clause, including cycles, constants and the hypothesis as a premise."""
    variables = [Variable(name) for name in "XYZ"]
    entity, relation = st.integers(0, entities - 1), st.integers(0, relations - 1)
    term = st.one_of(st.sampled_from(variables), st.sampled_from(variables), entity)
    premises = [draw(st.builds(EncodedAtom, relation, term, term))]
    bound = _variables(premises)
    for _ in range(draw(st.integers(0, max_premises - 1)) if bound else 0):
        shared, other = draw(st.sampled_from(bound)), draw(term)
        ends = (shared, other) if draw(st.booleans()) else (other, shared)
        premises.append(EncodedAtom(draw(relation), *ends))
        bound = _variables(premises)
    bound_term = st.one_of(st.sampled_from(bound), st.sampled_from(bound), entity) if bound else entity
    shuffled = tuple(draw(st.permutations(premises)))
    return Clause(shuffled, draw(st.builds(EncodedAtom, relation, bound_term, bound_term)))


@st.composite
def graphs_and_clauses(draw: st.DrawFn) -> tuple[KnowledgeGraph, list[Clause]]:
    graph = draw(graphs(max_entities=4, max_relations=2, max_triples=10))
    return graph, draw(st.lists(clauses(len(graph.entities), len(graph.relations)), min_size=1, max_size=3))


def _variables(atoms: Iterable[EncodedAtom]) -> list[Variable]:
    ends = (end for atom in atoms for end in (atom.head, atom.tail))
    return list(dict.fromkeys(end for end in ends if isinstance(end, Variable)))


def odd_names() -> st.SearchStrategy[str]:
    """Draw names with quotes, spaces and other scripts, but without tabs and line breaks."""
    alphabet = st.one_of(
        st.sampled_from("ab R\"'#,:()&=>\\/_-é北🙂"),
        st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\ufeff"),
    )
    return st.text(alphabet, min_size=1, max_size=8)


def contradicting_facts(rule: Rule, facts: Iterable[Any], triple: tuple[Any, Any, Any]) -> set[Any]:
    """Return the facts, except the triple itself, that are the premise of negative evidence against a triple.

    Facts and the triple consist of names.
    """
    [premise], (head, relation, tail) = rule.body, triple
    found = set()
    for fact in set(facts) - {triple}:
        bound = {rule.head.head: head, rule.head.tail: tail}
        if relation == rule.head.relation and fact[1] == premise.relation:
            ends = ((premise.head, fact[0]), (premise.tail, fact[2]))
            is_match = all(bound.setdefault(term, entity) == entity for term, entity in ends)
            if is_match and all(bound[a] != bound[b] for a, b in rule.unequal):
                found.add(fact)
    return found


# Groundings by trying every tuple of entities.


class Grounding(NamedTuple):
    """The hypothesis and the distinct premises of a grounding."""

    hypothesis: Triple
    premises: frozenset[Triple]


def as_set(rows: IntArray) -> set[Triple]:
    return {(int(h), int(r), int(t)) for h, r, t in rows}


EncodedRule = Chain | Clause


def iter_groundings(
    facts: set[Triple], entities: int, rule: EncodedRule, counting: CountingMode
) -> Iterator[Grounding]:
    """Yield the groundings with premises in the facts. `distinct` leaves out self-supporting groundings."""
    for hypothesis, premises in (
        _all_clause_groundings(entities, rule) if isinstance(rule, Clause) else _all_chain_groundings(entities, rule)
    ):
        if premises <= facts and (counting == "paths" or hypothesis not in premises):
            yield Grounding(hypothesis, premises)


def _all_chain_groundings(entities: int, chain: Chain) -> Iterator[Grounding]:
    for entities_on_path in itertools.product(range(entities), repeat=len(chain.steps) + 1):
        pairs = zip(chain.steps, itertools.pairwise(entities_on_path), strict=True)
        premises = frozenset((a, m.relation, b) if m.forward else (b, m.relation, a) for m, (a, b) in pairs)
        yield Grounding((entities_on_path[0], chain.relation, entities_on_path[-1]), premises)


def _all_clause_groundings(entities: int, clause: Clause) -> Iterator[Grounding]:
    variables = _variables(clause.premises)
    for values in itertools.product(range(entities), repeat=len(variables)):
        value = dict(zip(variables, values, strict=True))

        def triple(atom: EncodedAtom, value: dict[Variable, int] = value) -> Triple:
            head, tail = (value[end] if isinstance(end, Variable) else end for end in (atom.head, atom.tail))
            return head, atom.relation, tail

        yield Grounding(triple(clause.hypothesis), frozenset(map(triple, clause.premises)))


def support_and_hits(facts: set[Triple], entities: int, rule: EncodedRule, counting: CountingMode) -> tuple[int, int]:
    concluded: Sequence[Triple] = [i.hypothesis for i in iter_groundings(facts, entities, rule, counting)]
    if counting == "distinct":
        concluded = list(set(concluded))
    return len(concluded), sum(triple in facts for triple in concluded)


def all_mineable_chains(relations: int) -> dict[str, list[Chain]]:
    """Return all chains of the four mined patterns."""
    ids = range(relations)
    return {
        "composition": [
            Chain((EncodedStep(a, True), EncodedStep(b, True)), c) for a, b, c in itertools.product(ids, repeat=3)
        ],
        "inverse": [Chain((EncodedStep(a, False),), b) for a, b in itertools.permutations(ids, 2)],
        "symmetric": [Chain((EncodedStep(a, False),), a) for a in ids],
        "subrelation": [Chain((EncodedStep(a, True),), b) for a, b in itertools.permutations(ids, 2)],
    }


def hidden(facts: set[Triple], entities: int, rules: Sequence[EncodedRule], counting: CountingMode) -> set[Triple]:
    return {i.hypothesis for rule in rules for i in iter_groundings(facts, entities, rule, counting)} - facts


def ground_by_brute_force(
    facts: set[Triple], entities: int, rules: Sequence[EncodedRule], counting: CountingMode, hidden_premises: bool
) -> list[tuple[int, Grounding]]:
    """Return (rule number, grounding) for hypotheses in O ∪ H and premises in O, or in O ∪ H if hidden."""
    variables = facts | hidden(facts, entities, rules, counting)
    premises = variables if hidden_premises else facts
    return [
        (number, grounding)
        for number, rule in enumerate(rules)
        for grounding in iter_groundings(premises, entities, rule, counting)
        if grounding.hypothesis in variables
    ]


def to_groundings(groundings: InMemoryGroundNetwork) -> list[tuple[int, Grounding]]:
    """Convert the program's groundings to (rule number, grounding)."""
    triples: list[Triple] = [(int(h), int(r), int(t)) for h, r, t in groundings.triples.triples]
    return [
        (int(rule), Grounding(triples[hypothesis], frozenset(triples[p] for p in premises if p >= 0)))
        for rule, hypothesis, premises in zip(groundings.rule, groundings.hypothesis, groundings.premises, strict=True)
    ]


# The same by joining dictionaries, for graphs with too many tuples.


Paths = dict[tuple[EncodedStep, ...], list[tuple[int, int, frozenset[Triple]]]]


def paths(facts: set[Triple]) -> Paths:
    """Return head, tail and premises of the paths of each body of the mined patterns."""
    facts_by_head: dict[int, list[Triple]] = defaultdict(list)
    for fact in facts:
        facts_by_head[fact[0]].append(fact)
    paths_by_body: Paths = defaultdict(list)
    for h, r, m in facts:
        paths_by_body[EncodedStep(r, True),].append((h, m, frozenset({(h, r, m)})))
        paths_by_body[EncodedStep(r, False),].append((m, h, frozenset({(h, r, m)})))
        for _, s, t in facts_by_head[m]:
            paths_by_body[EncodedStep(r, True), EncodedStep(s, True)].append((h, t, frozenset({(h, r, m), (m, s, t)})))
    return paths_by_body


def candidates(facts: set[Triple], paths_by_body: Paths, counting: CountingMode) -> dict[Chain, tuple[int, int]]:
    """Return the support and hits of all rules of the mined patterns with at least one hit."""
    pairs_of: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for h, r, t in facts:
        pairs_of[r].add((h, t))
    counts = {}
    for body, body_paths in paths_by_body.items():
        n_paths = Counter((h, t) for h, t, _ in body_paths)
        for r, pairs in pairs_of.items():
            if body == (EncodedStep(r, True),):
                continue
            concluded = n_paths
            if counting == "distinct" and any(step.relation == r for step in body):
                concluded = Counter((h, t) for h, t, premises in body_paths if (h, r, t) not in premises)
            hits = pairs & concluded.keys()
            if hits and counting == "distinct":
                counts[Chain(body, r)] = len(concluded), len(hits)
            elif hits:
                counts[Chain(body, r)] = concluded.total(), sum(concluded[pair] for pair in hits)
    return counts


def ground_by_joins(
    paths_by_body: Paths, rules: Sequence[Chain], counting: CountingMode
) -> list[tuple[int, Grounding]]:
    """Return (rule index, grounding) of mined rules with observed premises."""
    return [
        (number, Grounding((h, rule.relation, t), premises))
        for number, rule in enumerate(rules)
        for h, t, premises in paths_by_body[rule.steps]
        if counting == "paths" or (h, rule.relation, t) not in premises
    ]


# The Markov logic network, Eq. 3 of the paper: p(v) ∝ exp(Σ_l w_l n_l(v)).


def true_groundings(groundings: Sequence[tuple[int, Grounding]], true: set[Triple], rules: int) -> list[int]:
    """Return n_l, the number of true groundings of each rule. A grounding is false only if it is violated."""
    counts = [0] * rules
    for rule, (hypothesis, premises) in groundings:
        counts[rule] += hypothesis in true or not premises <= true
    return counts


def log_joint(
    groundings: Sequence[tuple[int, Grounding]],
    true: set[Triple],
    weights: Sequence[float],
    base: Sequence[float],
) -> float:
    """Return the unnormalised log p of a set of true triples, with rules and unit clauses."""
    counts = true_groundings(groundings, true, len(weights))
    return sum(w * n for w, n in zip(weights, counts, strict=True)) + sum(base[r] for _, r, _ in true)


def true_triples(variables: TripleSet, truth: Iterable[bool]) -> set[Triple]:
    """Return the triples that a truth assignment makes true."""
    return as_set(variables.triples[np.fromiter(truth, dtype=bool, count=len(variables))])
