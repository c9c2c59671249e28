"""Grounding, which finds the hidden triples and all groundings, in memory."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from plogicnet.graph import RELATION, FloatArray, IntArray, TripleSet, triple_keys
from plogicnet.grounding.engine import CountingMode, Resources
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.native.compositions import CompositionRules, SortedFacts, count_groundings, fill_groundings
from plogicnet.grounding.native.subjects import SubjectRules, Subjects
from plogicnet.grounding.native.walks import (
    Chain,
    TripleIndex,
    conclusions,
    count_continuations,
    ground,
    two_step_paths,
)
from plogicnet.support.memory import require_bytes
from plogicnet.support.threads import map_in_threads

CHUNK_GROUNDINGS = 1 << 20
"""The number of groundings that are processed at a time."""
TRIPLE_BYTES = 80
"""The memory per triple of O ∪ H while the set is created."""


def ground_network(
    observed: TripleSet,
    chains: Sequence[Chain],
    counting: CountingMode,
    hidden_premises: bool = False,
    resources: Resources | None = None,
    subjects: SubjectRules | None = None,
) -> InMemoryGroundNetwork:
    """Find the hidden triples H and all groundings that conclude a triple of O ∪ H.

    Premises are in O, or in O ∪ H with `hidden_premises`. From hidden premises, rules can also conclude triples outside
    O ∪ H. These groundings are dropped. The rules of the network are the chains, then `subjects` in their order.

    Example:
        >>> from plogicnet.grounding.native.walks import EncodedStep
        >>> inverse = Chain((EncodedStep(0, forward=False),), relation=1)
        >>> network = ground_network(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct")
        >>> network.hypothesis, network.premises
        (array([1]), array([[0]]))
    """
    resources = resources or Resources()
    subjects = SubjectRules.none() if subjects is None else subjects
    buffer = _ground_all(TripleIndex(observed), chains, subjects, counting, resources)
    triples = _collect_triples(observed, buffer.key)
    if hidden_premises:
        del buffer
        triple_index = TripleIndex(triples)
        n_of_subjects = Subjects.of(triple_index, subjects).n_groundings
        resources.check_memory(np.append(count_groundings_per_chain(triple_index, chains), n_of_subjects))
        buffer = _ground_all(triple_index, chains, subjects, counting, resources).keep_conclusions_in(triples)
    else:
        # the appended -1 keeps the padding: premise -1 selects the last element
        row_of_fact = np.append(np.searchsorted(triples.keys, observed.keys), -1)
        for chunk in buffer.chunks():
            buffer.premises[chunk] = row_of_fact[buffer.premises[chunk]]
    for chunk in buffer.chunks():  # replace keys by rows in place, because a second copy may not fit into memory
        buffer.key[chunk] = np.searchsorted(triples.keys, buffer.key[chunk])
    is_observed = observed.contains_keys(triples.keys)
    n_rules = len(chains) + len(subjects)
    return InMemoryGroundNetwork(triples, is_observed, n_rules, buffer.rule, buffer.key, buffer.premises)


def _collect_triples(observed: TripleSet, keys: IntArray) -> TripleSet:
    """Return O ∪ H for the keys of all hypotheses."""
    hidden = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(keys), CHUNK_GROUNDINGS):
        chunk = keys[start : start + CHUNK_GROUNDINGS]
        hidden.append(_sorted_unique(chunk[~observed.contains_keys(chunk)]))
    hidden_keys = _sorted_unique(np.concatenate(hidden))
    require_bytes(
        TRIPLE_BYTES * (len(observed) + len(hidden_keys)),
        f"{len(hidden_keys):,} hidden triples",
        "raise rules.min_precision",
    )
    all_keys = np.concatenate([observed.keys, hidden_keys])
    all_keys.sort()
    return TripleSet.of_keys(all_keys, observed.entities)


def _sorted_unique(keys: IntArray) -> IntArray:
    """Return the distinct keys, sorted. Faster here than `np.unique`, which hashes first."""
    keys = np.sort(keys)
    return np.asarray(keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]])


@dataclass(frozen=True)
class GroundingBuffer:
    """Arrays with one entry per grounding.

    Attributes:
        rule: the index of the rule.
        key: the key of the hypothesis (see `triple_keys`).
        premises: the premises, as rows of the facts that were walked, with -1 for repeated premises and unused columns.
    """

    rule: IntArray
    key: IntArray
    premises: IntArray

    def chunks(self) -> Iterator[slice]:
        """Yield slices of CHUNK_GROUNDINGS groundings."""
        return (slice(start, start + CHUNK_GROUNDINGS) for start in range(0, len(self.rule), CHUNK_GROUNDINGS))

    def keep_conclusions_in(self, triples: TripleSet) -> "GroundingBuffer":
        """Keep only the groundings that conclude one of the triples. Overwrites the arrays."""
        n = 0
        for chunk in self.chunks():
            mask = triples.contains_keys(self.key[chunk])
            end = n + int(mask.sum())
            for column in (self.rule, self.key, self.premises):
                column[n:end] = column[chunk][mask]
            n = end
        return self.truncate(n)

    def truncate(self, n: int) -> "GroundingBuffer":
        """Return the first n groundings."""
        return GroundingBuffer(self.rule[:n], self.key[:n], self.premises[:n])


def count_groundings_per_chain(triple_index: TripleIndex, chains: Sequence[Chain]) -> FloatArray:
    """Return the number of groundings of each chain, including self-supporting groundings, without creating them.

    Example:
        >>> from plogicnet.grounding.native.walks import EncodedStep
        >>> index = TripleIndex(TripleSet.of([(0, 0, 1), (1, 0, 2), (1, 0, 0)], entities=3))
        >>> forward, backward = EncodedStep(0, True), EncodedStep(0, False)
        >>> count_groundings_per_chain(index, [Chain((forward, forward), 0), Chain((backward,), 0)])
        array([3., 3.])
    """
    n_relations = _relation_id_bound(triple_index, chains)
    n_facts = np.bincount(triple_index.facts.triples[:, RELATION], minlength=n_relations)
    n_paths = two_step_paths(triple_index.facts, n_relations)
    counts = np.empty(len(chains))
    compositions = [i for i, chain in enumerate(chains) if _is_composition(chain)]
    if compositions:
        firsts, seconds = np.array([[step.relation for step in chains[i].steps] for i in compositions]).T
        counts[compositions] = n_paths[firsts, seconds]
    for i in set(range(len(chains))) - set(compositions):
        steps = chains[i].steps
        counts[i] = n_facts[steps[0].relation] if len(steps) == 1 else count_continuations(triple_index, steps)[0].sum()
    return counts


def _relation_id_bound(triple_index: TripleIndex, chains: Sequence[Chain]) -> int:
    """Return an integer larger than all relation ids in the facts and in the steps of the chains."""
    in_chains = 1 + max((step.relation for chain in chains for step in chain.steps), default=0)
    return max(in_chains, int(triple_index.facts.triples[:, RELATION].max(initial=0)) + 1)


def _is_composition(chain: Chain) -> bool:
    return len(chain.steps) == 2 and all(step.forward for step in chain.steps)


def _ground_all(
    triple_index: TripleIndex,
    chains: Sequence[Chain],
    subject_rules: SubjectRules,
    counting: CountingMode,
    resources: Resources,
) -> GroundingBuffer:
    """Ground every rule into one buffer.

    Compiled code grounds all compositions with the same first relation together. Other chains are grounded one by one.
    """
    n, width = triple_index.facts.entities, max((len(chain.steps) for chain in chains), default=1)
    by_first: dict[int, list[int]] = {}
    others: list[int] = []
    for i, chain in enumerate(chains):
        (by_first.setdefault(chain.steps[0].relation, []) if _is_composition(chain) else others).append(i)
    facts, compositions = (
        SortedFacts.of(triple_index.facts),
        _composition_rules(triple_index, chains, counting, by_first),
    )
    n_others = int(count_groundings_per_chain(triple_index, [chains[i] for i in others]).sum())
    subjects = Subjects.of(triple_index, subject_rules)
    with resources.progress("grounding, rules", len(chains) + len(subject_rules)) as advance:

        def fill_slice(task: tuple[CompositionRules, int, int]) -> None:
            rules, start, stop = task
            fill_groundings(
                facts, rules, n, buffer.rule[start:stop], buffer.key[start:stop], buffer.premises[start:stop]
            )
            buffer.premises[start:stop, 2:] = -1

        counts = map_in_threads(partial(count_groundings, facts), compositions, resources.threads)
        ends = np.cumsum([0, *counts]).tolist()
        size = (
            ends[-1] + n_others + int(subjects.n_groundings.sum())
        )  # an upper bound; the system allocates pages only when they are written
        buffer = GroundingBuffer(np.empty(size, np.int64), np.empty(size, np.int64), np.empty((size, width), np.int64))
        slices = zip(compositions, ends[:-1], ends[1:], strict=True)
        filled = map_in_threads(fill_slice, slices, resources.threads)
        for rule_indices, _ in zip(by_first.values(), filled, strict=True):
            advance(len(rule_indices))
        end = ends[-1]
        for i in others:
            for paths in ground(triple_index, chains[i], counting):
                start, end = end, end + len(paths.entities)
                buffer.rule[start:end] = i
                buffer.key[start:end] = triple_keys(conclusions(paths, chains[i].relation), n)
                _pad(paths.premises, buffer.premises[start:end])
            advance()
        for low, high in _split(subjects.n_groundings):
            rule, keys, rows = subjects.ground(low, high, counting)
            start, end = end, end + len(rule)
            buffer.rule[start:end], buffer.key[start:end] = len(chains) + rule, keys
            buffer.premises[start:end, 0], buffer.premises[start:end, 1:] = rows, -1
            advance(high - low)
    return buffer.truncate(end)


def _split(n_groundings: IntArray) -> list[tuple[int, int]]:
    """Split rules with these numbers of groundings into ranges of about CHUNK_GROUNDINGS groundings."""
    cuts = np.flatnonzero(np.diff(np.cumsum(n_groundings) // CHUNK_GROUNDINGS)) + 1
    bounds = [0, *cuts.tolist(), len(n_groundings)]
    return [(low, high) for low, high in itertools.pairwise(bounds) if low < high]


def _composition_rules(
    triple_index: TripleIndex, chains: Sequence[Chain], counting: CountingMode, by_first: dict[int, list[int]]
) -> list[CompositionRules]:
    """Return the compositions of each first relation."""
    n_relations = _relation_id_bound(triple_index, chains)

    def rules_with_first(first: int, rule_indices: list[int]) -> CompositionRules:
        seconds = np.array([chains[i].steps[1].relation for i in rule_indices], dtype=np.int64)
        relations = np.array([chains[i].relation for i in rule_indices], dtype=np.int64)
        return CompositionRules.of(
            first, seconds, relations, np.array(rule_indices, np.int64), n_relations, counting == "paths"
        )

    return [rules_with_first(first, rule_indices) for first, rule_indices in by_first.items()]


def _pad(premises: IntArray, rows: IntArray) -> None:
    """Copy premises to rows, which can be wider. Repeated premises and unused columns become -1."""
    rows[:] = -1
    for i in range(premises.shape[1]):
        repeated = np.any(premises[:, :i] == premises[:, [i]], axis=1) if i else np.zeros(len(rows), dtype=bool)
        rows[:, i] = np.where(repeated, -1, premises[:, i])
