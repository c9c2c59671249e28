"""All candidates that rules conclude for a query, with the rules that conclude each and the values of formulas.

A query asks for the tail (direction 0) or the head (direction 1) of a relation, given the other entity. A training
query has a known answer. Some facts are hidden from it, as if the graph did not contain them: the asked triple, or all
facts between its two entities. The asked triple also does not count as a hit of the rules that conclude it. This lowers
their confidence for all candidates. If it were lowered for the answer alone, it would mark the answer. Facts of an
entity are counted without the asked triple. So a training query sees no trace of its own fact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plogicnet.graph import FloatArray, IntArray
from plogicnet.grounding.native.adjacency import Adjacency, edges_of, lower_bound
from plogicnet.grounding.native.rule_index import CHAIN, HEAD_CONSTANT, TAIL_CONSTANT, RuleIndex
from plogicnet.rules.rule import FORMULAS
from plogicnet.support.compiling import compiled
from plogicnet.support.threads import map_in_threads

Float32 = NDArray[np.float32]
TOP = 5
"""The number of best confidences in the noisy-or."""
N_FORMULAS = len(FORMULAS)
CHUNK_QUERIES = 64
"""The number of queries that a thread processes at a time."""
MAX_AHEAD = 64
"""The largest number of parts of CHUNK_QUERIES queries that are computed before they are used."""
SMALLEST = 0.002
"""The confidence below which differences matter little."""
FULL_SCALE = math.log1p(1 / SMALLEST)


@dataclass(frozen=True)
class Queries:
    """Queries, as arrays with one entry per query.

    Attributes:
        known: the known entity.
        relation: the relation.
        direction: 0 if the tail is asked, 1 if the head is asked.
        answer: the answer of a training query, or -1.
    """

    known: IntArray
    relation: IntArray
    direction: IntArray
    answer: IntArray

    def __len__(self) -> int:
        return len(self.known)

    def take(self, rows: IntArray | slice) -> "Queries":
        """Return the selected queries."""
        return Queries(self.known[rows], self.relation[rows], self.direction[rows], self.answer[rows])

    @property
    def triples(self) -> IntArray:
        """The triples of known entity and answer; without an answer, an entity is -1."""
        is_tail = self.direction == 0
        head, tail = np.where(is_tail, self.known, self.answer), np.where(is_tail, self.answer, self.known)
        return np.stack([head, self.relation, tail], axis=1)


@dataclass(frozen=True)
class Conclusions:
    """The candidates of queries that at least one rule concludes.

    Attributes:
        begin: the first candidate of each query, and the end of the last.
        entity: the entity of each candidate, sorted within a query.
        values: the values of the formulas, (candidates, N_FORMULAS).
        rule_begin: the first rule of each candidate, and the end of the last.
        rule: the rules that conclude the candidate: each chain, and the best rule of each group with constants.
        rule_value: log2(1 + number of paths) of a chain, otherwise the scaled confidence of the rule; see `scale`.
    """

    begin: IntArray
    entity: IntArray
    values: Float32
    rule_begin: IntArray
    rule: IntArray
    rule_value: Float32

    @property
    def query(self) -> IntArray:
        """The index of each candidate's query."""
        return np.repeat(np.arange(len(self.begin) - 1), np.diff(self.begin))


def scale(confidence: FloatArray) -> FloatArray:
    """Return the value of a confidence in formulas. It grows like the logarithm, from 0 to 1.

    Example:
        >>> scale(np.array([0.0, 0.1, 0.5, 1.0])).round(2).tolist()
        [0.0, 0.63, 0.89, 1.0]
    """
    return np.asarray(np.log1p(confidence / SMALLEST) / FULL_SCALE)


