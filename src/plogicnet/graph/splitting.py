"""Splitting triples into train, valid and test so that train contains all entities and relations if possible."""

import logging
from dataclasses import replace

import numpy as np

from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.triples import HEAD, RELATION, TAIL, BoolArray, IntArray
from plogicnet.support.errors import InputError, pluralize

log = logging.getLogger(__name__)
Shares = tuple[float, float, float]


def parse_shares(text: str) -> Shares:
    """Parse the shares of train, valid and test.

    Example:
        >>> parse_shares("0.8,0.1,0.1")
        (0.8, 0.1, 0.1)
    """
    try:
        train, valid, test = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--split {text}: expected three shares, for example 0.8,0.1,0.1") from None
    # written so that NaN is invalid
    if not (train > 0 and valid >= 0 and test >= 0 and abs(train + valid + test - 1) <= 1e-6):
        raise InputError(f"--split {text}: the shares must add up to 1, and the share of train must be positive")
    return train, valid, test


def split_triples(graph: KnowledgeGraph, shares: Shares, seed: int) -> KnowledgeGraph:
    """Split the training triples at random, keeping every entity and relation in train if possible.

    In shuffled order, the first triple of each entity and relation is kept for train. Valid and test are drawn from the
    other triples. If the other triples are too few, valid and test also get first triples, and a warning is logged.

    Example:
        >>> rows = [(str(i % 7), "r", str(i % 5)) for i in range(35)]
        >>> graph = split_triples(KnowledgeGraph.from_names(rows), (0.6, 0.2, 0.2), seed=0)
        >>> len(graph.train), len(graph.valid), len(graph.test)
        (21, 7, 7)
    """
    triples = graph.train
    order = np.random.default_rng([seed, 3]).permutation(len(triples))
    is_first = _first_occurrences(triples[order])
    candidates = np.concatenate([order[~is_first], order[is_first][::-1]])
    sizes = [round(share * len(triples)) for share in shares[1:]]
    valid = np.sort(candidates[: sizes[0]])
    test = np.sort(candidates[sizes[0] : sizes[0] + sizes[1]])
    kept = np.ones(len(triples), dtype=bool)
    kept[valid] = kept[test] = False
    if not kept.any():
        count = pluralize(len(triples), "triple is", "triples are")
        raise InputError(f"{graph.name}: {count} too few to split by {shares}")
    result = replace(graph, train=triples[kept], valid=triples[valid], test=triples[test])
    if int(is_first.sum()) > int(kept.sum()):
        log.warning("%s: too few triples to keep every entity and relation in train; see the counts below", graph.name)
    return result


def _first_occurrences(triples: IntArray) -> BoolArray:
    """Return whether each triple is the first one that contains its head entity, its relation or its tail entity."""
    first = np.zeros(len(triples), dtype=bool)
    rows = np.repeat(np.arange(len(triples)), 2)
    _, positions = np.unique(triples[:, [HEAD, TAIL]].ravel(), return_index=True)
    first[rows[positions]] = True
    _, positions = np.unique(triples[:, RELATION], return_index=True)
    first[positions] = True
    return first
