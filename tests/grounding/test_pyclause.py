"""PyClause draws the same conclusions from our exported rules as our engines.

PyClause is not on PyPI: `pip install git+https://github.com/symbolic-kg/PyClause.git`. Only its extension is needed.
"""

import os
from pathlib import Path

import pytest

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, open_graph
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.rules import Rule, RuleTable, parse_rule, write_foreign

c_clause = pytest.importorskip("c_clause")
UMLS = Path(os.environ.get("PLOGICNET_DATA", "no-data")) / "umls"
pytestmark = pytest.mark.skipif(not UMLS.is_dir(), reason="needs UMLS in $PLOGICNET_DATA")
WRITTEN = """\
isa(X, Y) & isa(Z, Y) & affects(Z, U) => affects(X, U)
isa(X, Y) & affects(Z, Y) & isa(U, Z) => affects(U, X)
isa(X, organism) => interacts_with(X, bacterium)
isa(bacterium, X) => isa(virus, X)
isa(X, Y) & isa(Y, organism) => interacts_with(X, bacterium)
isa(X, Y) & isa(Z, Y) => interacts_with(X, bacterium)
affects(X, Y) => affects(virus, X)
interacts_with(X, Y) => interacts_with(X, X)
interacts_with(bacterium, X) => interacts_with(X, X)
"""


def conclusions(graph: KnowledgeGraph, rules: tuple[Rule, ...]) -> list[set[tuple[str, ...]]]:
    """Return what each rule concludes from groundings in which different terms are different entities."""
    network = Grounder.of(graph, rules, Config()).groundings
    found: list[set[tuple[str, ...]]] = [set() for _ in rules]
    n_terms = [len({term for atom in (*r.body, r.head) for term in (atom.head, atom.tail)}) for r in rules]
    triples = network.triples.triples
    for rule, hypothesis, premises in zip(network.rule, network.hypothesis, network.premises, strict=True):
        concluded = triples[hypothesis]
        facts = [concluded, *(triples[premise] for premise in premises if premise >= 0)]
        if len({int(entity) for fact in facts for entity in (fact[0], fact[2])}) == n_terms[rule]:
            found[rule].add(graph.names(concluded))
    return found


def test_pyclause_draws_the_same_conclusions(tmp_path: Path) -> None:
    graph = open_graph(UMLS)
    mined = collect_rules(graph, Config()).rules.rules
    rules = (*mined[::20], *map(parse_rule, WRITTEN.splitlines()))
    assert {rule.pattern for rule in rules} >= {"composition", "chain", "general"}
    zeros = [0] * len(rules)
    assert write_foreign(RuleTable.of(rules, zeros, zeros), tmp_path / "rules.txt", "anyburl") == {}
    loader = c_clause.Loader(options={"verbose": "false", "num_threads": "1"})
    loader.load_data(data=[graph.names(triple) for triple in graph.train])
    options = {"collect_predictions": "true", "collect_statistics": "false", "num_threads": "1", "verbose": "false"}
    handler = c_clause.RulesHandler(options=options)
    lines = (tmp_path / "rules.txt").read_text().splitlines()
    handler.calculate_predictions(rules=[line.split("\t")[3] for line in lines], loader=loader)
    theirs = [{tuple(triple) for triple in triples} for triples in handler.get_predictions(as_string=True)]
    ours = conclusions(graph, rules)
    assert sum(map(len, ours)) > 5_000
    for rule, expected, found in zip(rules, theirs, ours, strict=True):
        assert found == expected, rule