def conclude(
    adjacency: Adjacency,
    index: RuleIndex,
    queries: Queries,
    max_candidates: int = 0,
    excluded: tuple[IntArray, IntArray] | None = None,
    hide_pair: bool = False,
    threads: int = 0,
) -> Iterator[Conclusions]:
    """Yield the candidates of queries, in order, in parts of CHUNK_QUERIES queries.

    Args:
        adjacency: the graph.
        index: the rules.
        queries: the queries.
        max_candidates: the number of candidates per query, those with the highest noisy-or; 0: all.
        excluded: entities to leave out, such as other known answers, as two arrays: where each query's entities begin,
            and the entities. The answer is a candidate even if it is excluded.
        hide_pair: whether all facts between the known entity and the answer are hidden, or only the asked triple.
        threads: number of threads; 0 uses all cores. The result does not depend on it.
    """
    begin, entities = excluded or (np.zeros(len(queries) + 1, np.int64), np.empty(0, np.int64))
    has_answer = queries.answer >= 0
    hidden = np.where(has_answer, adjacency.facts.find(np.maximum(queries.triples, 0)), -1)

    def work(start: int) -> Conclusions:
        part = slice(start, min(start + CHUNK_QUERIES, len(queries)))
        q = queries.take(part)
        columns = _conclude_all(
            adjacency.edges, index.arrays, adjacency.n_entities, adjacency.n_relations, q.known, q.relation,
            q.direction, q.answer, hidden[part], hide_pair, max_candidates or adjacency.n_entities,
            begin[part.start : part.stop + 1], entities,
        )  # fmt: skip
        return Conclusions(*columns)

    # threads compute ahead, so that only so many results are in memory at a time
    starts = range(0, len(queries), CHUNK_QUERIES)
    for first in range(0, len(starts), MAX_AHEAD):
        yield from map_in_threads(work, starts[first : first + MAX_AHEAD], threads)


class Query(NamedTuple):
    """One query in compiled code. `hidden` is the row of the hidden fact, or -1; `answer` is -1 if it is unknown."""

    known: Any
    relation: Any
    direction: Any
    answer: Any
    hidden: Any
    hide_pair: Any


class Memory(NamedTuple):
    """The memory of one thread, with one entry per entity. An entry is valid if its stamp is the current one.

    Attributes:
        stamp, position: the query of which each entity is a candidate, and its position among the candidates.
        group, entry: the last group that concluded each entity, and its entry.
        reached, paths, step_stamp, step_position: for each length of chains, the entities that are reached, their
            numbers of paths, and the stamps and positions of all entities.
        counter: the number of candidates, the number of entries, and the last stamp.
        candidates: the entities of the candidates.
    """

    stamp: Any
    position: Any
    group: Any
    entry: Any
    reached: Any
    paths: Any
    step_stamp: Any
    step_position: Any
    counter: Any
    candidates: Any


class Entries(NamedTuple):
    """The rules that conclude the candidates of a query: candidate, rule, confidence and value."""

    candidate: Any
    rule: Any
    confidence: Any
    value: Any


@compiled()
def _scale(confidence):  # type: ignore[no-untyped-def]
    return math.log1p(confidence / SMALLEST) / FULL_SCALE


@compiled()
def _is_hidden_fact(fact, source, target, query):  # type: ignore[no-untyped-def]
    """Return whether a fact between two entities is hidden from a query."""
    if fact == query.hidden:
        return query.hidden >= 0
    if not query.hide_pair:
        return False
    return (source == query.known and target == query.answer) or (source == query.answer and target == query.known)


@compiled()
def _is_hidden(edges, edge, source, query):  # type: ignore[no-untyped-def]
    """Return whether an edge is hidden from a query."""
    return _is_hidden_fact(edges.fact[edge], source, edges.target[edge], query)


@compiled()
def _reserve(entries, size):  # type: ignore[no-untyped-def]
    """Return the entries with room for `size` entries."""
    old = len(entries.rule)
    if size <= old:
        return entries
    new = max(size, 2 * old)
    candidate, rule = np.empty(new, np.int64), np.empty(new, np.int64)
    confidence, value = np.empty(new), np.empty(new)
    candidate[:old], rule[:old] = entries.candidate, entries.rule
    confidence[:old], value[:old] = entries.confidence, entries.value
    return Entries(candidate, rule, confidence, value)


@compiled()
def _add(memory, entries, query_stamp, entity, rule, confidence, value):  # type: ignore[no-untyped-def]
    """Add an entry. There must be room for it."""
    if memory.stamp[entity] != query_stamp:
        memory.stamp[entity] = query_stamp
        memory.position[entity] = memory.counter[0]
        memory.candidates[memory.counter[0]] = entity
        memory.counter[0] += 1
    n = memory.counter[1]
    entries.candidate[n] = memory.position[entity]
    entries.rule[n] = rule
    entries.confidence[n] = confidence
    entries.value[n] = value
    memory.counter[1] = n + 1


