"""Bounds of the number of pairs that chains connect, without walking them.

All paths through one middle entity, or through one middle edge, connect different pairs. So the middle with most paths
is a lower bound.
"""

import numpy as np

from plogicnet.graph import FloatArray, IntArray
from plogicnet.grounding.engine import Resources
from plogicnet.grounding.native.adjacency import Adjacency
from plogicnet.support.compiling import compiled
from plogicnet.support.threads import map_in_threads


def bound_pairs(adjacency: Adjacency, steps: IntArray, resources: Resources) -> FloatArray:
    """Return a lower bound of the pairs that each chain connects. A chain of two steps has -1 as the third.

    Example:
        >>> from plogicnet.graph import TripleSet
        >>> adjacency = Adjacency.of(TripleSet.of([(0, 0, 2), (1, 0, 2), (2, 0, 3)], entities=4), n_relations=1)
        >>> bound_pairs(adjacency, np.array([[0, 0, -1], [0, 1, -1]]), Resources())
        array([2., 4.])
    """
    bound, is_short = np.zeros(len(steps)), steps[:, 2] < 0
    short = np.flatnonzero(is_short)
    pairs, index = np.unique(steps[short, 0] * adjacency.n_steps + steps[short, 1], return_inverse=True)
    n = adjacency.n_steps
    bound[short] = _most_paths(n, *_groups(adjacency), pairs // n, pairs % n)[index]
    bound[~is_short] = count_paths(adjacency, steps[~is_short], resources)[1]
    return bound


def _groups(adjacency: Adjacency) -> tuple[IntArray, IntArray, IntArray]:
    """Return the first group of each entity and the end of the last, and the step and the size of each group.

    A group is the edges of an entity with one step.
    """
    edges = adjacency.edges
    source = np.repeat(np.arange(adjacency.n_entities), np.diff(edges.begin))
    first = np.flatnonzero(np.append(True, (np.diff(source) != 0) | (np.diff(edges.step) != 0))[: len(source)])
    begin = np.searchsorted(source[first], np.arange(adjacency.n_entities + 1))
    return begin, edges.step[first], np.diff(np.append(first, len(source)))


@compiled()
def _most_paths(n_steps, group_begin, group_step, group_size, firsts, lasts):  # type: ignore[no-untyped-def]
    """Return the largest number of paths of the chains (first, last) through one entity."""
    n_relations = n_steps // 2
    slot = np.full((n_steps, n_steps), -1, np.int32)
    for i in range(len(firsts)):
        slot[firsts[i], lasts[i]] = i
    best = np.zeros(len(firsts))
    for entity in range(len(group_begin) - 1):
        for p in range(group_begin[entity], group_begin[entity + 1]):
            step = group_step[p]  # from the middle to the chain's start, so the inverse of its first step
            row = slot[step - n_relations if step >= n_relations else step + n_relations]
            for q in range(group_begin[entity], group_begin[entity + 1]):
                i = row[group_step[q]]
                if i >= 0:
                    best[i] = max(best[i], np.float64(group_size[p] * group_size[q]))
    return best


def count_paths(adjacency: Adjacency, steps: IntArray, resources: Resources) -> tuple[FloatArray, FloatArray]:
    """Return the number of paths of each chain of three steps, and a lower bound of the pairs that it connects."""
    edges, n_steps = adjacency.edges, adjacency.n_steps
    group_begin, group_step, group_size = _groups(adjacency)
    order = np.argsort(steps[:, 1], kind="stable")
    bounds = np.searchsorted(steps[order, 1], np.arange(n_steps + 1))
    middles = np.flatnonzero(np.diff(bounds))
    paths, most = np.zeros((2, len(steps)))

    def work(middle: int) -> None:
        rows = order[bounds[middle] : bounds[middle + 1]]
        pairs, index = np.unique(steps[rows, 0] * n_steps + steps[rows, 2], return_inverse=True)
        total, best = _count_paths_of(
            edges, middle, group_begin, group_step, group_size, pairs // n_steps, pairs % n_steps, n_steps
        )
        paths[rows], most[rows] = total[index], best[index]

    with resources.progress("bounding chains, relations", len(middles)) as advance:
        for _ in map_in_threads(work, middles.tolist(), resources.threads):
            advance()
    return paths, most


@compiled()
def _count_paths_of(edges, middle, group_begin, group_step, group_size, firsts, lasts, n_steps):  # type: ignore[no-untyped-def]
    """Return the number of paths of the chains (first, middle, last), and the largest number through one edge."""
    n_relations = n_steps // 2
    slot = np.full((n_steps, n_steps), -1, np.int32)
    for i in range(len(firsts)):
        slot[firsts[i], lasts[i]] = i
    total, best = np.zeros(len(firsts)), np.zeros(len(firsts))
    for edge in range(edges.step_begin[middle], edges.step_begin[middle + 1]):
        a, b = edges.step_source[edge], edges.step_target[edge]
        for p in range(group_begin[a], group_begin[a + 1]):
            step = group_step[p]  # from a to the chain's start, so the inverse of its first step
            row = slot[step - n_relations if step >= n_relations else step + n_relations]
            for q in range(group_begin[b], group_begin[b + 1]):
                i = row[group_step[q]]
                if i >= 0:
                    n = np.float64(group_size[p] * group_size[q])
                    total[i] += n
                    best[i] = max(best[i], n)
    return total, best
