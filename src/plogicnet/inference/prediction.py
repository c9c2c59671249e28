"""What a trained model answers: the best answers to queries, and all that a graph is missing."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special

from plogicnet.evaluation.candidates import Queries
from plogicnet.evaluation.orders import ByProbability
from plogicnet.evaluation.top import top_k
from plogicnet.graph import HEAD, OPEN, RELATION, SIDES, TAIL, IntArray, KnowledgeGraph, Side, TripleSet, triple_keys
from plogicnet.inference.fitted import Fitted, Judged
from plogicnet.support import memory
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, silent

AT_ONCE = 1 << 19
"""So many candidates are scored, and at most so many judged, at once, where memory allows it."""
CANDIDATE_BYTES = 500
"""What one takes, were all of them judged and written."""
MARGIN = 16
"""So many more than asked for are judged: all-with-all kernels round differently from single scores."""
SLACK = 1e-3
"""A candidate's score may be so much too low, absolutely and relatively, and it is judged all the same."""
ALMOST_ONE = 1 - 2**-53
"""The highest probability below one."""


def at_once() -> int:
    """How many candidates are taken together, by what is free.

    Example:
        >>> at_once() <= AT_ONCE
        True
    """
    return max(1, min(AT_ONCE, memory.free_bytes() // 2 // CANDIDATE_BYTES))


def query_of(graph: KnowledgeGraph, head: str | None, relation: str | None, tail: str | None) -> IntArray:
    """A query in numbers, as one row; what is not given is open.

    Example:
        >>> query_of(KnowledgeGraph.from_names([("anna", "knows", "ben")]), "anna", "knows", None)
        array([[ 0,  0, -1]])
    """
    names = (head, relation, tail)
    if names.count(None) > 1:
        raise InputError("leave one of head, relation and tail open, not more")
    vocabularies = (graph.entities, graph.relations, graph.entities)
    numbers = [OPEN if name is None else v.id(name) for name, v in zip(names, vocabularies, strict=True)]
    return np.array([numbers], dtype=np.int64)


def answers(
    f: Fitted,
    queries: IntArray,
    top: int = 10,
    include_known: bool = False,
    batch_memory_mb: int = 0,
    progress: Progress = silent,
) -> Iterator[tuple[IntArray, Judged]]:
    """The most probable answers to each query (a triple with one part OPEN), some queries at a time, in their order.

    Of all entities the best by one all-with-all comparison are judged; of relations, all are.
    """
    if top < 1:
        raise InputError(f"top: {top} answers cannot be given; ask for 1 or more")
    if len(queries) and np.any((queries == OPEN).sum(axis=1) != 1):
        raise InputError("a query has exactly one open part of head, relation and tail")
    k = min(top + MARGIN, len(f.graph.entities))
    widest = max(k, len(f.graph.relations) * bool(np.any(queries[:, RELATION] == OPEN)))
    step = max(1, at_once() // widest)
    with progress("answering, queries", len(queries)) as advance:
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            found = [_relations(f, part, include_known)]
            found += [_entities(f, part, side, k, include_known, batch_memory_mb) for side in SIDES]
            owner, triples = (np.concatenate(columns) for columns in zip(*found, strict=True))
            judged = f.judged(triples)
            order = judged.order(f.ties, owner)
            owner = owner[order]
            first = np.arange(len(owner)) - np.searchsorted(owner, owner) < top
            yield start + owner[first], judged.take(order[first])
            advance(len(part))


def _relations(f: Fitted, queries: IntArray, include_known: bool) -> tuple[IntArray, IntArray]:
    """Every relation as an answer to those queries that ask for one: the query's number, and the triple."""
    owner = np.flatnonzero(queries[:, RELATION] == OPEN)
    n = len(f.graph.relations)
    triples = np.repeat(queries[owner], n, axis=0)
    triples[:, RELATION] = np.tile(np.arange(n), len(owner))
    owner = np.repeat(owner, n)
    if not include_known:
        new = ~f.graph.observed.contains(triples)
        owner, triples = owner[new], triples[new]
    return owner, triples


def _entities(
    f: Fitted, queries: IntArray, side: Side, k: int, include_known: bool, batch_memory_mb: int
) -> tuple[IntArray, IntArray]:
    """The k best answers to those queries that ask for an entity on a side, as the kernel has them."""
    asked, known = (HEAD, TAIL) if side == "head" else (TAIL, HEAD)
    owner = np.flatnonzero(queries[:, asked] == OPEN)
    part = queries[owner]
    order, asking = ByProbability(f.calibration, f.ties), Queries(part[:, known], part[:, RELATION], side)
    facts = None if include_known else f.known[side]
    best = top_k(f.outcome.neural, f.rules, order, asking, k, facts, batch_memory_mb)
    rows, places = np.nonzero(best >= 0)
    triples = part[rows]
    triples[:, asked] = best[rows, places]
    return owner[rows], triples


@dataclass(frozen=True)
class Ends:
    """Where one relation's missing facts are looked for.

    Attributes:
        heads: each is asked with every tail.
        tails: see heads.
        concluded: the heads of the triples that rules conclude, one for each.
    """

    relation: int
    heads: IntArray
    tails: IntArray
    concluded: IntArray

    @property
    def size(self) -> int:
        """How many candidates there are, known facts among them."""
        return len(self.heads) * len(self.tails) + len(self.concluded)

    def pieces(self) -> Iterator[tuple[IntArray, IntArray, int]]:
        """The heads some at a time: those that are asked with every tail, all of them, and how many candidates."""
        every, counts = np.unique(np.concatenate([self.heads, self.concluded]), return_counts=True)
        asked = np.isin(every, self.heads)
        sums = np.append(0, np.cumsum(counts + asked * (len(self.tails) - 1)))
        start, most = 0, at_once()
        while start < len(every):
            stop = max(start + 1, int(np.searchsorted(sums, sums[start] + most, "right")) - 1)
            part = slice(start, stop)
            yield every[part][asked[part]], every[part], int(sums[stop] - sums[start])
            start = stop


def ends(f: Fitted, all_pairs: bool = False) -> Iterator[Ends]:
    """For each relation, the entities it has been seen with at each end, or with `all_pairs` all of them."""
    train, hidden = f.graph.train, f.outcome.rule_model.hidden
    every = np.arange(len(f.graph.entities))
    for relation in range(len(f.graph.relations)):
        facts = train[train[:, RELATION] == relation]
        heads, tails = (every, every) if all_pairs else (np.unique(facts[:, HEAD]), np.unique(facts[:, TAIL]))
        yield Ends(relation, heads, tails, hidden[hidden[:, RELATION] == relation][:, HEAD])


def completions(
    f: Fitted, at_least: Callable[[], float], all_pairs: bool = False, progress: Progress = silent
) -> Iterator[Judged]:
    """The missing facts of at least a probability, in pieces of bounded size, so that no more is ever in memory.

    They come by relation, then by head (both in the graph's order), and for each head the most probable first. The
    probability is asked for before each piece: it may rise on the way.
    """
    places = list(ends(f, all_pairs))
    with progress("completing, candidates", sum(place.size for place in places)) as advance:
        for place in places:
            for asked, heads, candidates in place.pieces():
                yield _missing(f, place, asked, heads, at_least())
                advance(candidates)


def _missing(f: Fitted, place: Ends, asked: IntArray, heads: IntArray, least: float) -> Judged:
    """The missing facts of some heads of a relation.

    What no rule reaches is sieved by its score, since the probability rises with it; what passes, and all that rules
    conclude, is judged.
    """
    owners, concluded, _ = f.hidden.lookup(heads, np.full(len(heads), place.relation))
    rows, columns = _sieved(f, place, asked, least)
    head = np.concatenate([asked[rows], heads[owners]])
    tail = np.concatenate([place.tails[columns], concluded])
    triples = np.stack([head, np.full(len(head), place.relation), tail], axis=1)
    keys = np.unique(triple_keys(triples, len(f.graph.entities)))
    keys = keys[~f.graph.observed.contains_keys(keys)]
    judged = f.judged(TripleSet.of_keys(keys, len(f.graph.entities)).triples)
    judged = judged.take(judged.probability >= least)
    return judged.take(judged.order(f.ties, judged.triples[:, HEAD]))


def _sieved(f: Fitted, place: Ends, asked: IntArray, least: float) -> tuple[IntArray, IntArray]:
    """Which pairs of the asked heads and the tails may be as probable as wanted with no rule's help."""
    c, neural = f.calibration, f.outcome.neural
    wanted = float(special.logit(min(least, ALMOST_ONE))) - c.intercept
    # whether a triple that has neither a score nor a rule is probable enough
    blank = bool(c.probability(np.array([[np.nan, 0.0, 0.0]]))[0] >= least)
    if neural is None or c.score == 0 or not len(asked) or not len(place.tails):
        rows, columns = np.indices((len(asked), len(place.tails)) if wanted <= SLACK or blank else (0, 0))
        return rows.ravel(), columns.ravel()
    lowest = wanted / c.score
    lowest -= SLACK * max(1.0, abs(lowest))
    scores = neural.score_answers(asked, np.full(len(asked), place.relation), "tail", place.tails)
    passing = scores >= lowest
    if blank:
        passing |= scores.isnan()
    rows, columns = torch.nonzero(passing).cpu().numpy().T
    return rows, columns


def complete(
    f: Fitted, min_probability: float, top: int | None = None, all_pairs: bool = False, progress: Progress = silent
) -> Judged:
    """The missing facts of at least a probability, or only the most probable of them, most probable first.

    With `top`, no more than those and a piece are in memory, and the probability that is looked for rises as they come.
    """
    if top is not None and top < 1:
        raise InputError(f"top: {top} facts cannot be given; ask for 1 or more")
    kept = [f.nothing()]

    def at_least() -> float:
        return max(min_probability, float(kept[0].probability[-1])) if len(kept[0]) == top else min_probability

    for found in completions(f, at_least, all_pairs, progress):
        kept.append(found)
        if top is not None and len(found):
            kept[:] = [most_probable(f, kept, top)]
    return most_probable(f, kept, top)


def most_probable(f: Fitted, parts: Sequence[Judged], top: int | None) -> Judged:
    """The most probable of some judged triples, in order."""
    judged = Judged.joined(parts)
    if top is not None and len(judged) > top:  # only what may be among them is put in order
        judged = judged.take(judged.probability >= np.partition(judged.probability, -top)[-top])
    return judged.take(judged.order(f.ties)[:top])


def seconds_to_score(f: Fitted, all_pairs: bool = False) -> float:
    """About how long it takes here to score all candidates of a completion, by trial on the largest relation."""
    places = list(ends(f, all_pairs))
    place = max(places, key=lambda place: place.size)
    asked = next(place.pieces(), (place.heads,))[0]
    taken = []
    for _ in range(2):  # the first warms up
        started = time.perf_counter()
        _sieved(f, place, asked, least=1.0)
        taken.append(time.perf_counter() - started)
    return min(taken) * sum(place.size for place in places) / max(1, len(asked) * len(place.tails))
