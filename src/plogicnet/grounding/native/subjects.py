"""Grounding of rules with constants: `s(X, d) => r(X, c)`, `s(X, Y) => r(X, c)`, and the same for heads.

Each grounding is one fact. All facts that can be a rule's premise are one range of rows, sorted by X. So a rule is
grounded by reading a range, and its hits are counted by merging two ranges.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plogicnet.graph import HEAD, TAIL, BoolArray, IntArray, KnowledgeGraph
from plogicnet.graph.triples import expand_ranges
from plogicnet.grounding.engine import CountingMode
from plogicnet.grounding.native.walks import TripleIndex
from plogicnet.rules.rule import Constant, Rule
from plogicnet.support.compiling import compiled

ANY = -1
"""In place of the premise's constant: any entity."""


@dataclass(frozen=True)
class SubjectRules:
    """Rules with constants, as arrays with one entry per rule. X is the variable that the hypothesis is about.

    Attributes:
        relation, constant: the relation and the constant of the hypothesis.
        is_head: whether X is the head of the hypothesis.
        premise_relation, premise_constant: the same for the premise. Without a constant, `premise_constant` is ANY.
        premise_is_head: whether X is the head of the premise.
    """

    relation: IntArray
    constant: IntArray
    is_head: BoolArray
    premise_relation: IntArray
    premise_constant: IntArray
    premise_is_head: BoolArray

    @classmethod
    def of(cls, rules: Sequence[Rule], graph: KnowledgeGraph) -> "SubjectRules":
        """Encode rules of the pattern `constant`.

        Example:
            >>> from plogicnet.rules import parse_rule
            >>> graph = KnowledgeGraph.from_names([("ann", "lives_in", "france"), ("ann", "speaks", "french")])
            >>> rules = SubjectRules.of([parse_rule("lives_in(X, france) => speaks(X, french)")], graph)
            >>> rules.is_head.tolist(), graph.entities.names[rules.constant[0]]
            ([True], 'french')
        """
        relations, entities = graph.relations.id, graph.entities.id
        rows = []
        for rule in rules:
            hypothesis, (premise,) = rule.head, rule.body
            is_head = isinstance(hypothesis.tail, Constant)
            subject, constant = (hypothesis.head, hypothesis.tail) if is_head else (hypothesis.tail, hypothesis.head)
            premise_is_head = premise.head == subject
            other = premise.tail if premise_is_head else premise.head
            premise_constant = entities(other.name) if isinstance(other, Constant) else ANY
            about = relations(hypothesis.relation), entities(constant.name), is_head
            rows.append((*about, relations(premise.relation), premise_constant, premise_is_head))
        columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
        return cls(columns[0], columns[1], columns[2] == 1, columns[3], columns[4], columns[5] == 1)

    @classmethod
    def none(cls) -> "SubjectRules":
        """Return no rules."""
        none, no = np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
        return cls(none, none, no, none, none, no)

    def __len__(self) -> int:
        return len(self.relation)

    def take(self, rows: IntArray) -> "SubjectRules":
        """Return the selected rules."""
        return SubjectRules(**{name: column[rows] for name, column in vars(self).items()})


@dataclass(frozen=True)
class Subjects:
    """Rules with constants and the facts that match their premises and hypotheses.

    Attributes:
        rows: the rows of all facts, first sorted by (relation, head, tail), then by (relation, tail, head).
        begin, end: the range of `rows` with the premises of each rule, sorted by X.
        hit_begin, hit_end: the range of `rows` with the facts that a rule concludes, sorted by X.
    """

    triple_index: TripleIndex
    rules: SubjectRules
    rows: IntArray
    begin: IntArray
    end: IntArray
    hit_begin: IntArray
    hit_end: IntArray

    @classmethod
    def of(cls, triple_index: TripleIndex, rules: SubjectRules) -> "Subjects":
        """Find the ranges of all rules."""
        begin, end = _ranges(triple_index, rules.premise_relation, rules.premise_constant, rules.premise_is_head)
        hit_begin, hit_end = _ranges(triple_index, rules.relation, rules.constant, rules.is_head)
        rows = np.concatenate([triple_index.forward.rows, triple_index.backward.rows])
        return cls(triple_index, rules, rows, begin, end, hit_begin, hit_end)

    @property
    def n_groundings(self) -> IntArray:
        """The number of groundings of each rule, including self-supporting groundings."""
        return self.end - self.begin

    def count(self, counting: CountingMode) -> tuple[IntArray, IntArray]:
        """Return support and hits of each rule."""
        counts = np.zeros((2, len(self.rules)), dtype=np.int64)
        rules = self.rules
        _count(
            self.triple_index.facts.triples, self.rows, self.begin, self.end, self.hit_begin, self.hit_end,
            rules.is_head, rules.premise_is_head, counting == "distinct", counts,
        )  # fmt: skip
        return counts[0], counts[1]

    def ground(self, start: int, stop: int, counting: CountingMode) -> tuple[IntArray, IntArray, IntArray]:
        """Ground the rules from `start` to `stop`. Return their indices, the conclusions' keys and the premises.

        A premise is a row of the facts. With `distinct`, self-supporting groundings are left out.
        """
        rule, position = expand_ranges(self.begin[start:stop], self.end[start:stop])
        rule, rows = rule + start, self.rows[position]
        keys = self._conclusion_keys(rule, rows)
        if counting == "distinct":
            kept = keys != self.triple_index.facts.keys[rows]
            rule, keys, rows = rule[kept], keys[kept], rows[kept]
        return rule, keys, rows

    def _conclusion_keys(self, rule: IntArray, rows: IntArray) -> IntArray:
        """Return the keys of the triples that rules conclude from facts."""
        facts, rules, n = self.triple_index.facts.triples, self.rules, self.triple_index.facts.entities
        subject = np.where(rules.premise_is_head[rule], facts[rows, HEAD], facts[rows, TAIL])
        constant, is_head = rules.constant[rule], rules.is_head[rule]
        head, tail = np.where(is_head, subject, constant), np.where(is_head, constant, subject)
        return np.asarray((rules.relation[rule] * n + head) * n + tail)


