"""The rules of a run as arrays, arranged so that all conclusions about one entity are found quickly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from plogicnet import config
from plogicnet.graph import FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.grounding.native.chains import Trie
from plogicnet.grounding.native.constants import ANY
from plogicnet.rules import RuleTable
from plogicnet.rules.rule import Constant, Rule
from plogicnet.support.errors import InputError

MAX_STEPS = 3
"""The largest number of steps of a chain."""
SMOOTHING = 5.0
"""Added to the support in the confidence of a rule, as AnyBURL does: 3 hits of 3 say less than 300 of 300."""
CHAIN, TAIL_CONSTANT, HEAD_CONSTANT = 0, 1, 2
"""Kinds of rules: chains, rules whose constant is the tail of the hypothesis, and rules whose constant is its head."""


class RuleArrays(NamedTuple):
    """The rules in compiled code.

    Chains form one tree per relation and direction. A direction is 0 from the head to the tail of the hypothesis, 1
    from the tail to the head. Rules with constants are sorted twice: by their premise, to find the constants that
    follow for an entity, and by their constant, to find the entities for which it follows.

    Attributes:
        root: the root of each tree, at 2 · relation + direction, or -1.
        begin, step, node, rule: the trees; see `Trie`. `rule` is the rule that ends at each node, or -1.
        premise_key: (step · steps + premise step) · (entities + 1) + premise constant + 1, sorted.
        premise_constant, premise_rule: the constant of the hypothesis and the rule of each key.
        constant_key: step · entities + constant, sorted; equal keys are sorted by group.
        constant_step, constant_entity, constant_rule: premise step, premise constant and rule of each key.
        confidence: hits / (support + SMOOTHING) of each rule.
        left_out: the same with one hit less, for the query of a hit; 0 if the rule would then not have been mined.
        group: the group of each rule. Of the rules of a group that conclude a triple, only the best counts.
        kind: CHAIN, TAIL_CONSTANT or HEAD_CONSTANT.
    """

    root: Any
    begin: Any
    step: Any
    node: Any
    rule: Any
    premise_key: Any
    premise_constant: Any
    premise_rule: Any
    constant_key: Any
    constant_step: Any
    constant_entity: Any
    constant_rule: Any
    confidence: Any
    left_out: Any
    group: Any
    kind: Any


@dataclass(frozen=True)
class RuleIndex:
    """The index of the rules of a run.

    Attributes:
        arrays: the rules in compiled code.
        relation: the relation of each rule's hypothesis.
        n_groups: the number of groups.
    """

    arrays: RuleArrays
    relation: IntArray
    n_groups: int

    @classmethod
    def of(cls, graph: KnowledgeGraph, table: RuleTable, settings: config.Rules, adjacency: Adjacency) -> "RuleIndex":
        """Create the index. Raise InputError for a rule that is neither a chain nor a rule with a constant.

        Each chain is a group. The rules with constants form groups with the same relations: of all rules
        `s(X, d) => r(X, c)` with the same r and s, the one with the highest confidence speaks for the others.
        """
        n, n_steps = adjacency.n_entities, adjacency.n_steps
        relation = graph.relations.ids([rule.head.relation for rule in table.rules])
        is_chain = np.array([rule.chain is not None for rule in table.rules], dtype=bool)
        bodies: list[list[int]] = []
        columns: list[tuple[int, int, int, int]] = []
        for rule in table.rules:
            if rule.chain is not None and len(rule.chain) <= MAX_STEPS:
                bodies.append([graph.relations.id(s.relation) + (0 if s.forward else n_steps // 2) for s in rule.chain])
            else:
                columns.append(_constant_columns(rule, graph))
        chains, constants = np.flatnonzero(is_chain), np.flatnonzero(~is_chain)
        step, constant, premise_step, premise_constant = np.array(columns, dtype=np.int64).reshape(-1, 4).T
        premise_key = (step * n_steps + premise_step) * (n + 1) + premise_constant + 1
        by_premise = np.argsort(premise_key, kind="stable")
        constant_key = step * n + constant
        group = np.arange(len(table))
        shared = len(table) + 2 * (step * n_steps + premise_step) + (premise_constant == ANY)
        # a rule with a given weight shares it with no other
        group[constants] = np.where(np.isnan(table.given[constants]), shared, constants)
        by_constant = np.lexsort((group[constants], constant_key))
        groups, group = np.unique(group, return_inverse=True)
        kind = np.full(len(table), CHAIN)
        kind[constants] = np.where(step < n_steps // 2, TAIL_CONSTANT, HEAD_CONSTANT)
        confidence, left_out = _confidences(table, settings)
        root, begin, tree_step, node, rule_of_node = _trees(relation[chains], bodies, chains, adjacency)
        arrays = RuleArrays(
            root=root,
            begin=begin,
            step=tree_step,
            node=node,
            rule=rule_of_node,
            premise_key=premise_key[by_premise],
            premise_constant=constant[by_premise],
            premise_rule=constants[by_premise],
            constant_key=constant_key[by_constant],
            constant_step=premise_step[by_constant],
            constant_entity=premise_constant[by_constant],
            constant_rule=constants[by_constant],
            confidence=confidence,
            left_out=left_out,
            group=group,
            kind=kind,
        )
        return cls(arrays, relation, len(groups))


def _confidences(table: RuleTable, settings: config.Rules) -> tuple[FloatArray, FloatArray]:
    """Return the confidence of each rule, and its confidence without one of its hits."""
    hits, support = table.hits.astype(np.float64), table.support.astype(np.float64)
    patterns = table.patterns
    thresholds = {pattern: float(getattr(settings.min_precision, pattern, 0.0)) for pattern in set(patterns)}
    threshold = np.array([thresholds[pattern] for pattern in patterns])
    min_hits = np.array([settings.min_hits if pattern in ("chain", "constant") else 1 for pattern in patterns])
    was_mined = (hits - 1 >= min_hits) & ((hits - 1) / np.maximum(support, 1) >= threshold)
    # thresholds do not apply to rules that are below them anyway: they were written, not mined
    was_mined |= (hits < min_hits) | (hits / np.maximum(support, 1) < threshold)
    return hits / (support + SMOOTHING), np.where(was_mined, (hits - 1) / (support + SMOOTHING), 0.0)


def _trees(
    relation: IntArray, bodies: Sequence[Sequence[int]], rules: IntArray, adjacency: Adjacency
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return the roots and the trees of all relations and directions in one set of arrays; see `RuleArrays`."""
    roots = np.full(2 * adjacency.n_relations, -1)
    begin: list[IntArray] = [np.zeros(1, np.int64)]
    step, node, rule = ([np.empty(0, np.int64)] for _ in range(3))
    n_nodes = n_children = 0
    by_relation: dict[int, list[int]] = {}
    for i, r in enumerate(relation.tolist()):
        by_relation.setdefault(r, []).append(i)
    for r, members in sorted(by_relation.items()):
        for direction in (0, 1):
            chains = [bodies[i] for i in members]
            if direction == 1:
                chains = [[adjacency.inverse(s) for s in reversed(chain)] for chain in chains]
            trie = Trie.of(chains)
            roots[2 * r + direction] = n_nodes
            begin.append(trie.begin[1:] + n_children)
            step.append(trie.step)
            node.append(trie.node + n_nodes)
            rule.append(np.append(rules[members], -1)[trie.chain])
            n_nodes, n_children = n_nodes + len(trie.chain), n_children + len(trie.step)
    return roots, np.concatenate(begin), np.concatenate(step), np.concatenate(node), np.concatenate(rule)


def _constant_columns(rule: Rule, graph: KnowledgeGraph) -> tuple[int, int, int, int]:
    """Return step, constant, premise step and premise constant of a rule; see `ConstantRules`."""
    if rule.pattern != "constant":
        raise InputError(
            f"{rule}: mln.objective=query supports only chains of up to three steps and rules with one premise and a"
            " constant. Remove the rule or set mln.objective=pseudolikelihood."
        )
    (premise,), head, n = rule.body, rule.head, len(graph.relations)
    (subject,) = head.variables
    columns = []
    for atom in (head, premise):
        backward = atom.tail == subject
        other = atom.head if backward else atom.tail
        constant = graph.entities.id(other.name) if isinstance(other, Constant) else ANY
        columns += [graph.relations.id(atom.relation) + (n if backward else 0), constant]
    return columns[0], columns[1], columns[2], columns[3]