@compiled()
def _add_of_group(memory, entries, query_stamp, group_stamp, entity, rule, confidence):  # type: ignore[no-untyped-def]
    """Add an entry of a rule with constants, or improve the entry of the same group."""
    if confidence <= 0.0:
        return
    if memory.group[entity] == group_stamp:
        entry = memory.entry[entity]
        better = confidence > entries.confidence[entry]
        if better or (confidence == entries.confidence[entry] and rule < entries.rule[entry]):
            entries.rule[entry], entries.confidence[entry] = rule, confidence
            entries.value[entry] = _scale(confidence)
        return
    memory.group[entity], memory.entry[entity] = group_stamp, memory.counter[1]
    _add(memory, entries, query_stamp, entity, rule, confidence, _scale(confidence))


@compiled()
def _follow_chains(edges, rules, query, query_stamp, memory, entries):  # type: ignore[no-untyped-def]
    """Add the conclusions of chains: walk the tree of the relation's chains from the known entity."""
    root = rules.root[2 * query.relation + query.direction]
    if root < 0:
        return entries
    node, child, n_reached = np.empty(4, np.int64), np.empty(4, np.int64), np.empty(4, np.int64)
    memory.reached[0, 0], memory.paths[0, 0] = query.known, 1.0
    node[0], child[0], n_reached[0], level = root, rules.begin[root], 1, 0
    while level >= 0:
        if child[level] == rules.begin[node[level] + 1]:
            level -= 1
            continue
        step, target = rules.step[child[level]], rules.node[child[level]]
        child[level] += 1
        n = _take_step(edges, query, memory, level, n_reached[level], step)
        if n == 0:
            continue
        level += 1
        node[level], child[level], n_reached[level] = target, rules.begin[target], n
        rule = rules.rule[target]
        if rule >= 0:
            reaches_answer = query.answer >= 0 and memory.step_stamp[level, query.answer] == memory.counter[2]
            confidence = rules.left_out[rule] if reaches_answer else rules.confidence[rule]
            if confidence > 0.0:
                entries = _reserve(entries, memory.counter[1] + n)
                for i in range(n):
                    value = math.log2(1.0 + memory.paths[level, i])
                    _add(memory, entries, query_stamp, memory.reached[level, i], rule, confidence, value)
    return entries


@compiled()
def _take_step(edges, query, memory, level, n, step):  # type: ignore[no-untyped-def]
    """Write the entities that one step leads to, and their numbers of paths, to the next level; return how many."""
    memory.counter[2] += 1
    stamp, n_reached, out = memory.counter[2], 0, level + 1
    for i in range(n):
        source, paths = memory.reached[level, i], memory.paths[level, i]
        low, high = edges_of(edges, source, step)
        for edge in range(low, high):
            if _is_hidden(edges, edge, source, query):
                continue
            target = edges.target[edge]
            if memory.step_stamp[out, target] != stamp:
                memory.step_stamp[out, target] = stamp
                memory.step_position[out, target] = n_reached
                memory.reached[out, n_reached], memory.paths[out, n_reached] = target, paths
                n_reached += 1
            else:
                memory.paths[out, memory.step_position[out, target]] += paths
    return n_reached