@dataclass(frozen=True)
class SubjectLookup:
    """Finds the groundings of rules with constants that conclude a triple.

    Attributes:
        rules: the rules.
        order: the indices of the rules, sorted by their hypotheses.
        keys: the hypotheses of the rules in this order, as integers.
    """

    triple_index: TripleIndex
    rules: SubjectRules
    order: IntArray
    keys: IntArray

    @classmethod
    def of(cls, triple_index: TripleIndex, rules: SubjectRules) -> "SubjectLookup":
        """Sort the rules by their hypotheses."""
        keys = _hypothesis_keys(rules.relation, rules.constant, rules.is_head, triple_index.facts.entities)
        order = np.argsort(keys, kind="stable")
        return cls(triple_index, rules, order, keys[order])

    def groundings(self, triple: IntArray, counting: CountingMode) -> dict[int, IntArray]:
        """Return the premises of the groundings that conclude the triple, by rule; see `GroundingLookup`."""
        facts = self.triple_index.facts
        head, relation, tail = triple.tolist()
        found: dict[int, list[IntArray]] = {}
        for constant, subject, is_head in ((tail, head, True), (head, tail, False)):
            key = _hypothesis_keys(relation, constant, is_head, facts.entities)
            indices = self.order[slice(*np.searchsorted(self.keys, [key, key + 1]))]
            for premise_is_head in (True, False):
                here = indices[self.rules.premise_is_head[indices] == premise_is_head]
                selected = self.rules.take(here)
                index = self.triple_index.forward if premise_is_head else self.triple_index.backward
                rule, other, rows = index.lookup(np.full(len(selected), subject), selected.premise_relation)
                matches = (selected.premise_constant[rule] == ANY) | (selected.premise_constant[rule] == other)
                if counting == "distinct":
                    matches &= np.any(facts.triples[rows] != triple, axis=1)
                for i, row in zip(here[rule[matches]].tolist(), rows[matches], strict=True):
                    found.setdefault(i, []).append(facts.triples[[row]])
        return {i: np.stack(premises) for i, premises in found.items()}


def _hypothesis_keys(relation: Any, constant: Any, is_head: Any, entities: int) -> Any:
    """Return an integer for each hypothesis, with arrays or with numbers."""
    return 2 * (relation * entities + constant) + is_head


def _ranges(
    triple_index: TripleIndex, relation: IntArray, constant: IntArray, is_head: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return the ranges of `Subjects.rows` with the facts of an atom about X, sorted by X."""
    n = triple_index.facts.entities
    begin, end = np.zeros((2, len(relation)), dtype=np.int64)
    is_any = constant == ANY
    # the heads of a given tail are in the second half of the rows, and so are all facts sorted by tail
    for second, index in ((False, triple_index.forward), (True, triple_index.backward)):
        here = np.flatnonzero(np.where(is_any, ~is_head, is_head) == second)
        low = relation[here] * n + np.where(is_any[here], 0, constant[here])
        high = np.where(is_any[here], (relation[here] + 1) * n, low + 1)
        offset = len(triple_index.facts) if second else 0
        begin[here] = np.searchsorted(index.keys, low) + offset
        end[here] = np.searchsorted(index.keys, high) + offset
    return begin, end


@compiled()
def _count(facts, rows, begin, end, hit_begin, hit_end, is_head, premise_is_head, distinct, counts):  # type: ignore[no-untyped-def]
    """Count support and hits of each rule by merging its premises with the facts that it concludes.

    A premise supports itself if it is the very fact that it would conclude.
    """
    for i in range(len(begin)):
        column, hit_column = (0 if premise_is_head[i] else 2), (0 if is_head[i] else 2)
        hit, position = hit_begin[i], begin[i]
        while position < end[i]:
            x = facts[rows[position], column]
            while hit < hit_end[i] and facts[rows[hit], hit_column] < x:
                hit += 1
            is_hit = hit < hit_end[i] and facts[rows[hit], hit_column] == x
            n = 0
            while position < end[i] and facts[rows[position], column] == x:
                n += not (distinct and is_hit and rows[position] == rows[hit])
                position += 1
            if distinct:
                n = min(n, 1)
            counts[0, i] += n
            counts[1, i] += n if is_hit else 0
