"""Queries against the negatives that they share: distances by our kernels, products by the card's matrix units.

Both have the parts of a step in the same order: `lay_out`, `compare`, then, once the slopes are there, `learn_queries`
and `learn_negatives`. `out` and `d_query` are in parts, to be summed over their first dimension.

The floor of the products: three multiplications of 2 · n · m · w operations, at 400 TFLOP/s in TF32 0.008 ms for
1024 × 256 × 2000, are little beside the bytes: the negatives' rows gathered and written (2 · f · w a row), read by two
products, their gradients written and read again to be added: 7 · f · w a row, 0.06 ms for 4,096 rows of 2000.
"""

import torch
from torch import Tensor

from plogicnet.neural.vectors.kernels.cross import Backward, Forward, Tiling


class Distances:
    """L1 distances, or sums of moduli, of each chunk's queries and negatives; they lie in `out`, split by coordinates.

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
        self.share, dim = len(query) // chunks, query.shape[1] // (2 if modulus else 1)
        self.forward = Forward(chunks, self.share, self.negatives, dim, modulus, entity.device)
        self.to_queries = Backward(chunks, self.share, self.negatives, dim, modulus)
        self.to_negatives = Backward(chunks, self.negatives, self.share, dim, modulus, Tiling(splits=1))
        self.d_query = torch.zeros(self.to_queries.splits, *query.shape, device=entity.device)
        self.rows = torch.zeros(negative.numel(), query.shape[1], device=entity.device)
        self.out = self.forward.out

    def lay_out(self) -> None:
        """Queries and negatives transposed, and the negatives' rows one after the other.

        The queries' gradients read each of them many times: to look up where it lies each time took a third of theirs.
        """
        forward = self.forward
        forward.lay_out(self.query, None, forward.queries, self.share)
        forward.lay_out(self.entity, self.negative, forward.candidates, self.negatives, self.rows)

    def compare(self) -> None:
        """The distances."""
        self.forward.distances()

    def learn_queries(self) -> None:
        """The negatives' part of the queries' gradients."""
        self.to_queries(self.query, self.rows, self.slope, (self.negatives, 1), self.d_query)

    def learn_negatives(self) -> None:
        """The negatives' gradients, added to their rows."""
        steps = (1, self.negatives)
        self.to_negatives(self.entity, self.query, self.slope, steps, self.d_entity, ids=self.negative)


class Products:
    """Dot products of each chunk's queries and negatives, in the precision that torch has (neural.vectors.matmul).

    Example:
        >>> ids, n = torch.zeros(1, 2, dtype=torch.int32), 3
        >>> of = Products(torch.ones(4, 5), ids, torch.ones(n, 5), torch.ones(n, 2), torch.zeros(4, 5))
        >>> of.lay_out()
        >>> of.compare()
        >>> of.out[0, 0, 0]
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
        self.of_chunk, self.d_of_chunk = (x.view(chunks, negatives, width) for x in (self.rows, self.d_rows))
        self.out = torch.zeros(1, *self.slope.shape, device=entity.device)
        self.d_query = torch.zeros(1, *query.shape, device=entity.device)

    def lay_out(self) -> None:
        """The negatives' rows, one after the other."""
        torch.index_select(self.entity, 0, self.ids, out=self.rows)

    def compare(self) -> None:
        """The products."""
        torch.bmm(self.query, self.of_chunk.transpose(1, 2), out=self.out[0])

    def learn_queries(self) -> None:
        """The negatives' part of the queries' gradients."""
        torch.bmm(self.slope, self.of_chunk, out=self.d_query.view(self.query.shape))

    def learn_negatives(self) -> None:
        """The negatives' gradients, added to their rows."""
        torch.bmm(self.slope.transpose(1, 2), self.query, out=self.d_of_chunk)
        self.d_entity.index_add_(0, self.ids, self.d_rows)
