"""The rules of a run: mined, written by people, or both."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from plogicnet.config import Config
from plogicnet.config.shapes import shapes_of
from plogicnet.graph import HEAD, RELATION, TAIL, KnowledgeGraph
from plogicnet.grounding.engine import Engine, Mined, Resources, engines
from plogicnet.grounding.network import Network
from plogicnet.rules import Rule, RuleTable, Statement
from plogicnet.support.errors import InputError, many
from plogicnet.support.progress import Progress, silent

log = logging.getLogger(__name__)


def find_rules(
    graph: KnowledgeGraph, config: Config, statements: Sequence[Statement] = (), progress: Progress = silent
) -> Mined:
    """Mines rules, where the settings ask for it, and adds the written ones, which are kept whatever their precision.

    Example:
        >>> from plogicnet.rules import statements_of
        >>> graph = KnowledgeGraph.from_names([("a", "husband", "b"), ("b", "wife", "a"), ("c", "husband", "d")])
        >>> written = statements_of("=2: wife(A, B) => husband(B, A)", graph)
        >>> rules = find_rules(graph, Config(), written).rules
        >>> [(str(rule), bool(fixed)) for rule, fixed in zip(rules.rules, rules.fixed)]
        [('husband(X, Y) => wife(Y, X)', False), ('wife(X, Y) => husband(Y, X)', True)]
    """
    nothing = RuleTable.of([], [], [])
    mined = Mined(nothing, nothing, 0)
    if config.rules.mine:
        resources = Resources(config.threads, config.grounding.memory_mb, progress)
        mined = _miner(config).mine(graph, config.rules, resources)
    return _with_statements(mined, graph, config, statements, progress) if statements else mined


def _miner(config: Config) -> Engine:
    """The first engine that mines every pattern of the settings."""
    named, shapes = config.grounding.engine, shapes_of(config.rules.patterns)
    for _, engine in engines(named):
        if all(map(engine.mines, shapes)):
            return engine
    raise InputError(
        f"rules.patterns: no engine of grounding.engine={named} mines all of {', '.join(config.rules.patterns)};"
        " leave a pattern out, or --set grounding.engine=auto"
    )


def _with_statements(
    mined: Mined, graph: KnowledgeGraph, config: Config, statements: Sequence[Statement], progress: Progress
) -> Mined:
    at = {rule: i for i, rule in enumerate(mined.rules.rules)}
    given, fixed = mined.rules.given.copy(), mined.rules.fixed.copy()
    new: list[Statement] = []
    for statement in statements:
        row = at.get(statement.rule.renamed)
        if row is None:
            new.append(statement)
        else:
            given[row], fixed[row] = _given(statement), statement.fixed
    rules = replace(mined.rules, given=given, fixed=fixed)
    written = [s for s in new if s.rule.pattern != "irreflexive"]
    network = Network.of(graph, tuple(s.rule for s in written), config, progress=progress)
    support, hits = network.counts()
    for rule, concluded, known in zip(network.rules, support.tolist(), hits.tolist(), strict=True):
        if not concluded:
            log.warning("%s: concludes nothing from the training triples", rule)
        elif not known:
            log.warning("%s: concludes %s, but no training triple", rule, many(concluded, "triple"))
    table = RuleTable.of(
        network.rules, support.tolist(), hits.tolist(), None, list(map(_given, written)), [s.fixed for s in written]
    )
    known = set(mined.constraints.rules)
    constraints = [s.rule for s in new if s.rule.pattern == "irreflexive" and s.rule.renamed not in known]
    return Mined(rules.joined(table), mined.constraints.joined(_constraint_table(graph, constraints)), mined.candidates)


def _given(statement: Statement) -> float:
    return float("nan") if statement.weight is None else statement.weight


def _constraint_table(graph: KnowledgeGraph, rules: Sequence[Rule]) -> RuleTable:
    ids = [graph.relations.id(rule.head.relation) for rule in rules]
    facts = [graph.train[graph.train[:, RELATION] == i] for i in ids]
    kept = [int(np.sum(rows[:, HEAD] != rows[:, TAIL])) for rows in facts]
    return RuleTable.of([rule.renamed for rule in rules], [len(rows) for rows in facts], kept)
