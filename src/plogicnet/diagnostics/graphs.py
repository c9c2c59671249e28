"""What a careful person checks in a graph before training, and what it means for the figures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from unicodedata import is_normalized, normalize

import numpy as np
from scipy import sparse

from plogicnet.diagnostics.finding import EXAMPLES, MANY, SOME, Checkup, Finding, Scale, part_of, verdict
from plogicnet.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph, TripleSet, Vocabulary
from plogicnet.graph.triples import BoolArray, FloatArray, IntArray
from plogicnet.support.errors import many

AGREEMENT, LEAST_TRIPLES = 0.9, 3
"""Two relations are duplicates from this Jaccard on; below three triples they may agree by chance."""
LEAKAGES = ("inverse leakage", "symmetric leakage")


def examine_graph(graph: KnowledgeGraph) -> Checkup:
    """Every check of a graph; one about a split that the graph does not have is left out.

    Example:
        >>> rows = [("anna", "wife", "ben"), ("cleo", "wife", "dan"), ("dan", "husband", "cleo")]
        >>> checkup = examine_graph(KnowledgeGraph.from_names(rows, test=[("ben", "husband", "anna")]))
        >>> checkup.level, checkup.to_json()["inverse_leakage"]
        ('warning', 1.0)
        >>> [finding.examples for finding in checkup.findings if finding.check == "inverse leakage"]
        [('(ben, husband, anna) as (anna, wife, ben)',)]
    """
    everything = TripleSet.of(np.concatenate([graph.split(split) for split in SPLITS]), len(graph.entities))
    findings = (
        *shared(graph),
        *_leakage(graph),
        # Splitting itself hides duplicates (WN18's hypernym and hyponym agree to 0.88 in train), so all splits count.
        _agreeing(graph, everything, reverse=False),
        _agreeing(graph, everything, reverse=True),
        _self_loops(graph, everything),
        *_unseen(graph),
        *_single(graph),
        _look_alikes(graph),
        _double_lines(graph),
    )
    leakage = {f.check.replace(" ", "_"): f.share for f in findings if f.check in LEAKAGES}
    return Checkup(graph.name, "graph", findings, leakage)


def shared(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Triples that stand in two splits.

    Example:
        >>> row = ("anna", "knows", "ben")
        >>> [finding.level for finding in shared(KnowledgeGraph.from_names([row], test=[row]))]
        ['warning']
    """
    for one, other in combinations(SPLITS, 2):
        known, asked = graph.split(one), graph.split(other)
        if not len(known) or not len(asked):
            continue
        both = asked[TripleSet.of(known, len(graph.entities)).contains(asked)]
        why = "settings are tuned on them" if one == "valid" else "they are known from training"
        means = f"{why}, so the figures on {other} are too good; take them out of {one}"
        scale = Scale("the splits are apart, as they should be", means, warning=0.0)
        check, what = f"shared {one}/{other}", f"{other} triples are in {one} as well"
        yield part_of(check, len(both), len(asked), what, scale, _texts(graph, both))


