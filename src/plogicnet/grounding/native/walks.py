"""Walking along chains of relations, to find the paths that are the groundings of chain rules."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from plogicnet.graph import HEAD, RELATION, TAIL, AnswerIndex, FloatArray, IntArray, TripleSet, Vocabulary, triple_keys
from plogicnet.grounding.engine import CountingMode
from plogicnet.rules import Rule
from plogicnet.support.errors import InputError

CHUNK_PATHS = 1 << 21
"""The approximate number of paths in memory at a time."""


@dataclass(frozen=True)
class EncodedStep:
    """A step of a chain, with the id of its relation."""

    relation: int
    forward: bool


@dataclass(frozen=True)
class Chain:
    """A chain rule with relation ids instead of names: the steps of the body and the relation of the hypothesis.

    Example:
        >>> inverse = Chain((EncodedStep(0, forward=False),), relation=1)  # r0(X, Y) => r1(Y, X)
        >>> len(inverse.steps)
        1
    """

    steps: tuple[EncodedStep, ...]
    relation: int


@dataclass(frozen=True)
class TripleIndex:
    """An index of triples for walking in both directions.

    Example:
        >>> index = TripleIndex(TripleSet.of([(0, 0, 1), (1, 0, 2)], entities=3))
        >>> [paths.entities.tolist() for paths in walk(index, [EncodedStep(0, True), EncodedStep(0, True)])]
        [[[0, 1, 2]]]
    """

    facts: TripleSet

    @cached_property
    def forward(self) -> AnswerIndex:
        """Tails by (head, relation)."""
        facts, n = self.facts.triples, self.facts.entities  # already sorted by (relation, head, tail)
        return AnswerIndex(facts[:, RELATION] * n + facts[:, HEAD], facts[:, TAIL], np.arange(len(facts)), n)

    @cached_property
    def backward(self) -> AnswerIndex:
        """Heads by (tail, relation)."""
        return AnswerIndex.of(self.facts.triples, self.facts.entities, "head")

    def rows_of_relation(self, relation: int) -> IntArray:
        """Return the rows of a relation's facts, which are contiguous."""
        square = self.facts.entities**2
        first, last = np.searchsorted(self.facts.keys, [relation * square, (relation + 1) * square])
        return np.arange(first, last)


