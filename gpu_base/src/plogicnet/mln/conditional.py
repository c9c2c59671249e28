"""The conditional probability p_w(v = 1 | Markov blanket): a product with the sparse triples × rules matrix."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from plogicnet.graph import RELATION, BoolArray, FloatArray, IntArray, KnowledgeGraph
from plogicnet.grounding import Groundings

Aggregate = Literal["sum", "mean"]
Blanket = Literal["hypothesis", "full"]


def features(
    groundings: Groundings, truth: BoolArray, blanket: Blanket = "hypothesis", aggregate: Aggregate = "sum"
) -> sparse.csr_array:
    """The matrix X, triples × rules, with log-odds(v) = b + X w, under an assignment of truth to the triples of O ∪ H.

    A grounding counts +1 for its hypothesis where its premises are true. Under the full blanket it also counts -1 for
    a premise whose being true would break it: the other premises are true and the hypothesis is false. With sum this
    is the exact conditional of Eq. 3 (under distinct counting: the others have groundings that are always true); with
    mean each row is divided by its number of such groundings (the authors).

    Example:
        >>> import numpy as np
        >>> from plogicnet.graph import TripleSet
        >>> from plogicnet.grounding import Chain, Move, ground_network
        >>> inverse = Chain((Move(0, forward=False),), relation=1)
        >>> network = ground_network(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct")
        >>> features(network, network.observed).toarray().tolist()
        [[0.0], [1.0]]
    """
    padded_truth = np.append(truth, True)  # row -1, the padding, is true
    holds = padded_truth[groundings.premises]
    supported = np.asarray(holds.all(axis=1))
    shape = (len(groundings.triples), groundings.rules)
    small = np.int32 if max(*shape, len(supported)) < 2**31 else np.int64  # half the memory where it fits
    rows = [groundings.hypothesis.astype(small)[supported]]
    columns = [groundings.rule.astype(small)[supported]]
    signs = [np.ones(len(rows[0]))]
    if blanket == "full":
        broken = ~truth[groundings.hypothesis]
        for place in range(groundings.premises.shape[1]):
            others = np.delete(holds, place, axis=1).all(axis=1)
            counts = broken & others & (groundings.premises[:, place] >= 0)
            rows.append(groundings.premises[counts, place].astype(small))
            columns.append(groundings.rule[counts].astype(small))
            signs.append(-np.ones(len(rows[-1])))
    row, column, sign = _joined(rows), _joined(columns), _joined(signs)
    del holds, supported, rows, columns, signs  # what follows is the peak
    if aggregate == "mean":
        sign = sign / np.bincount(row, minlength=len(truth))[row]
    return sparse.csr_array(sparse.coo_array((sign, (row, column)), shape))


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All parts one after the other; one alone as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def grounding_counts(groundings: Groundings) -> IntArray:
    """For each rule, how many of its groundings conclude an observed triple, and how many a hidden one: two columns.

    Example:
        >>> from plogicnet.graph import TripleSet
        >>> from plogicnet.grounding import Chain, Move, ground_network
        >>> inverse = Chain((Move(0, forward=False),), relation=1)
        >>> grounding_counts(ground_network(TripleSet.of([(0, 0, 1)], entities=2), [inverse], "distinct"))
        array([[0, 1]])
    """
    hidden = ~groundings.observed[groundings.hypothesis]
    counts = np.bincount(2 * groundings.rule + hidden, minlength=2 * groundings.rules)
    return counts.reshape(groundings.rules, 2)


def log_odds(matrix: sparse.csr_array, weights: FloatArray, base: FloatArray) -> FloatArray:
    """B + X w."""
    return np.asarray(base + matrix @ weights)


def probability(odds: FloatArray) -> FloatArray:
    """σ of log-odds."""
    return np.asarray(special.expit(odds))


def base_log_odds(graph: KnowledgeGraph, unit_clauses: bool) -> FloatArray:
    """B of each relation: 0 as in the paper, or the weight of its unit clause, the log-odds of its base rate.

    The base rate is the share of the relation's triples among all pairs of entities; a relation that train lacks is
    given half a triple, so that its log-odds stay finite.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "knows", "b")])
        >>> base_log_odds(graph, unit_clauses=False)
        array([0.])
    """
    if not unit_clauses:
        return np.zeros(len(graph.relations))
    pairs = len(graph.entities) ** 2
    facts = np.bincount(graph.train[:, RELATION], minlength=len(graph.relations))
    rate = np.clip(facts, 0.5, pairs - 0.5) / pairs
    return np.asarray(special.logit(rate))
