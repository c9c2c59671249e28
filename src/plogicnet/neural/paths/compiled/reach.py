"""Compiled functions that find the entities that a query has reached, and the messages between them.

The entities that query q has reached are `members[q, :size[q]]`, in the order in which they were reached. -1 follows.
`position[q, entity]` is the index of an entity in that order, or -1. So the entities that were reached before a layer
are the first ones, and one table of positions serves all layers. The state of an entity that was not reached is zero.

Edges are given by destination: those to v are `starts[v] … starts[v + 1]`, sorted by source and relation. Each edge has
an inverse, so they also tell which edges leave v.
"""

from typing import Any

import numpy as np

from plogicnet.support.compiling import compiled

HIDE_CODES = {"nothing": 0, "edge": 1, "pair": 2}
BINARY_SEARCH_COST = 16
"""A binary search among the edges of an entity costs about as much as reading this many of its edges."""


@compiled()
def is_hidden(source: int, relation: int, destination: int, query: Any, hide: int) -> bool:
    """Return whether an edge is hidden from a query (known, relation, answer, inverse relation)."""
    if hide == 0:
        return False
    known, asked, answer, inverse = query[0], query[1], query[2], query[3]
    forward = source == known and destination == answer
    backward = source == answer and destination == known
    if hide == 1:
        forward = forward and relation == asked
        backward = backward and relation == inverse
    return bool(forward or backward)


@compiled()
def reach_all(
    graph: Any, queries: Any, hide: int, members: Any, position: Any, size: Any, reached: Any, before: Any
) -> None:
    """Add all entities that an edge connects with one of the entities number before[q] … size[q] of each query.

    `reached` gets the new sizes.
    """
    starts, sources, relations, n_relations = graph
    for q in range(len(size)):
        query, n = queries[q], size[q]
        for i in range(before[q], size[q]):
            u = members[q, i]
            for e in range(starts[u], starts[u + 1]):
                v = sources[e]
                if position[q, v] < 0:
                    relation = (relations[e] + n_relations) % (2 * n_relations)
                    if not is_hidden(u, relation, v, query, hide):
                        position[q, v] = n
                        members[q, n] = v
                        n += 1
        reached[q] = n


@compiled()
def first_edge(sources: Any, start: int, end: int, source: int) -> int:
    """Return the first edge from start to end whose source is not smaller than this one."""
    while start < end:
        middle = (start + end) // 2
        if sources[middle] < source:
            start = middle + 1
        else:
            end = middle
    return start


@compiled()
def count_hidden(graph: Any, v: int, query: Any, hide: int) -> int:
    """Return the number of edges to an entity that are hidden from a query."""
    known, answer = query[0], query[2]
    if hide == 0 or (v != known and v != answer):
        return 0
    starts, sources, relations, _ = graph
    other = answer if v == known else known
    count, e = 0, first_edge(sources, starts[v], starts[v + 1], other)
    while e < starts[v + 1] and sources[e] == other:
        count += is_hidden(other, relations[e], v, query, hide)
        e += 1
    return count


@compiled()
def list_messages(
    graph: Any,
    queries: Any,
    hide: int,
    members: Any,
    position: Any,
    size: Any,
    reached: Any,
    needed: Any,
    first_source_row: Any,
    first_row: Any,
    message_start: Any,
    count: Any,
    source_row: Any,
    message_relation: Any,
) -> None:
    """List the messages from the first size[q] members of each query to its first reached[q] members.

    If `source_row` is empty, only count them: message_start[row + 1] gets the number of messages to each row, and
    count[row] the number of all edges that are not hidden, plus one for the boundary. Otherwise write the row of each
    message's source and its relation, from message_start[row] on. If `needed` is a mask of entities, not None, the
    messages to other entities are left out.
    """
    starts, sources, relations, _ = graph
    only_count = len(source_row) == 0
    for q in range(len(size)):
        query, n, offset = queries[q], size[q], first_source_row[q]
        for i in range(reached[q]):
            v, row = members[q, i], first_row[q] + i
            if needed is not None and not needed[v]:
                if only_count:
                    count[row] = 1
                continue
            start, end = starts[v], starts[v + 1]
            found = 0
            at = 0 if only_count else message_start[row]
            if end - start <= BINARY_SEARCH_COST * n:
                for e in range(start, end):
                    p = position[q, sources[e]]
                    if 0 <= p < n and not is_hidden(sources[e], relations[e], v, query, hide):
                        if not only_count:
                            source_row[at + found] = offset + p
                            message_relation[at + found] = relations[e]
                        found += 1
            else:  # an entity with many edges, of which few come from members
                for p in range(n):
                    u = members[q, p]
                    e = first_edge(sources, start, end, u)
                    while e < end and sources[e] == u:
                        if not is_hidden(u, relations[e], v, query, hide):
                            if not only_count:
                                source_row[at + found] = offset + p
                                message_relation[at + found] = relations[e]
                            found += 1
                        e += 1
            if only_count:
                message_start[row + 1] = found
                count[row] = end - start + 1 - count_hidden(graph, v, query, hide)


