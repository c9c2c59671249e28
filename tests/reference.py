"""Slow, obvious references for what docs/guide.md says, and hypothesis strategies for tiny graphs to try them on."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from plogicnet.graph import IntArray, KnowledgeGraph, TripleSet, Vocabulary, as_triples
from plogicnet.grounding.engine import Counting
from plogicnet.grounding.groundings import Groundings
from plogicnet.grounding.native.walks import Chain, Move
from plogicnet.grounding.sql.clauses import Clause, NumberedAtom
from plogicnet.rules import Variable

Triple = tuple[int, int, int]
COUNTINGS: tuple[Counting, Counting] = ("distinct", "paths")


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
    """A graph whose entities are called e0, e1, … and whose relations r0, r1, …."""
    return KnowledgeGraph.from_numbers(
        Vocabulary("entity", tuple(f"e{i}" for i in range(entities))),
        Vocabulary("relation", tuple(f"r{i}" for i in range(relations))),
        [as_triples(list(rows)) for rows in (train, valid, test)],
        "tiny",
    )


@st.composite
def graphs(
    draw: st.DrawFn, max_entities: int = 6, max_relations: int = 4, max_triples: int = 16, held_out: bool = False
) -> KnowledgeGraph:
    """Any graph of that size; rows may be drawn twice. With `held_out` it has valid and test triples as well."""
    entities, relations = draw(st.integers(2, max_entities)), draw(st.integers(1, max_relations))
    rows = triples(entities, relations)
    train = draw(st.lists(rows, min_size=1, max_size=max_triples))
    more = [draw(st.lists(rows, max_size=5)) if held_out else [] for _ in range(2)]
    return numbered_graph(entities, relations, train, *more)


def chains(relations: int, max_steps: int = 3) -> st.SearchStrategy[Chain]:
    """Chains of any pattern, mined or not: up to three steps, each forwards or backwards."""
    relation = st.integers(0, relations - 1)
    moves = st.lists(st.builds(Move, relation, st.booleans()), min_size=1, max_size=max_steps)
    return st.builds(Chain, moves.map(tuple), relation)


@st.composite
def graphs_and_chains(
    draw: st.DrawFn, max_entities: int = 5, max_relations: int = 3, max_triples: int = 10, max_chains: int = 3
) -> tuple[KnowledgeGraph, list[Chain]]:
    graph = draw(graphs(max_entities, max_relations, max_triples))
    return graph, draw(st.lists(chains(len(graph.relations)), max_size=max_chains))


@st.composite
def clauses(draw: st.DrawFn, entities: int, relations: int, max_premises: int = 3) -> Clause:
    """Any connected Horn clause: stars, cycles, entities, a variable twice in one atom, the hypothesis as a premise."""
    variables = [Variable(name) for name in "XYZ"]
    entity, relation = st.integers(0, entities - 1), st.integers(0, relations - 1)
    term = st.one_of(st.sampled_from(variables), st.sampled_from(variables), entity)
    premises = [draw(st.builds(NumberedAtom, relation, term, term))]
    bound = _variables(premises)
    for _ in range(draw(st.integers(0, max_premises - 1)) if bound else 0):
        joined, other = draw(st.sampled_from(bound)), draw(term)
        ends = (joined, other) if draw(st.booleans()) else (other, joined)
        premises.append(NumberedAtom(draw(relation), *ends))
        bound = _variables(premises)
    known = st.one_of(st.sampled_from(bound), st.sampled_from(bound), entity) if bound else entity
    shuffled = tuple(draw(st.permutations(premises)))
    return Clause(shuffled, draw(st.builds(NumberedAtom, relation, known, known)))


@st.composite
def graphs_and_clauses(draw: st.DrawFn) -> tuple[KnowledgeGraph, list[Clause]]:
    graph = draw(graphs(max_entities=4, max_relations=2, max_triples=10))
    return graph, draw(st.lists(clauses(len(graph.entities), len(graph.relations)), min_size=1, max_size=3))


def _variables(atoms: Iterable[NumberedAtom]) -> list[Variable]:
    ends = (end for atom in atoms for end in (atom.head, atom.tail))
    return list(dict.fromkeys(end for end in ends if isinstance(end, Variable)))


def odd_names() -> st.SearchStrategy[str]:
    """Names as files may hold them: quotes, spaces, other scripts, but no tab and no line break."""
    alphabet = st.one_of(
        st.sampled_from("ab R\"'#,:()&=>\\/_-é北🙂"),
        st.characters(blacklist_categories=("Cc", "Cs"), blacklist_characters="\ufeff"),
    )
    return st.text(alphabet, min_size=1, max_size=8)


# Groundings by trying every tuple of entities.


class Instance(NamedTuple):
    """One grounding: what it concludes, from which triples (a premise that occurs twice counts once)."""

    hypothesis: Triple
    premises: frozenset[Triple]


def as_set(rows: IntArray) -> set[Triple]:
    return {(int(h), int(r), int(t)) for h, r, t in rows}


Numbered = Chain | Clause


def instances(facts: set[Triple], entities: int, rule: Numbered, counting: Counting) -> Iterator[Instance]:
    """Every grounding whose premises are facts; `distinct` leaves out those that have their hypothesis among them."""
    for hypothesis, premises in _assigned(entities, rule) if isinstance(rule, Clause) else _passed(entities, rule):
        if premises <= facts and (counting == "paths" or hypothesis not in premises):
            yield Instance(hypothesis, premises)


def _passed(entities: int, chain: Chain) -> Iterator[Instance]:
    for passed in itertools.product(range(entities), repeat=len(chain.moves) + 1):
        pairs = zip(chain.moves, itertools.pairwise(passed), strict=True)
        premises = frozenset((a, m.relation, b) if m.forward else (b, m.relation, a) for m, (a, b) in pairs)
        yield Instance((passed[0], chain.relation, passed[-1]), premises)


def _assigned(entities: int, clause: Clause) -> Iterator[Instance]:
    variables = _variables(clause.premises)
    for values in itertools.product(range(entities), repeat=len(variables)):
        value = dict(zip(variables, values, strict=True))

        def triple(atom: NumberedAtom, value: dict[Variable, int] = value) -> Triple:
            head, tail = (value[end] if isinstance(end, Variable) else end for end in (atom.head, atom.tail))
            return head, atom.relation, tail

        yield Instance(triple(clause.hypothesis), frozenset(map(triple, clause.premises)))


def support_and_hits(facts: set[Triple], entities: int, rule: Numbered, counting: Counting) -> tuple[int, int]:
    concluded: Sequence[Triple] = [i.hypothesis for i in instances(facts, entities, rule, counting)]
    if counting == "distinct":
        concluded = list(set(concluded))
    return len(concluded), sum(triple in facts for triple in concluded)


def possible_rules(relations: int) -> dict[str, list[Chain]]:
    """Every rule of the four mined patterns that can be written down."""
    ids = range(relations)
    return {
        "composition": [Chain((Move(a, True), Move(b, True)), c) for a, b, c in itertools.product(ids, repeat=3)],
        "inverse": [Chain((Move(a, False),), b) for a, b in itertools.permutations(ids, 2)],
        "symmetric": [Chain((Move(a, False),), a) for a in ids],
        "subrelation": [Chain((Move(a, True),), b) for a, b in itertools.permutations(ids, 2)],
    }


def hidden(facts: set[Triple], entities: int, rules: Sequence[Numbered], counting: Counting) -> set[Triple]:
    return {i.hypothesis for rule in rules for i in instances(facts, entities, rule, counting)} - facts


def network(
    facts: set[Triple], entities: int, rules: Sequence[Numbered], counting: Counting, hidden_premises: bool
) -> list[tuple[int, Instance]]:
    """(rule's number, grounding) wherever the hypothesis is in O ∪ H and the premises are in O, or in O ∪ H."""
    variables = facts | hidden(facts, entities, rules, counting)
    true = variables if hidden_premises else facts
    return [
        (number, instance)
        for number, rule in enumerate(rules)
        for instance in instances(true, entities, rule, counting)
        if instance.hypothesis in variables
    ]


def unpacked(groundings: Groundings) -> list[tuple[int, Instance]]:
    """The program's groundings in the reference's terms."""
    names: list[Triple] = [(int(h), int(r), int(t)) for h, r, t in groundings.triples.triples]
    return [
        (int(rule), Instance(names[hypothesis], frozenset(names[p] for p in premises if p >= 0)))
        for rule, hypothesis, premises in zip(groundings.rule, groundings.hypothesis, groundings.premises, strict=True)
    ]


# The same by joining dictionaries, where there are too many tuples to try.


Paths = dict[tuple[Move, ...], list[tuple[int, int, frozenset[Triple]]]]


def paths(facts: set[Triple]) -> Paths:
    """For each body of the mined patterns, its paths: head, tail and premises."""
    leaving: dict[int, list[Triple]] = defaultdict(list)
    for fact in facts:
        leaving[fact[0]].append(fact)
    found: Paths = defaultdict(list)
    for h, r, m in facts:
        found[Move(r, True),].append((h, m, frozenset({(h, r, m)})))
        found[Move(r, False),].append((m, h, frozenset({(h, r, m)})))
        for _, s, t in leaving[m]:
            found[Move(r, True), Move(s, True)].append((h, t, frozenset({(h, r, m), (m, s, t)})))
    return found


def candidates(facts: set[Triple], found: Paths, counting: Counting) -> dict[Chain, tuple[int, int]]:
    """Support and hits of every rule of the mined patterns that has a hit."""
    pairs_of: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for h, r, t in facts:
        pairs_of[r].add((h, t))
    counted = {}
    for body, of_body in found.items():
        every = Counter((h, t) for h, t, _ in of_body)
        for r, pairs in pairs_of.items():
            if body == (Move(r, True),):
                continue
            concluded = every
            if counting == "distinct" and any(move.relation == r for move in body):
                concluded = Counter((h, t) for h, t, premises in of_body if (h, r, t) not in premises)
            hits = pairs & concluded.keys()
            if hits and counting == "distinct":
                counted[Chain(body, r)] = len(concluded), len(hits)
            elif hits:
                counted[Chain(body, r)] = concluded.total(), sum(concluded[pair] for pair in hits)
    return counted


def joined_network(found: Paths, rules: Sequence[Chain], counting: Counting) -> list[tuple[int, Instance]]:
    """(rule's number, grounding) of mined rules, with observed premises."""
    return [
        (number, Instance((h, rule.relation, t), premises))
        for number, rule in enumerate(rules)
        for h, t, premises in found[rule.moves]
        if counting == "paths" or (h, rule.relation, t) not in premises
    ]


# The Markov logic network, Eq. 3 of the paper: p(v) ∝ exp(Σ_l w_l n_l(v)).


def true_groundings(grounded: Sequence[tuple[int, Instance]], world: set[Triple], rules: int) -> list[int]:
    """n_l: for each rule, how many of its groundings are true; one is false only where it is broken."""
    counts = [0] * rules
    for rule, (hypothesis, premises) in grounded:
        counts[rule] += hypothesis in world or not premises <= world
    return counts


def log_joint(
    grounded: Sequence[tuple[int, Instance]],
    world: set[Triple],
    weights: Sequence[float],
    base: Sequence[float],
) -> float:
    """The unnormalised log p of a world: the rules' true groundings, and a unit clause for each true triple."""
    counts = true_groundings(grounded, world, len(weights))
    return sum(w * n for w, n in zip(weights, counts, strict=True)) + sum(base[r] for _, r, _ in world)


def true_rows(variables: TripleSet, truth: Iterable[bool]) -> set[Triple]:
    """The triples that an assignment of truth makes true."""
    return as_set(variables.triples[np.fromiter(truth, dtype=bool, count=len(variables))])
