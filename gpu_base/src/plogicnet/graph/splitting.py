"""Splitting one set of triples into train, valid and test so that train has seen what the others speak of."""

import logging
from dataclasses import replace

import numpy as np

from plogicnet.errors import InputError, many
from plogicnet.graph.knowledge_graph import KnowledgeGraph
from plogicnet.graph.triples import HEAD, RELATION, TAIL, BoolArray, IntArray

log = logging.getLogger(__name__)
Shares = tuple[float, float, float]


def parse_shares(text: str) -> Shares:
    """`0.8,0.1,0.1` as shares of train, valid and test.

    Example:
        >>> parse_shares("0.8,0.1,0.1")
        (0.8, 0.1, 0.1)
    """
    try:
        train, valid, test = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--split {text}: three shares are meant, as 0.8,0.1,0.1") from None
    # written so that a NaN fits nowhere
    if not (train > 0 and valid >= 0 and test >= 0 and abs(train + valid + test - 1) <= 1e-6):
        raise InputError(f"--split {text}: the shares of train, valid and test add up to 1, and train has some")
    return train, valid, test


def split_triples(graph: KnowledgeGraph, shares: Shares, seed: int) -> KnowledgeGraph:
    """Splits the training triples at random by the shares; what train must keep to have seen every name, it keeps.

    In a shuffled order, a triple that shows a new entity or relation is kept for train; valid and test are drawn from
    the others. Where those are too few, triples that train should keep are given away all the same, and the number of
    entities and relations that train then lacks is said.

    Example:
        >>> rows = [(str(i % 7), "r", str(i % 5)) for i in range(35)]
        >>> graph = split_triples(KnowledgeGraph.from_names(rows), (0.6, 0.2, 0.2), seed=0)
        >>> len(graph.train), len(graph.valid), len(graph.test)
        (21, 7, 7)
    """
    triples = graph.train
    order = np.random.default_rng([seed, 3]).permutation(len(triples))
    needed = _first_showings(triples[order])
    giveable = np.concatenate([order[~needed], order[needed][::-1]])
    sizes = [round(share * len(triples)) for share in shares[1:]]
    valid = np.sort(giveable[: sizes[0]])
    test = np.sort(giveable[sizes[0] : sizes[0] + sizes[1]])
    kept = np.ones(len(triples), dtype=bool)
    kept[valid] = kept[test] = False
    if not kept.any():
        told = many(len(triples), "triple is", "triples are")
        raise InputError(f"{graph.name}: {told} too few to be split by {shares}")
    result = replace(graph, train=triples[kept], valid=triples[valid], test=triples[test])
    if int(needed.sum()) > int(kept.sum()):
        log.warning("%s: too few triples to show train every name; see the counts that follow", graph.name)
    return result


def _first_showings(triples: IntArray) -> BoolArray:
    """Which triples are the first to show their head, relation or tail."""
    first = np.zeros(len(triples), dtype=bool)
    places = np.repeat(np.arange(len(triples)), 2)
    _, at = np.unique(triples[:, [HEAD, TAIL]].ravel(), return_index=True)
    first[places[at]] = True
    _, at = np.unique(triples[:, RELATION], return_index=True)
    first[at] = True
    return first