@compiled()
def _find_constants(edges, rules, n_entities, n_relations, query, query_stamp, memory, entries):  # type: ignore[no-untyped-def]
    """Add the candidates that are constants of rules about the known entity."""
    known, n_steps = query.known, 2 * n_relations
    step = query.relation + (0 if query.direction == 0 else n_relations)
    keys = rules.premise_key
    end = edges.begin[known + 1]
    low = edges.begin[known]
    while low < end:
        premise_step, high = edges.step[low], low
        while high < end and edges.step[high] == premise_step:
            high += 1
        base = (step * n_steps + premise_step) * (n_entities + 1)
        first = lower_bound(keys, 0, len(keys), base)
        last = lower_bound(keys, first, len(keys), base + n_entities + 1)
        if first < last:
            is_visible = False
            memory.counter[2] += 1
            stamp = memory.counter[2]
            for edge in range(low, high):
                if _is_hidden(edges, edge, known, query):
                    continue
                is_visible = True
                key = base + edges.target[edge] + 1
                k = lower_bound(keys, first, last, key)
                stop = lower_bound(keys, k, last, key + 1)
                entries = _reserve(entries, memory.counter[1] + stop - k)
                _add_constants(memory, entries, rules, query, query_stamp, stamp, k, stop)
            if is_visible:
                memory.counter[2] += 1
                stamp = memory.counter[2]
                stop = lower_bound(keys, first, last, base + 1)
                entries = _reserve(entries, memory.counter[1] + stop - first)
                _add_constants(memory, entries, rules, query, query_stamp, stamp, first, stop)
        low = high
    return entries


@compiled()
def _add_constants(memory, entries, rules, query, query_stamp, group_stamp, first, stop):  # type: ignore[no-untyped-def]
    """Add the constants of rules whose premise is true. Each rule concludes one candidate, its constant."""
    for i in range(first, stop):
        entity, rule = rules.premise_constant[i], rules.premise_rule[i]
        confidence = rules.left_out[rule] if entity == query.answer else rules.confidence[rule]
        _add_of_group(memory, entries, query_stamp, group_stamp, entity, rule, confidence)


@compiled()
def _find_entities(edges, rules, n_entities, n_relations, query, query_stamp, memory, entries):  # type: ignore[no-untyped-def]
    """Add the candidates that rules with the known entity as the constant conclude."""
    step = query.relation + (n_relations if query.direction == 0 else 0)
    key = step * n_entities + query.known
    first = lower_bound(rules.constant_key, 0, len(rules.constant_key), key)
    last = lower_bound(rules.constant_key, first, len(rules.constant_key), key + 1)
    group, stamp = -1, 0
    for i in range(first, last):
        rule, premise_step, constant = rules.constant_rule[i], rules.constant_step[i], rules.constant_entity[i]
        if rules.group[rule] != group:
            memory.counter[2] += 1
            group, stamp = rules.group[rule], memory.counter[2]
        concludes_answer = query.answer >= 0 and _has_visible_edge(edges, query.answer, premise_step, constant, query)
        confidence = rules.left_out[rule] if concludes_answer else rules.confidence[rule]
        if constant >= 0:
            inverse = premise_step - n_relations if premise_step >= n_relations else premise_step + n_relations
            low, high = edges_of(edges, constant, inverse)
            entries = _reserve(entries, memory.counter[1] + high - low)
            for edge in range(low, high):
                if not _is_hidden(edges, edge, constant, query):
                    _add_of_group(memory, entries, query_stamp, stamp, edges.target[edge], rule, confidence)
        else:
            low, high = edges.step_begin[premise_step], edges.step_begin[premise_step + 1]
            entries = _reserve(entries, memory.counter[1] + high - low)
            for edge in range(low, high):
                entity = edges.step_source[edge]
                is_end = entity == query.known or entity == query.answer  # only their facts can be hidden
                if not is_end and edge > low and edges.step_source[edge - 1] == entity:
                    continue
                if is_end and _is_hidden_fact(edges.step_fact[edge], entity, edges.step_target[edge], query):
                    continue
                _add_of_group(memory, entries, query_stamp, stamp, entity, rule, confidence)
    return entries


@compiled()
def _has_visible_edge(edges, source, step, target, query):  # type: ignore[no-untyped-def]
    """Return whether an entity has an edge with this step to the target, or to any if it is negative."""
    low, high = edges_of(edges, source, step)
    if target >= 0:
        low = lower_bound(edges.target, low, high, target)
        high = min(high, low + 1) if low < high and edges.target[low] == target else low
    for edge in range(low, high):  # noqa: SIM110 (numba compiles no generator expressions)
        if not _is_hidden(edges, edge, source, query):
            return True
    return False


