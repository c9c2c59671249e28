"""The conditional probability p_w(v = 1 | Markov blanket of v), computed with a sparse triples × rules matrix.

v is the truth value of a triple. Equation numbers are those of the paper.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from plogicnet.graph import RELATION, BoolArray, FloatArray, KnowledgeGraph
from plogicnet.grounding.groundings import InMemoryGroundNetwork
from plogicnet.grounding.rows import DistinctRows

Aggregate = Literal["sum", "mean", "saturating"]
Blanket = Literal["hypothesis", "full"]


def features(
    groundings: InMemoryGroundNetwork, truth: BoolArray, blanket: Blanket = "hypothesis", aggregate: Aggregate = "sum"
) -> sparse.csr_array:
    """Return the matrix X (triples × rules) with log-odds(v) = b + X w, for a truth assignment to O ∪ H.

    A grounding with true premises adds +1 to the row of its hypothesis. With the full blanket, a grounding with a false
    hypothesis also adds -1 to the row of a premise if all other premises are true, because the grounding would be
    violated if the premise were true. With `sum`, this is the exact conditional of Eq. 3. (Only with distinct counting,
    because self-supporting groundings are always true.) With `mean`, each row is divided by the number of its ±1 terms,
    as in the authors' program. With `saturating`, n groundings of a rule count as log2(1 + n), so that a rule with many
    groundings for some triples still has an effect on triples with few. With the full blanket, this is
    log2(1 + n₁) - log2(1 + n₂) for n₁ groundings that add +1 and n₂ groundings that add -1.

    Example:
        >>> import numpy as np
        >>> from plogicnet.graph import TripleSet
        >>> one = np.array([1])
        >>> triples, observed = TripleSet.of([(0, 0, 1), (1, 1, 0)], entities=2), np.array([True, False])
        >>> inverse = InMemoryGroundNetwork(triples, observed, 1, one - 1, hypothesis=one, premises=np.array([[0]]))
        >>> features(inverse, observed).toarray().tolist()
        [[0.0], [1.0]]
    """
    padded_truth = np.append(truth, True)  # row -1, the padding, is true
    is_true = padded_truth[groundings.premises]
    all_true = np.asarray(is_true.all(axis=1))
    shape = (len(groundings.triples), groundings.n_rules)
    dtype = np.int32 if max(*shape, len(all_true)) < 2**31 else np.int64  # int32 halves the memory
    rows = [groundings.hypothesis.astype(dtype)[all_true]]
    columns = [groundings.rule.astype(dtype)[all_true]]
    signs = [np.ones(len(rows[0]))]
    if blanket == "full":
        hypothesis_false = ~truth[groundings.hypothesis]
        for i in range(groundings.premises.shape[1]):
            others_true = np.delete(is_true, i, axis=1).all(axis=1)
            applies = hypothesis_false & others_true & (groundings.premises[:, i] >= 0)
            rows.append(groundings.premises[applies, i].astype(dtype))
            columns.append(groundings.rule[applies].astype(dtype))
            signs.append(-np.ones(len(rows[-1])))
    row, column, sign = _concatenate(rows), _concatenate(columns), _concatenate(signs)
    n_concluding = len(rows[0])
    del is_true, all_true, rows, columns, signs  # the next steps have the peak memory
    if aggregate == "mean":
        sign = sign / np.bincount(row, minlength=len(truth))[row]
    if aggregate == "saturating":
        parts = [slice(n_concluding)] if blanket == "hypothesis" else [slice(n_concluding), slice(n_concluding, None)]
        counts = [sparse.csr_array(sparse.coo_array((sign[part], (row[part], column[part])), shape)) for part in parts]
        sign = _concatenate([np.sign(count.data) * saturate(np.abs(count.data)) for count in counts])
        row, column = (_concatenate([count.tocoo().coords[axis] for count in counts]) for axis in (0, 1))
    return sparse.csr_array(sparse.coo_array((sign, (row, column)), shape))


def saturate(counts: FloatArray) -> FloatArray:
    """Return log2(1 + n), the value of a rule with n groundings if the aggregate is `saturating`.

    Example:
        >>> saturate(np.array([0.0, 1.0, 3.0]))
        array([0., 1., 2.])
    """
    return np.asarray(np.log2(1.0 + counts))


def _concatenate(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays. A single array is returned without a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def aggregate_rows(multisets: DistinctRows, aggregate: Aggregate) -> DistinctRows:
    """Return the rows of X (see `features`) for distinct rule multisets, if all premises are observed.

    A rule multiset contains, for each rule, the number of groundings that conclude the triple. With `sum`, these
    numbers are the row of X. With `mean`, they are divided by their sum. With `saturating`, a number n becomes
    log2(1 + n).

    Example:
        >>> multisets = DistinctRows.of(sparse.csr_array(np.array([[1.0, 3.0]])))
        >>> aggregate_rows(multisets, "mean").matrix.toarray()
        array([[0.25, 0.75]])
    """
    if aggregate == "sum":
        return multisets
    matrix = multisets.matrix
    if aggregate == "saturating":
        saturated = sparse.csr_array((saturate(matrix.data), matrix.indices, matrix.indptr), matrix.shape)
        return replace(multisets, matrix=saturated)
    n_groundings = matrix.data.astype(np.int64)
    share = np.repeat(1.0 / matrix.sum(axis=1), np.diff(matrix.indptr))
    # adds the groundings one by one as `features` does, because a product would round differently
    values = np.bincount(
        np.repeat(np.arange(len(n_groundings)), n_groundings), np.repeat(share, n_groundings), len(n_groundings)
    )
    mean = sparse.csr_array((values, matrix.indices, matrix.indptr), matrix.shape)
    return replace(multisets, matrix=mean).deduplicate()


def probability(log_odds: FloatArray) -> FloatArray:
    """Return σ(log-odds)."""
    return np.asarray(special.expit(log_odds))


def base_log_odds(graph: KnowledgeGraph, unit_clauses: bool) -> FloatArray:
    """Return the base log-odds b of each relation.

    They are 0 as in the paper, or with unit clauses the log-odds of the relation's base rate. The base rate is the
    number of the relation's training triples divided by the number of entity pairs. A relation without training triples
    counts as half a triple, so that its log-odds are finite.

    Example:
        >>> graph = KnowledgeGraph.from_names([("a", "knows", "b")])
        >>> base_log_odds(graph, unit_clauses=False)
        array([0.])
    """
    if not unit_clauses:
        return np.zeros(len(graph.relations))
    n_pairs = len(graph.entities) ** 2
    n_facts = np.bincount(graph.train[:, RELATION], minlength=len(graph.relations))
    rate = np.clip(n_facts, 0.5, n_pairs - 0.5) / n_pairs
    return np.asarray(special.logit(rate))
