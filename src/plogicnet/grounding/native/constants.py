"""Mining of rules with constants: `s(X, d) => r(X, c)` and `s(X, Y) => r(X, c)`, and the same for heads.

Relations are followed in both directions, so X can also be the tail of the premise and of the hypothesis. For each
constant c, the entities that have it are listed, and the edges of these entities are counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plogicnet import config
from plogicnet.graph import FloatArray, IntArray
from plogicnet.grounding.engine import Resources
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.rules.rule import Atom, Constant, Rule, Variable
from plogicnet.support.compiling import compiled
from plogicnet.support.threads import map_in_threads

ANY = -1
"""In place of the premise's constant: any entity."""


@dataclass(frozen=True)
class ConstantRules:
    """Rules with constants, as arrays with one entry per rule.

    Attributes:
        step: the hypothesis's relation, as a step from X to the constant; see `Edges`.
        constant: the constant c of the hypothesis.
        premise_step: the premise's relation, as a step from X.
        premise_constant: the constant d of the premise, or ANY.
        support, hits: the counts, without self-supporting groundings.
    """

    step: IntArray
    constant: IntArray
    premise_step: IntArray
    premise_constant: IntArray
    support: IntArray
    hits: IntArray

    def take(self, rows: IntArray) -> "ConstantRules":
        """Return the selected rules."""
        return ConstantRules(**{name: column[rows] for name, column in vars(self).items()})

    def concat(self, other: "ConstantRules") -> "ConstantRules":
        """Return the rules of both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return ConstantRules(*(np.concatenate(pair) for pair in pairs))

    def hypotheses(self, n_entities: int) -> IntArray:
        """Return the hypothesis of each rule as an integer."""
        return np.asarray(self.step * n_entities + self.constant)


def mine_constants(adjacency: Adjacency, settings: config.Rules, resources: Resources) -> tuple[ConstantRules, int]:
    """Count all rules with constants and select the best; also return the number of rules with enough hits.

    Rules that do not reach the thresholds are left out. Of the others, `rules.max_constants` are selected: first the
    best rule of each constant, then the second best, and so on. The best rule is the one whose hits say most about the
    constant; see `Selection`.
    """
    n, edges = adjacency.n_entities, adjacency.edges
    steps = range(adjacency.n_steps)
    keys, entities_with_key = _premise_counts(adjacency)
    selection = Selection.of(adjacency, settings.max_constants)

    def work(step: int) -> tuple[ConstantRules, int]:
        low, high = edges.step_begin[step], edges.step_begin[step + 1]
        order = low + np.argsort(edges.step_target[low:high], kind="stable")
        constants, begin = np.unique(edges.step_target[order], return_index=True)
        found = _count(edges, np.append(begin, len(order)), edges.step_source[order], edges.step_fact[order], n,
                       settings.min_hits)  # fmt: skip
        constant, premise_step, premise_constant, hits, own = found
        key = premise_step.astype(np.int64) * (n + 1) + premise_constant + 1
        support = entities_with_key[np.searchsorted(keys, key)] - own
        precise = hits / np.maximum(support, 1) >= settings.min_precision.constant
        rows = np.flatnonzero(precise & (support >= settings.min_support))
        columns = (constants[constant], premise_step, premise_constant, support, hits)
        rules = ConstantRules(np.full(len(rows), step), *(np.asarray(c[rows], dtype=np.int64) for c in columns))
        return selection.best(rules), len(hits)

    rules, n_candidates = ConstantRules(*np.empty((6, 0), dtype=np.int64)), 0
    with resources.progress("mining constants, relations", adjacency.n_steps) as advance:
        for found, n_found in map_in_threads(work, steps, resources.threads):
            rules = rules.concat(found)
            if len(rules.hits) > 4 * settings.max_constants:  # bounds the memory
                rules = selection.best(rules)
            n_candidates += n_found
            advance()
    return selection.best(rules), n_candidates


def constant_rules(rules: ConstantRules, relations: Sequence[str], entities: Sequence[str]) -> Iterator[Rule]:
    """Yield the rules of arrays. `relations` and `entities` are the names by id."""
    x, y = Variable("X"), Variable("Y")
    n = len(relations)
    for step, constant, premise_step, premise_constant in zip(
        *(c.tolist() for c in (rules.step, rules.constant, rules.premise_step, rules.premise_constant)), strict=True
    ):
        other = y if premise_constant == ANY else Constant(entities[premise_constant])
        # the variable that comes first in the text is X
        subject, other = (y, x) if other == y and premise_step >= n else (x, other)
        premise, hypothesis = (
            Atom(relations[s % n], *((subject, o) if s < n else (o, subject)))
            for s, o in ((premise_step, other), (step, Constant(entities[constant])))
        )
        rule = Rule((premise,), hypothesis)
        rule.__dict__["chain"] = None  # fills the cached property: mining creates 100,000 rules
        yield rule


def _premise_counts(adjacency: Adjacency) -> tuple[IntArray, IntArray]:
    """Return the sorted keys of all premises, and the number of entities X for which each is true."""
    edges, n = adjacency.edges, adjacency.n_entities
    step = np.repeat(np.arange(adjacency.n_steps), np.diff(edges.step_begin))
    begins = np.append(True, (np.diff(step) != 0) | (np.diff(edges.step_source) != 0))[: len(step)]
    keys = np.concatenate([step * (n + 1) + edges.step_target + 1, (step * (n + 1))[begins]])
    distinct, count = np.unique(keys, return_counts=True)
    return distinct, count


@dataclass(frozen=True)
class Selection:
    """Selects the best rules. The best of all rules are also the best of any part that contains them.

    Attributes:
        keys: all hypotheses, sorted; see `ConstantRules.hypotheses`.
        base_rate: the share of all entities that have the constant of each hypothesis.
        n_entities: the number of entities.
        size: the number of rules to select.
    """

    keys: IntArray
    base_rate: FloatArray
    n_entities: int
    size: int

    @classmethod
    def of(cls, adjacency: Adjacency, size: int) -> "Selection":
        """Count the entities that have each constant."""
        step = np.repeat(np.arange(adjacency.n_steps), np.diff(adjacency.edges.step_begin))
        keys, count = np.unique(step * adjacency.n_entities + adjacency.edges.step_target, return_counts=True)
        return cls(keys, count / adjacency.n_entities, adjacency.n_entities, size)

    def best(self, rules: ConstantRules) -> ConstantRules:
        """Select rules by their rank among those with the same hypothesis, then by hypothesis. Keep the order."""
        if len(rules.hits) <= self.size:
            return rules
        hypothesis = rules.hypotheses(self.n_entities)
        order = np.lexsort((-self._information(rules), hypothesis))
        first = np.append(True, np.diff(hypothesis[order]) != 0)[: len(order)]
        rank = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        return rules.take(np.sort(order[np.argsort(rank, kind="stable")[: self.size]]))

    def _information(self, rules: ConstantRules) -> FloatArray:
        """Return hits · log(precision / base rate): how much the hits of a rule say about the constant.

        The precision is smoothed.
        """
        base_rate = self.base_rate[np.searchsorted(self.keys, rules.hypotheses(self.n_entities))]
        return np.asarray(rules.hits * np.log(rules.hits / (rules.support + 5) / base_rate))


@compiled()
def _count(edges, begin, sources, facts, n_entities, min_hits):  # type: ignore[no-untyped-def]
    """Count the premises of the entities that have each constant.

    `sources` are the entities X with a constant, `facts` the rows of the facts that say so; those of constant i begin
    at begin[i]. Return arrays with one entry per rule with enough hits: the constant's index, the premise's step and
    constant, the hits, and the number of entities for which the premise is only the fact itself.
    """
    constant, premise_step, premise_constant = [np.int32(0)], [np.int32(0)], [np.int32(0)]
    hits, own = [np.int32(0)], [np.int32(0)]
    keys, count = np.full(1024, -1, np.int64), np.zeros(1024, np.int32)
    selves = np.zeros(1024, np.int32)
    used = np.empty(512, np.int64)
    for i in range(len(begin) - 1):
        if begin[i + 1] - begin[i] < min_hits:
            continue
        n_used = 0
        for k in range(begin[i], begin[i + 1]):
            source, low = sources[k], edges.begin[sources[k]]
            while low < edges.begin[source + 1]:
                step, high, n_others = edges.step[low], low, 0
                while high < edges.begin[source + 1] and edges.step[high] == step:
                    is_own = edges.fact[high] == facts[k]
                    n_others += not is_own
                    key = np.int64(step) * (n_entities + 1) + edges.target[high] + 1
                    if 2 * n_used + 4 > len(keys):
                        keys, count, selves, used = _grow(keys, count, selves, used, n_used)
                    n_used = _add(keys, count, selves, used, n_used, key, is_own)
                    high += 1
                n_used = _add(keys, count, selves, used, n_used, np.int64(step) * (n_entities + 1), n_others == 0)
                low = high
        for j in range(n_used):
            slot = used[j]
            if count[slot] >= min_hits:
                constant.append(np.int32(i))
                premise_step.append(np.int32(keys[slot] // (n_entities + 1)))
                premise_constant.append(np.int32(keys[slot] % (n_entities + 1) - 1))
                hits.append(count[slot])
                own.append(selves[slot])
            keys[slot] = -1
            count[slot] = selves[slot] = 0
    return (
        np.array(constant)[1:], np.array(premise_step)[1:], np.array(premise_constant)[1:], np.array(hits)[1:],
        np.array(own)[1:],
    )  # fmt: skip


@compiled()
def _add(keys, count, selves, used, n_used, key, is_own):  # type: ignore[no-untyped-def]
    """Count an entity for a premise, as its own or as a hit. Return the number of used entries."""
    mask = len(keys) - 1
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & np.uint64(mask))
    while keys[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & mask
    if keys[slot] < 0:
        keys[slot] = key
        used[n_used] = slot
        n_used += 1
    if is_own:
        selves[slot] += 1
    else:
        count[slot] += 1
    return n_used


@compiled()
def _grow(keys, count, selves, used, n_used):  # type: ignore[no-untyped-def]
    """Return a hash table of twice the size with the same entries."""
    size = 2 * len(keys)
    new_keys, new_count = np.full(size, -1, np.int64), np.zeros(size, np.int32)
    new_selves, new_used = np.zeros(size, np.int32), np.empty(size // 2, np.int64)
    mask = size - 1
    for j in range(n_used):
        old = used[j]
        slot = np.int64((np.uint64(keys[old]) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & np.uint64(mask))
        while new_keys[slot] >= 0:
            slot = (slot + 1) & mask
        new_keys[slot], new_count[slot], new_selves[slot] = keys[old], count[old], selves[old]
        new_used[j] = slot
    return new_keys, new_count, new_selves, new_used
