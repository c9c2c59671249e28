"""Comparison of queries with the negatives that they share: distances by Triton kernels, dot products by PyTorch.

Both classes have the parts of a step as methods. Call them in this order: `lay_out`, `compare`, and, once the slopes
are computed, `query_gradients` and `negative_gradients`. `out` and `d_query` must be summed over their first dimension.

Lower bound for dot products (f = 4 bytes, w = width): memory traffic is the bottleneck. Three products of 2 · n · m · w
operations take only 0.008 ms for 1024 × 256 × 2000, at 400 TFLOP/s in TF32. The rows of the negatives are gathered and
written (2 · f · w per row) and read by two products. Their gradients are written, read and added. This is 7 · f · w per
row, or 0.06 ms for 4,096 rows of 2000.
"""

import torch
from torch import Tensor

from plogicnet.neural.vectors.kernels.cross import Backward, Forward, Tiling


class Distances:
    """L1 distances, or sums of moduli, of each chunk's queries and negatives. `out` has one part per coordinate split.

    Example:
        >>> ids, n = torch.zeros(1, 2, dtype=torch.int32), 3
        >>> Distances(torch.ones(4, 5), ids, torch.ones(n, 5), torch.ones(n, 2), torch.zeros(4, 5), False).out.shape
        torch.Size([1, 1, 3, 2])
    """

    def __init__(
        self, entity: Tensor, negative: Tensor, query: Tensor, slope: Tensor, d_entity: Tensor, modulus: bool
    ) -> None:
        self.entity, self.negative, self.query, self.slope, self.d_entity = entity, negative, query, slope, d_entity
        chunks, self.negatives = negative.shape
        self.chunk_size, dim = len(query) // chunks, query.shape[1] // (2 if modulus else 1)
        self.forward = Forward(chunks, self.chunk_size, self.negatives, dim, modulus, entity.device)
        self.to_queries = Backward(chunks, self.chunk_size, self.negatives, dim, modulus)
        self.to_negatives = Backward(chunks, self.negatives, self.chunk_size, dim, modulus, Tiling(splits=1))
        self.d_query = torch.zeros(self.to_queries.splits, *query.shape, device=entity.device)
        self.rows = torch.zeros(negative.numel(), query.shape[1], device=entity.device)
        self.out = self.forward.out

    def lay_out(self) -> None:
        """Transpose queries and negatives, and copy the negatives' rows into one array.

        The queries' gradients read each row many times. Looking up its id each time took a third of their time.
        """
        forward = self.forward
        forward.lay_out(self.query, None, forward.queries, self.chunk_size)
        forward.lay_out(self.entity, self.negative, forward.candidates, self.negatives, self.rows)

    def compare(self) -> None:
        """Compute the distances."""
        self.forward.distances()

    def query_gradients(self) -> None:
        """Compute the negatives' part of the queries' gradients."""
        self.to_queries(self.query, self.rows, self.slope, (self.negatives, 1), self.d_query)

    def negative_gradients(self) -> None:
        """Compute the negatives' gradients and add them to `d_entity`."""
        steps = (1, self.negatives)
        self.to_negatives(self.entity, self.query, self.slope, steps, self.d_entity, ids=self.negative)


class Products:
    """Dot products of each chunk's queries and negatives, in PyTorch's current precision (neural.vectors.matmul).

    Example:
        >>> ids, n = torch.zeros(1, 2, dtype=torch.int32), 3
        >>> products = Products(torch.ones(4, 5), ids, torch.ones(n, 5), torch.ones(n, 2), torch.zeros(4, 5))
        >>> products.lay_out()
        >>> products.compare()
        >>> products.out[0, 0, 0]
        tensor([5., 5.])
    """

    def __init__(
        self,
        entity: Tensor,
        negative: Tensor,
        query: Tensor,
        slope: Tensor,
        d_entity: Tensor,
        modulus: bool = False,  # noqa: ARG002
    ) -> None:
        (chunks, negatives), width = negative.shape, entity.shape[1]
        self.entity, self.d_entity, self.ids = entity, d_entity, negative.view(-1)
        self.query, self.slope = query.view(chunks, -1, width), slope.view(chunks, -1, negatives)
        self.rows, self.d_rows = (torch.zeros(len(self.ids), width, device=entity.device) for _ in range(2))
        self.chunk_rows, self.d_chunk_rows = (x.view(chunks, negatives, width) for x in (self.rows, self.d_rows))
        self.out = torch.zeros(1, *self.slope.shape, device=entity.device)
        self.d_query = torch.zeros(1, *query.shape, device=entity.device)

    def lay_out(self) -> None:
        """Copy the negatives' rows into one array."""
        torch.index_select(self.entity, 0, self.ids, out=self.rows)

    def compare(self) -> None:
        """Compute the products."""
        torch.bmm(self.query, self.chunk_rows.transpose(1, 2), out=self.out[0])

    def query_gradients(self) -> None:
        """Compute the negatives' part of the queries' gradients."""
        torch.bmm(self.slope, self.chunk_rows, out=self.d_query.view(self.query.shape))

    def negative_gradients(self) -> None:
        """Compute the negatives' gradients and add them to `d_entity`."""
        torch.bmm(self.slope.transpose(1, 2), self.query, out=self.d_chunk_rows)
        self.d_entity.index_add_(0, self.ids, self.d_rows)