def _leakage(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Held-out triples that stand reversed in train, under another relation or under their own."""
    inverse, symmetric = LEAKAGES
    split = next((s for s in ("test", "valid") if len(graph.split(s))), None)
    if split is None:
        absent = "the graph has neither a test nor a valid split; figures on one that is made later may be helped by it"
        yield from (verdict(check, "note", None, absent, count=0) for check in LEAKAGES)
        return
    asked = graph.split(split)
    other, same, linked = _reversed(graph.observed, asked)
    none, few = "the figures owe nothing to it", "that is the most that the figures owe to it"
    seen = f"{split} triples stand reversed in train under"
    scale = Scale(none, _meaning_of_inverses(float(other.mean()), linked), SOME, MANY, few)
    examples = [_with_reverse(graph, triple) for triple in asked[other][:EXAMPLES]]
    yield part_of(inverse, int(other.sum()), len(asked), f"{seen} another relation", scale, examples)
    means = "rules of the symmetric pattern find them, so that part of the figures shows symmetry and no more"
    scale = Scale(none, means, note=MANY, few=few)
    what = f"{seen} their own relation"
    yield part_of(symmetric, int(same.sum()), len(asked), what, scale, _texts(graph, asked[same]))


def _meaning_of_inverses(share: float, linked: float) -> str:
    """What inverse leakage means, where a share of the pairs of entities is linked in train."""
    means = "a model that only learns inverses finds them, so that part of the figures shows inverses and no more"
    if share >= MANY:
        means = "a model that only learns inverses scores high, so the figures say little about reasoning"
    # In a dense graph a reverse is no sign of an inverse relation: in Nations nearly every pair is linked somehow.
    if linked >= MANY:
        means += f" (but {100 * linked:.0f} % of all pairs of entities are linked in train, so some of it is density)"
    return means


def _reversed(train: TripleSet, asked: IntArray) -> tuple[BoolArray, BoolArray, float]:
    """Which triples' reverse is in train under another and under the same relation; the share of pairs linked there."""
    pairs, counts = np.unique(_ends(train.triples, train.entities), return_counts=True)
    wanted = _ends(asked, train.entities, reverse=True)
    places = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    links = np.where(pairs[places] == wanted, counts[places], 0)
    same = train.contains(asked[:, [TAIL, RELATION, HEAD]])
    return links > same, same, len(pairs) / train.entities**2


def _agreeing(graph: KnowledgeGraph, everything: TripleSet, reverse: bool) -> Finding:
    """Relations that hold between the same entities, or between the same entities the other way round."""
    pairs, agreement = _agreements(everything, reverse)
    names = graph.relations.names
    check, says = ("reverse", "each is the other's reverse") if reverse else ("duplicate", "both say the same")
    concerned = int(np.isin(everything.triples[:, RELATION], pairs).sum())
    means = f"in {many(len(pairs), 'pair')} of relations {says}, so one gives the other away; keep one of each pair"
    scale = Scale("no relation stands in for another", means, warning=MANY)
    what = f"triples have a relation that agrees with another{' the other way round' if reverse else ''}"
    shown = zip(pairs[:EXAMPLES].tolist(), agreement[:EXAMPLES].tolist(), strict=True)
    examples = [f"{names[one]} and {names[other]} ({100 * share:.0f} %)" for (one, other), share in shown]
    finding = part_of(f"{check} relations", concerned, len(everything), what, scale, examples)
    return replace(finding, count=len(pairs))


def _agreements(facts: TripleSet, reverse: bool) -> tuple[IntArray, FloatArray]:
    """The pairs of relations with nearly the same (head, tail), one perhaps reversed; their Jaccard, highest first."""
    uses = np.bincount(facts.triples[:, RELATION])
    triples = facts.triples[uses[facts.triples[:, RELATION]] >= LEAST_TRIPLES]
    ends = [_ends(triples, facts.entities, reverse=turned) for turned in (False, reverse)]
    distinct, columns = np.unique(np.concatenate(ends), return_inverse=True)
    ones, shape = np.ones(len(triples), dtype=np.int64), (len(uses), len(distinct))
    one, other = (sparse.csr_array((ones, (triples[:, RELATION], at)), shape=shape) for at in np.split(columns, 2))
    # The product has entries only where two relations share a pair of entities, so the others cost nothing.
    shared = (one @ other.T).tocoo()
    pairs = np.stack(shared.coords, axis=1).astype(np.int64)
    jaccard = shared.data / (uses[pairs].sum(axis=1) - shared.data)
    found = np.flatnonzero((pairs[:, 0] < pairs[:, 1]) & (jaccard >= AGREEMENT))
    found = found[np.lexsort((pairs[found, 1], pairs[found, 0], -jaccard[found]))]
    return pairs[found], jaccard[found]


def _self_loops(graph: KnowledgeGraph, everything: TripleSet) -> Finding:
    """Triples whose head is their tail."""
    triples = everything.triples
    loops = np.bincount(triples[triples[:, HEAD] == triples[:, TAIL]][:, RELATION], minlength=len(graph.relations))
    relations = int(np.count_nonzero(loops))
    most = np.argsort(-loops, kind="stable")[: min(EXAMPLES, relations)].tolist()
    means = f"they are of {many(relations, 'relation')}; the irreflexive constraint ranks them last where they are rare"
    scale = Scale("the irreflexive constraint holds for every relation", means)
    examples = [f"{graph.relations.names[r]} ({loops[r]:,})" for r in most]
    what = "triples lead from an entity to itself"
    return part_of("self-loops", int(loops.sum()), len(triples), what, scale, examples)


def _unseen(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Entities and relations that are held out but not in train."""
    total = len(graph.valid) + len(graph.test)
    if not total:
        return
    for vocabulary, columns, noun in (
        (graph.entities, [HEAD, TAIL], "entities"),
        (graph.relations, [RELATION], "relations"),
    ):
        found, concerned = _new_names(graph, columns, len(vocabulary))
        where = " and ".join(f"{count:,} in {split}" for split, count in concerned.items() if count)
        names = many(len(found), vocabulary.kind, noun)
        means = f"{where}, of {names}; nothing was learned about them, so these triples rank as by chance"
        scale = Scale("train has something about each", means, warning=MANY)
        what = f"valid and test triples have {noun} that train does not"
        examples = vocabulary.take(found[:EXAMPLES])
        yield part_of(f"unseen {noun}", sum(concerned.values()), total, what, scale, examples)


def _new_names(graph: KnowledgeGraph, columns: list[int], size: int) -> tuple[IntArray, dict[str, int]]:
    """The numbers in some columns of valid and test that train lacks; how many triples of each split have one."""
    fresh, held_out = np.ones(size, dtype=bool), np.zeros(size, dtype=bool)
    fresh[graph.train[:, columns]] = False
    concerned = {}
    for split in SPLITS[1:]:
        numbers = graph.split(split)[:, columns]
        held_out[numbers] = True
        concerned[split] = int(fresh[numbers].any(axis=1).sum())
    return np.flatnonzero(fresh & held_out), concerned


def _single(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Relations and entities of which train has a single triple."""
    heads, relations, tails = graph.train.T
    uses = np.bincount(relations, minlength=len(graph.relations))
    # a self-loop is one triple of its entity, not two
    degrees = np.bincount(np.concatenate([heads, tails[tails != heads]]), minlength=len(graph.entities))
    none = "each has more to learn from, or is not in train at all"
    for noun, counts, vocabulary, note, why in (
        ("relations", uses, graph.relations, 0.0, "a rule about such a relation is a guess"),
        ("entities", degrees, graph.entities, MANY, "what is predicted for them is a guess"),
    ):
        rare = np.flatnonzero(counts == 1)
        scale = Scale(none, f"one triple is little to learn from, and {why}", note)
        check, what = f"{noun} with one triple", f"{noun} have a single triple in train"
        yield part_of(check, len(rare), len(vocabulary), what, scale, vocabulary.take(rare[:EXAMPLES]))


def _look_alikes(graph: KnowledgeGraph) -> Finding:
    """Names of different entities, or of different relations, that read the same."""
    groups = [group for names in (graph.entities, graph.relations) for group in _alike(names)]
    means = "each is an entity or a relation of its own; where one is meant, write it in one way in the files"
    scale = Scale("each name reads like no other", means, warning=SOME)
    what = "names differ from another by nothing but spaces or the way that accents are encoded"
    count, total = sum(map(len, groups)), len(graph.entities) + len(graph.relations)
    examples = [_in_quotes(group[:EXAMPLES]) for group in groups[:EXAMPLES]]
    return part_of("look-alike names", count, total, what, scale, examples)


def _alike(vocabulary: Vocabulary) -> list[list[str]]:
    """The names that are the same once tidied, the tidy one first.

    Of two such names one at least is untidy, so that tidy names, nearly all as a rule, are only looked up.
    """
    untidy: dict[str, list[str]] = {}
    for name in vocabulary.names:
        tidy = " ".join(normalize("NFC", name).split())
        if tidy != name:
            untidy.setdefault(tidy, []).append(name)
    groups = ([tidy, *names] if tidy in vocabulary else names for tidy, names in untidy.items())
    return [group for group in groups if len(group) > 1]


def _in_quotes(names: Sequence[str]) -> str:
    """Names as Python writes them; where their encoding differs, and no eye would see it, letter by letter."""
    return " and ".join(map(repr if all(is_normalized("NFC", name) for name in names) else ascii, names))


def _double_lines(graph: KnowledgeGraph) -> Finding:
    """Lines that were dropped when the graph was read."""
    lines = sum(len(graph.split(split)) for split in SPLITS) + graph.duplicates
    means = "they were dropped when the graph was read; published counts of lines are higher by them"
    scale = Scale("each triple was given once", means)
    return part_of("double lines", graph.duplicates, lines, "lines repeat another of their split", scale)


def _ends(triples: IntArray, entities: int, reverse: bool = False) -> IntArray:
    """One number for each (head, tail), or (tail, head)."""
    first, second = (TAIL, HEAD) if reverse else (HEAD, TAIL)
    ends: IntArray = triples[:, first] * entities + triples[:, second]
    return ends


def _text(graph: KnowledgeGraph, triple: IntArray) -> str:
    return f"({', '.join(graph.names(triple))})"


def _texts(graph: KnowledgeGraph, triples: IntArray) -> list[str]:
    """The first triples, as examples."""
    return [_text(graph, triple) for triple in triples[:EXAMPLES]]


def _with_reverse(graph: KnowledgeGraph, triple: IntArray) -> str:
    """The triple and the first training triple that is its reverse under another relation."""
    head, relation, tail = triple.tolist()
    train = graph.train
    reverse = (train[:, HEAD] == tail) & (train[:, TAIL] == head) & (train[:, RELATION] != relation)
    return f"{_text(graph, triple)} as {_text(graph, train[np.argmax(reverse)])}"
