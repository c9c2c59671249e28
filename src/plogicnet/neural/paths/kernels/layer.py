"""A layer of the path model by Triton kernels, with its gradient."""

from typing import Any

import torch
import triton
from torch import Tensor

from plogicnet.neural.paths.edges import Edges, PathQueries
from plogicnet.neural.paths.kernels.layout import MAX_PIECE, Layout
from plogicnet.neural.paths.kernels.messages import combine_pieces, message_gradients, reduce_messages
from plogicnet.neural.paths.kernels.update import update_gradients, update_states
from plogicnet.neural.paths.layer import LayerInputs

QUERY_MULTIPLE = 16
"""The number of queries must be a multiple of this."""
FORWARD = {"BLOCK": 16, "UNROLL": 2, "num_warps": 2}
COMBINE = {"BLOCK": 16, "num_warps": 4}
BACKWARD = {"BLOCK": 8, "num_warps": 1}
ROWS, UPDATE_WARPS = 64, 4
MAX_COPIES, COPY_BYTES = 32, 2**24
"""Maximum number and size of the copies of the gradient of the relation vectors; see `message_gradients`."""
HIDE_CODES = {"nothing": 0, "edge": 1, "pair": 2}


class FusedLayer:
    """The layer of the edges of a graph; the same as `PlainLayer`, up to rounding.

    The states can be in float32 or bfloat16. Sums are in float32.
    """

    def __init__(self, edges: Edges, max_piece: int = MAX_PIECE) -> None:
        self.layout, self.n_relations = Layout.of(edges, max_piece), edges.n_relations

    def __call__(self, states: Tensor, inputs: LayerInputs, queries: PathQueries) -> Tensor:
        """Return the new states."""
        if len(queries) % QUERY_MULTIPLE:
            raise ValueError(f"the number of queries must be a multiple of {QUERY_MULTIPLE}; got {len(queries)}")
        known, answer, asked = queries.known, queries.answer, queries.relation
        ends = (known, answer, asked, queries.inverse(self.n_relations))
        return _FusedLayer.apply(  # type: ignore[no-any-return]
            states,
            inputs.boundary,
            inputs.relation_vector,
            inputs.state_map,
            inputs.statistics_map,
            inputs.bias,
            inputs.norm_scale,
            inputs.norm_shift,
            (self.layout, ends, HIDE_CODES[queries.hide], inputs.is_first, 1 / inputs.mean_log_count),
        )


class _FusedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, boundary: Tensor, vector: Tensor, *rest: Any) -> Tensor:
        """Reduce the messages, then update the states."""
        *weights, (layout, ends, hide, is_first, inverse_mean_log) = rest
        state_map, statistics_map, *vectors = weights
        n, b, d = states.shape
        save, kind, device = any(ctx.needs_input_grad), states.dtype, states.device
        vector, boundary = vector.to(kind).contiguous(), boundary.float().contiguous()
        maps = state_map.to(kind).contiguous(), statistics_map.to(kind).contiguous()
        statistics = torch.empty(n, b, 4, d, dtype=kind, device=device)
        positions = torch.empty((n if save else 0, b, 2, d), dtype=layout.position_type, device=device)
        log_count = torch.empty(n, b, device=device)
        parts = (
            torch.empty(layout.n_scratch, 4, b, d, device=device),
            torch.empty(layout.n_scratch if save else 0, 2, b, d, dtype=torch.int32, device=device),
            torch.empty(layout.n_scratch, b, device=device),
        )
        results = (statistics, positions, log_count)
        n_pieces = len(layout.pieces)
        reduce_messages[(n_pieces * (b // FORWARD["BLOCK"]),)](
            *(states, vector, boundary, layout.pieces, layout.source, layout.relation, layout.degree, *ends),
            *(*results, *parts, n_pieces, b),
            **(FORWARD | {"D": d, "HIDE": hide, "SAVE": save, "FIRST": is_first}),
        )
        if len(layout.combined):
            combine_pieces[(len(layout.combined), b // COMBINE["BLOCK"])](
                *(layout.combined, boundary, layout.degree, ends[0], *results, *parts, b),
                **(COMBINE | {"D": d, "SAVE": save}),
            )
        new_states = torch.empty_like(states)
        update_states[(triton.cdiv(n * b, ROWS),)](
            *(states, statistics, log_count, *maps, *vectors, new_states, n * b, inverse_mean_log),
            D=d,
            ROWS=ROWS,
            num_warps=UPDATE_WARPS,
        )
        ctx.save_for_backward(states, boundary, vector, *maps, *vectors, *results, *ends)
        ctx.others = (layout, hide, is_first, inverse_mean_log)
        return new_states

    @staticmethod
    def backward(ctx: Any, d_new: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients in the opposite order."""
        states, boundary, vector, *saved = ctx.saved_tensors
        weights, (statistics, positions, log_count), ends = saved[:5], saved[5:8], saved[8:]
        layout, hide, is_first, inverse_mean_log = ctx.others
        (n, b, d), kind, device = states.shape, states.dtype, states.device
        n_programs = triton.cdiv(n * b, ROWS)
        gradients = torch.empty_like(statistics)
        d_products = torch.empty(n * b, 3 * d, dtype=kind, device=device)
        d_states = torch.empty(n, b, d, device=device)
        partial = torch.empty(n_programs, 3, d, device=device)
        update_gradients[(n_programs,)](
            *(states, statistics, log_count, *weights, d_new.contiguous()),
            *(gradients, d_products, d_states, partial, n * b, inverse_mean_log),
            D=d,
            ROWS=ROWS,
            num_warps=UPDATE_WARPS,
        )
        d_norm_scale, d_norm_shift, d_bias = partial.sum(0)
        d_maps = (statistics.view(n * b, 4 * d).T @ d_products).float()
        d_state_map = (states.view(n * b, d).T @ d_products[:, :d]).float()
        n_copies = max(1, min(MAX_COPIES, COPY_BYTES // (4 * vector.numel())))
        d_vectors = torch.zeros(n_copies, *vector.shape, device=device)
        n_pieces = len(layout.run_pieces)
        message_gradients[(n_pieces * (b // BACKWARD["BLOCK"]),)](
            *(states, vector, layout.run_pieces, layout.runs, layout.destination, layout.position, *ends),
            *(gradients, positions, d_states, d_vectors, n_pieces, n_copies, len(vector), b),
            **(BACKWARD | {"D": d, "HIDE": hide, "FIRST": is_first}),
        )
        at = ends[0], torch.arange(b, device=device)
        four, is_boundary = gradients[at].float(), positions[at] == -1
        d_boundary = four[:, 0] + four[:, 1] * boundary + (four[:, 2:] * is_boundary).sum(1)
        d_statistics_map = d_maps.view(4 * d, 3, d).transpose(0, 1)
        d_weights = (d_state_map, d_statistics_map, d_bias, d_norm_scale, d_norm_shift)
        return (d_states.to(kind), d_boundary, d_vectors.sum(0), *d_weights, None)