@dataclass(frozen=True)
class PathBatch:
    """Paths along one chain, one per row.

    Attributes:
        entities: the visited entities, of shape (paths, steps + 1).
        premises: the facts of the steps, as rows of `TripleIndex.facts`, of shape (paths, steps).
    """

    entities: IntArray
    premises: IntArray

    def take(self, keep: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> "PathBatch":
        """Return the selected paths."""
        return PathBatch(self.entities[keep], self.premises[keep])


def chain_of(rule: Rule, relations: Vocabulary) -> Chain:
    """Replace the relation names of a chain rule by ids. Raise InputError if the rule is not a chain.

    Example:
        >>> from plogicnet.rules import parse_rule
        >>> chain_of(parse_rule("husband(X, Y) => wife(Y, X)"), Vocabulary("relation", ("husband", "wife"))).relation
        1
    """
    if rule.chain is None:
        raise InputError(
            f"{rule}: the native engine grounds only chains of relations from the hypothesis's first to its second"
            " variable"
        )
    steps = tuple(EncodedStep(relations.id(step.relation), step.forward) for step in rule.chain)
    return Chain(steps, relations.id(rule.head.relation))


def walk(
    triple_index: TripleIndex,
    steps: Sequence[EncodedStep],
    start: int | None = None,
    end: int | None = None,
    chunk_size: int = CHUNK_PATHS,
) -> Iterator[PathBatch]:
    """Yield all paths along the steps in chunks of about `chunk_size` paths, sorted by first entity.

    With `start`, only paths from this entity are returned. With `end`, only paths to this entity. The continuations of
    each entity are counted first. So dead ends are never entered, and memory is bounded even if some entities have many
    facts.

    Example:
        >>> index = TripleIndex(TripleSet.of([(0, 0, 1), (1, 0, 2), (1, 0, 0)], entities=3))
        >>> two_steps = [EncodedStep(0, True), EncodedStep(0, True)]
        >>> [paths.entities.tolist() for paths in walk(index, two_steps, start=0, end=2)]
        [[[0, 1, 2]]]
    """
    first = steps[0]
    index = triple_index.forward if first.forward else triple_index.backward
    bounds = np.array([0, triple_index.facts.entities] if start is None else [start, start + 1])
    low, high = np.searchsorted(index.keys, first.relation * triple_index.facts.entities + bounds)
    rows = index.rows[low:high]
    first_paths = PathBatch(
        triple_index.facts.triples[rows][:, [HEAD, TAIL] if first.forward else [TAIL, HEAD]], rows[:, None]
    )
    return _continue_paths(
        triple_index, first_paths, steps[1:], count_continuations(triple_index, steps[1:], end), chunk_size
    )


def count_continuations(
    triple_index: TripleIndex, steps: Sequence[EncodedStep], end: int | None = None
) -> list[FloatArray]:
    """Return, for k = 0 to len(steps) completed steps, the number of ways to complete the others from each entity.

    With `end`, only ways to this entity count.

    Example:
        >>> index = TripleIndex(TripleSet.of([(0, 0, 1), (0, 0, 2), (1, 0, 2)], entities=3))
        >>> [counts.tolist() for counts in count_continuations(index, [EncodedStep(0, True)])]
        [[2.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """
    n = triple_index.facts.entities
    counts = [np.ones(n) if end is None else (np.arange(n) == end).astype(np.float64)]
    for step in reversed(steps):
        if end is None:
            facts = triple_index.facts.triples[triple_index.rows_of_relation(step.relation)]
            start_side, end_side = (HEAD, TAIL) if step.forward else (TAIL, HEAD)
            origin, weights = facts[:, start_side], counts[-1][facts[:, end_side]]
        else:  # few entities lead to one end, so only their facts are looked up
            targets = np.flatnonzero(counts[-1])
            index = triple_index.backward if step.forward else triple_index.forward
            target_index, origin, _ = index.lookup(targets, np.full(len(targets), step.relation))
            weights = counts[-1][targets[target_index]]
        counts.append(np.bincount(origin, weights=weights, minlength=n))
    return counts[::-1]


def two_step_paths(facts: TripleSet, n_relations: int) -> sparse.csr_array:
    """Return the number of paths first(X, Y) & second(Y, Z) for each pair of relations.

    Example:
        >>> two_step_paths(TripleSet.of([(0, 0, 1), (1, 1, 2), (1, 1, 3)], entities=4), 2).toarray().tolist()
        [[0, 2], [0, 0]]
    """
    shape, triples = (n_relations, facts.entities), facts.triples
    ones = np.ones(len(triples), dtype=np.int64)
    ends, begins = (sparse.csr_array((ones, (triples[:, RELATION], triples[:, side])), shape) for side in (TAIL, HEAD))
    return sparse.csr_array(ends @ begins.T)


def ground(
    triple_index: TripleIndex,
    chain: Chain,
    counting: CountingMode,
    start: int | None = None,
    end: int | None = None,
    chunk_size: int = CHUNK_PATHS,
) -> Iterator[PathBatch]:
    """Yield the groundings of a chain in chunks. With `distinct`, self-supporting groundings are left out.

    Example:
        >>> index = TripleIndex(TripleSet.of([(0, 0, 1), (1, 0, 0), (2, 0, 2)], entities=3))
        >>> symmetric = Chain((EncodedStep(0, False),), 0)
        >>> sum(len(paths.entities) for paths in ground(index, symmetric, "distinct"))  # without (2, 0, 2)
        2
    """
    check_self_support = counting == "distinct" and any(step.relation == chain.relation for step in chain.steps)
    for paths in walk(triple_index, chain.steps, start, end, chunk_size):
        if check_self_support:
            hypothesis_rows = triple_index.facts.find(conclusions(paths, chain.relation))
            yield paths.take(~np.any(paths.premises == hypothesis_rows[:, None], axis=1))
        else:
            yield paths


def count(
    triple_index: TripleIndex, chain: Chain, counting: CountingMode, chunk_size: int = CHUNK_PATHS
) -> tuple[int, int]:
    """Return support and hits of a chain. With `distinct`, only the conclusions of one head are kept in memory.

    Example:
        >>> index = TripleIndex(TripleSet.of([(0, 0, 1), (1, 1, 0), (2, 0, 0)], entities=3))
        >>> count(index, Chain((EncodedStep(0, False),), 1), "distinct")  # r0(X, Y) => r1(Y, X)
        (2, 1)
    """
    n = triple_index.facts.entities
    support = hits = 0
    pending = np.empty(0, dtype=np.int64)
    for paths in ground(triple_index, chain, counting, chunk_size=chunk_size):
        keys = triple_keys(conclusions(paths, chain.relation), n)
        if counting == "distinct":
            # paths are sorted by first entity, so only the last head can have more conclusions in the next chunk
            keys = np.unique(np.concatenate([pending, keys]))
            last_head = keys[-1] - keys[-1] % n if len(keys) else 0
            pending, keys = keys[keys >= last_head], keys[keys < last_head]
        support, hits = support + len(keys), hits + int(triple_index.facts.contains_keys(keys).sum())
    return support + len(pending), hits + int(triple_index.facts.contains_keys(pending).sum())


def conclusions(paths: PathBatch, relation: int) -> IntArray:
    """Return the triple that each path concludes."""
    triples = np.empty((len(paths.entities), 3), dtype=np.int64)
    triples[:, HEAD], triples[:, RELATION], triples[:, TAIL] = (
        paths.entities[:, 0],
        relation,
        paths.entities[:, -1],
    )
    return triples


def _continue_paths(
    triple_index: TripleIndex,
    paths: PathBatch,
    steps: Sequence[EncodedStep],
    counts: Sequence[FloatArray],
    chunk_size: int,
) -> Iterator[PathBatch]:
    """Yield the continuations of paths along the remaining steps in chunks, in the same order.

    `counts` is the result of `count_continuations` for these steps.
    """
    n_continuations = counts[0][paths.entities[:, -1]]
    paths, n_continuations = paths.take(n_continuations > 0), n_continuations[n_continuations > 0]
    if not steps:
        yield paths
        return
    chunk_index = np.cumsum(n_continuations) // chunk_size
    cuts = np.flatnonzero(np.diff(chunk_index)) + 1
    for low, high in itertools.pairwise([0, *cuts.tolist(), len(n_continuations)]):
        batch = PathBatch(paths.entities[low:high], paths.premises[low:high])
        yield from _continue_paths(
            triple_index, _extend_paths(triple_index, batch, steps[0]), steps[1:], counts[1:], chunk_size
        )


def _extend_paths(triple_index: TripleIndex, paths: PathBatch, step: EncodedStep) -> PathBatch:
    index = triple_index.forward if step.forward else triple_index.backward
    path, next_entity, rows = index.lookup(paths.entities[:, -1], np.full(len(paths.entities), step.relation))
    return PathBatch(
        np.column_stack([paths.entities[path], next_entity]), np.column_stack([paths.premises[path], rows])
    )
