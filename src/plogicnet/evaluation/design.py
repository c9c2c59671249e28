"""Narrow matrices of regressions as the rule model's solver takes them."""

import numpy as np
from scipy import sparse

from plogicnet.graph import FloatArray


def sparse_design(design: FloatArray) -> sparse.csr_array:
    """A narrow matrix's entries; scipy's own conversion holds it several times over."""
    there = design != 0
    column = np.broadcast_to(np.arange(design.shape[1], dtype=np.int32), design.shape)[there]
    begin = np.append(0, np.cumsum(there.sum(axis=1)))
    return sparse.csr_array((design[there], column, begin.astype(np.int32)), design.shape)