@compiled()
def _conclude_all(  # type: ignore[no-untyped-def]
    edges, rules, n_entities, n_relations, known, relation, direction, answer, hidden, hide_pair, max_candidates,
    excluded_begin, excluded,
):  # fmt: skip
    """Return the columns of `Conclusions` for some queries."""
    n_queries = len(known)
    memory = Memory(
        np.full(n_entities, -1, np.int64), np.empty(n_entities, np.int64), np.full(n_entities, -1, np.int64),
        np.empty(n_entities, np.int64), np.empty((4, n_entities), np.int64), np.empty((4, n_entities)),
        np.zeros((4, n_entities), np.int64), np.empty((4, n_entities), np.int64), np.zeros(3, np.int64),
        np.empty(n_entities, np.int64),
    )  # fmt: skip
    entries = Entries(np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024), np.empty(1024))
    is_excluded = np.full(n_entities, -1, np.int64)
    begin = np.zeros(n_queries + 1, np.int64)
    entity, values = np.empty(256, np.int64), np.empty((256, N_FORMULAS), np.float32)
    rule_begin = np.zeros(257, np.int64)
    rule, rule_value = np.empty(1024, np.int64), np.empty(1024, np.float32)
    n_out, n_rules = 0, 0
    for i in range(n_queries):
        query = Query(known[i], relation[i], direction[i], answer[i], hidden[i], hide_pair)
        memory.counter[0] = memory.counter[1] = 0
        entries = _follow_chains(edges, rules, query, i, memory, entries)
        entries = _find_constants(edges, rules, n_entities, n_relations, query, i, memory, entries)
        entries = _find_entities(edges, rules, n_entities, n_relations, query, i, memory, entries)
        n_entries = memory.counter[1]
        for k in range(excluded_begin[i], excluded_begin[i + 1]):
            is_excluded[excluded[k]] = i
        if answer[i] >= 0:
            is_excluded[answer[i]] = -1
        top = _best_confidences(rules, memory, entries)
        chosen = _choose(memory, is_excluded, i, top, max_candidates)
        if n_out + len(chosen) > len(entity):
            size = 2 * (n_out + len(chosen))
            new_entity, new_values = np.empty(size, np.int64), np.empty((size, N_FORMULAS), np.float32)
            new_begin = np.zeros(size + 1, np.int64)
            new_entity[:n_out], new_values[:n_out], new_begin[: n_out + 1] = (
                entity[:n_out], values[:n_out], rule_begin[: n_out + 1],
            )  # fmt: skip
            entity, values, rule_begin = new_entity, new_values, new_begin
        place = np.full(memory.counter[0], -1, np.int64)
        fill = np.zeros(len(chosen) + 1, np.int64)
        for j in range(len(chosen)):
            place[chosen[j]] = j
        for k in range(n_entries):
            if place[entries.candidate[k]] >= 0:
                fill[place[entries.candidate[k]] + 1] += 1
        fill = np.cumsum(fill)
        if n_rules + fill[-1] > len(rule):
            size = 2 * (n_rules + fill[-1])
            new_rule, new_value = np.empty(size, np.int64), np.empty(size, np.float32)
            new_rule[:n_rules], new_value[:n_rules] = rule[:n_rules], rule_value[:n_rules]
            rule, rule_value = new_rule, new_value
        for j in range(len(chosen)):
            entity[n_out + j] = memory.candidates[chosen[j]]
            rule_begin[n_out + j + 1] = n_rules + fill[j + 1]
            _fill_values(edges, n_relations, query, entity[n_out + j], top[chosen[j]], values[n_out + j])
        n_rules_after = n_rules + fill[-1]
        for k in range(n_entries):
            j = place[entries.candidate[k]]
            if j >= 0:
                rule[n_rules + fill[j]], rule_value[n_rules + fill[j]] = entries.rule[k], entries.value[k]
                fill[j] += 1
        n_out, n_rules = n_out + len(chosen), n_rules_after
        begin[i + 1] = n_out
    return begin, entity[:n_out], values[:n_out], rule_begin[: n_out + 1], rule[:n_rules], rule_value[:n_rules]


@compiled()
def _best_confidences(rules, memory, entries):  # type: ignore[no-untyped-def]
    """Return, for each candidate, its TOP best confidences, and the best confidence of each kind of rules."""
    best = np.zeros((memory.counter[0], TOP + 3))
    for k in range(memory.counter[1]):
        row, confidence, kind = best[entries.candidate[k]], entries.confidence[k], rules.kind[entries.rule[k]]
        row[TOP + kind] = max(row[TOP + kind], confidence)
        j = TOP
        while j > 0 and row[j - 1] < confidence:
            j -= 1
        for m in range(TOP - 1, j, -1):
            row[m] = row[m - 1]
        if j < TOP:
            row[j] = confidence
    return best