@compiled()
def random_number(seed: int, number: int) -> float:
    """Return a number between 0 and 1 that depends on two integers only, by the hash splitmix64."""
    x = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(number)
    for _ in range(2):
        x += np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (float(x >> np.uint64(11)) + 0.5) / 2.0**53


@compiled()
def propose(
    graph: Any,
    queries: Any,
    hide: int,
    members: Any,
    position: Any,
    size: Any,
    reached: Any,
    first_source_row: Any,
    states: Any,
    factor: Any,
    degree_factor: float,
    frontier: int,
    seeds: Any,
    via_row: Any,
    via_relation: Any,
    log_degree: Any,
) -> None:
    """Add to each query the `frontier` entities of highest priority that an edge connects with a member.

    The priority of an entity is the maximum over its messages u → v of factor[q, relation] · x_u, plus
    degree_factor · log(1 + degree of v). With a seed, Gumbel noise is added, so that training also tries others; -1
    means no seed. An entity with more than `frontier` edges proposes only that number of them, at even distances.
    Hidden edges do not count. `via_row` and `via_relation` get the source and the relation of the message that gave
    each new entity its priority, and `log_degree` the logarithm above. They have a column for each new entity.
    """
    starts, sources, relations, n_relations = graph
    n_kinds = 2 * n_relations
    dim = states.shape[1]
    cached = np.full(n_kinds, -1, np.int64)
    value = np.zeros(n_kinds, np.float32)
    for q in range(len(size)):
        query, n = queries[q], size[q]
        candidates = 0
        limit = 0
        for i in range(n):
            u = members[q, i]
            limit += min(frontier, starts[u + 1] - starts[u])
        limit = min(limit, position.shape[1] - n)
        entity = np.empty(limit, np.int64)
        priority = np.empty(limit, np.float64)
        row = np.empty(limit, np.int64)
        kind = np.empty(limit, np.int64)
        log_degrees = np.empty(limit, np.float32)
        cached[:] = -1
        for i in range(n):
            u = members[q, i]
            n_hidden = count_hidden(graph, u, query, hide)
            visible = starts[u + 1] - starts[u] - n_hidden
            step = min(frontier, visible)
            e, seen = starts[u] - 1, -1
            for j in range(step):
                if n_hidden == 0:
                    e = starts[u] + j * visible // step
                while n_hidden > 0 and seen < j * visible // step:
                    e += 1
                    back = (relations[e] + n_relations) % n_kinds
                    seen += not is_hidden(u, back, sources[e], query, hide)
                v = sources[e]
                p = position[q, v]
                if p >= 0:
                    continue
                relation = (relations[e] + n_relations) % n_kinds
                if cached[relation] != i:
                    cached[relation] = i
                    total = np.float32(0)
                    for k in range(dim):
                        total += factor[q, relation, k] * states[first_source_row[q] + i, k]
                    value[relation] = total
                c = candidates if p == -1 else -2 - p
                if p == -1:
                    candidates += 1
                    position[q, v] = -2 - c
                    entity[c] = v
                if p == -1 or value[relation] > priority[c]:
                    priority[c] = value[relation]
                    row[c] = first_source_row[q] + i
                    kind[c] = relation
        for c in range(candidates):
            v = entity[c]
            position[q, v] = -1
            degree = starts[v + 1] - starts[v] - count_hidden(graph, v, query, hide)
            log_degrees[c] = np.log1p(degree)
            priority[c] += degree_factor * log_degrees[c]
            # ties are broken evenly, not by the number of the entity
            noise = random_number(max(seeds[q], 0), v)
            priority[c] += -np.log(-np.log(noise)) if seeds[q] >= 0 else 1e-6 * noise
        threshold = -np.inf
        if candidates > frontier:
            threshold = np.partition(priority[:candidates], candidates - frontier)[candidates - frontier]
        added = 0
        for c in range(candidates):
            if priority[c] >= threshold and added < frontier:
                position[q, entity[c]] = n + added
                members[q, n + added] = entity[c]
                via_row[q, added] = row[c]
                via_relation[q, added] = kind[c]
                log_degree[q, added] = log_degrees[c]
                added += 1
        reached[q] = n + added


@compiled()
def forget(members: Any, position: Any, n_queries: int) -> None:
    """Set the positions of all members to -1 again. The members of a query end at the first -1."""
    for q in range(n_queries):
        for i in range(members.shape[1]):
            if members[q, i] < 0:
                break
            position[q, members[q, i]] = -1
