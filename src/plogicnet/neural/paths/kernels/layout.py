"""The edges in the two orders that the kernels read, cut into pieces of similar size."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plogicnet.graph import IntArray
from plogicnet.neural.paths.edges import Edges

MAX_PIECE = 256
"""Maximum number of edges that a program of a kernel reads, so that entities with many edges do not take longest."""


@dataclass(frozen=True)
class Layout:
    """The edges sorted by destination, for messages, and by source and relation, for their gradients.

    Consecutive edges with the same source and relation are a run. All edges of a run send the same message.

    Attributes:
        source: the source of each edge, sorted by destination.
        relation: its relation.
        degree: the number of edges to each entity.
        pieces: rows (destination, first edge, last edge + 1, scratch row or -1, position of the first edge among the
            edges of its destination). Entities with more than MAX_PIECE edges have several pieces, whose results are
            combined from scratch rows.
        combined: rows (destination, first scratch row, last scratch row + 1).
        n_scratch: the number of scratch rows.
        destination: the destination of each edge, sorted by source and relation.
        position: its position among the edges of its destination.
        runs: rows (relation, first edge, last edge + 1).
        run_pieces: rows (source, first run, last run + 1, 1 if it is the only piece of its source).
        position_type: the type of positions.
    """

    source: Tensor
    relation: Tensor
    degree: Tensor
    pieces: Tensor
    combined: Tensor
    n_scratch: int
    destination: Tensor
    position: Tensor
    runs: Tensor
    run_pieces: Tensor
    position_type: torch.dtype

    def __deepcopy__(self, memo: object) -> "Layout":
        return self  # immutable

    @classmethod
    def of(cls, edges: Edges, max_piece: int = MAX_PIECE) -> "Layout":
        """Sort and cut the edges."""
        device, n = edges.source.device, edges.n_entities
        source, relation, destination = (x.cpu().numpy() for x in (edges.source, edges.relation, edges.destination))
        starts = np.searchsorted(destination, np.arange(n + 1))
        pieces, combined = _cut_destinations(starts, max_piece)
        position = np.arange(len(source)) - starts[destination]
        order = np.lexsort((destination, relation, source))
        runs, run_pieces = _cut_runs(source[order], relation[order], max_piece)

        def tensor(array: IntArray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int32)).to(device)

        degree = np.diff(starts)
        return cls(
            source=tensor(source),
            relation=tensor(relation),
            degree=tensor(degree),
            pieces=tensor(pieces),
            combined=tensor(combined),
            n_scratch=int(combined[:, 2].max(initial=0)),
            destination=tensor(destination[order]),
            position=tensor(position[order]),
            runs=tensor(runs),
            run_pieces=tensor(run_pieces),
            position_type=torch.int16 if degree.max(initial=0) <= np.iinfo(np.int16).max else torch.int32,
        )


def _cut(sizes: IntArray, max_piece: int) -> tuple[IntArray, IntArray]:
    """Cut ranges of these sizes into pieces. Return the range of each piece and its number within the range.

    An empty range has one empty piece.
    """
    n_pieces = np.maximum(1, -(-sizes // max_piece))
    owner = np.repeat(np.arange(len(sizes)), n_pieces)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)


def _cut_destinations(starts: IntArray, max_piece: int) -> tuple[IntArray, IntArray]:
    """Return `pieces` and `combined` of a layout, given the first edge of each destination. Large pieces are first."""
    owner, number = _cut(np.diff(starts), max_piece)
    first = starts[owner] + number * max_piece
    last = np.minimum(first + max_piece, starts[owner + 1])
    n_pieces = np.bincount(owner, minlength=len(starts) - 1)
    is_cut = n_pieces[owner] > 1
    scratch = np.where(is_cut, np.cumsum(is_cut) - 1, -1)
    pieces = np.stack([owner, first, last, scratch, number * max_piece], 1)
    cut = np.flatnonzero(n_pieces > 1)
    ends = np.cumsum(n_pieces[cut])
    combined = np.stack([cut, ends - n_pieces[cut], ends], 1)
    return pieces[np.argsort(first - last, kind="stable")], combined


def _cut_runs(source: IntArray, relation: IntArray, max_piece: int) -> tuple[IntArray, IntArray]:
    """Return `runs` and `run_pieces` of a layout, given the edges sorted by source and relation."""
    is_first = np.r_[True, (source[1:] != source[:-1]) | (relation[1:] != relation[:-1])]
    starts = np.append(np.flatnonzero(is_first), len(source))
    owner, number = _cut(np.diff(starts), max_piece)
    first = starts[owner] + number * max_piece
    last = np.minimum(first + max_piece, starts[owner + 1])
    run_source = source[first]
    # a piece ends where its source ends, or with the run in which its edges reach a multiple of max_piece
    first_of_source = np.searchsorted(source, run_source)
    part = (first - first_of_source) // max_piece
    is_new = np.r_[True, (run_source[1:] != run_source[:-1]) | (part[1:] != part[:-1])]
    piece_starts = np.append(np.flatnonzero(is_new), len(first))
    piece_source = run_source[piece_starts[:-1]]
    is_only = np.bincount(piece_source)[piece_source] == 1
    pieces = np.stack([piece_source, piece_starts[:-1], piece_starts[1:], is_only], 1)
    sizes = last[piece_starts[1:] - 1] - first[piece_starts[:-1]]
    return np.stack([relation[first], first, last], 1), pieces[np.argsort(-sizes, kind="stable")]