@compiled()
def _noisy_or(row):  # type: ignore[no-untyped-def]
    remaining = 1.0
    for j in range(TOP):
        remaining *= 1.0 - row[j]
    return 1.0 - remaining


@compiled()
def _choose(memory, is_excluded, query_stamp, top, max_candidates):  # type: ignore[no-untyped-def]
    """Return the positions of the best candidates that are not excluded, sorted by entity."""
    n = memory.counter[0]
    by_entity = np.argsort(memory.candidates[:n], kind="mergesort")
    kept = np.empty(n, np.int64)
    n_kept = 0
    for j in by_entity:
        if is_excluded[memory.candidates[j]] != query_stamp:
            kept[n_kept] = j
            n_kept += 1
    kept = kept[:n_kept]
    if n_kept <= max_candidates:
        return kept
    key = np.empty(n_kept)
    for k in range(n_kept):
        key[k] = -_noisy_or(top[kept[k]])
    best = np.sort(np.argsort(key, kind="mergesort")[:max_candidates])
    return kept[best]


@compiled()
def _fill_values(edges, n_relations, query, candidate, top, values):  # type: ignore[no-untyped-def]
    """Write the values of the formulas for one candidate; see `FORMULAS`."""
    head, tail = (query.known, candidate) if query.direction == 0 else (candidate, query.known)
    relation, inverse = query.relation, query.relation + n_relations
    is_answer = candidate == query.answer
    values[0] = 1.0
    values[1], values[2], values[3] = _scale(top[0]), _scale(top[1]), _scale(_noisy_or(top))
    values[4], values[5] = _scale(top[TOP + CHAIN]), _scale(top[TOP + TAIL_CONSTANT])
    values[6] = _scale(top[TOP + HEAD_CONSTANT])
    # the asked triple and its inverse edge do not count
    low, high = edges_of(edges, tail, inverse)
    same_tail = _count_visible(edges, low, high, tail, query)
    all_tail = _count_visible(edges, edges.begin[tail], edges.begin[tail + 1], tail, query)
    low, high = edges_of(edges, head, relation)
    same_head = _count_visible(edges, low, high, head, query)
    all_head = _count_visible(edges, edges.begin[head], edges.begin[head + 1], head, query)
    values[7], values[8] = math.log1p(same_tail), math.log1p(all_tail)
    values[9], values[10] = math.log1p(same_head), math.log1p(all_head)
    # a known candidate's own fact is not another fact
    own = 0 if is_answer else _count_between(edges, head, tail, relation, query)
    values[11] = 1.0 if same_tail > own else 0.0
    values[12] = 1.0 if same_head > own else 0.0
    own_edges = 2 * own if head == tail else own  # a self-loop has two edges
    values[13] = 1.0 if _count_between(edges, head, tail, -1, query) > own_edges else 0.0


@compiled()
def _count_visible(edges, low, high, source, query):  # type: ignore[no-untyped-def]
    """Return the number of edges in a range that are not hidden."""
    n = high - low
    if query.answer >= 0 and (source == query.known or source == query.answer):
        for edge in range(low, high):
            if _is_hidden(edges, edge, source, query):
                n -= 1
    return n


@compiled()
def _count_between(edges, head, tail, step, query):  # type: ignore[no-untyped-def]
    """Return the number of visible edges from head to tail with this step; -1: with any step."""
    if step >= 0:
        low, high = edges_of(edges, head, step)
        low = lower_bound(edges.target, low, high, tail)
        return 1 if low < high and edges.target[low] == tail and not _is_hidden(edges, low, head, query) else 0
    low, high = edges.begin[head], edges.begin[head + 1]
    low = lower_bound(edges.near_target, low, high, tail)
    n = 0
    while low < high and edges.near_target[low] == tail:
        n += not _is_hidden_fact(edges.near_fact[low], head, tail, query)
        low += 1
    return n
