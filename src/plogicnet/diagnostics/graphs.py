"""Checks of a graph before training."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from unicodedata import is_normalized, normalize

import numpy as np
from scipy import sparse

from plogicnet.diagnostics.finding import (
    MAX_EXAMPLES,
    ONE_PERCENT,
    TEN_PERCENT,
    DiagnosticReport,
    Finding,
    Thresholds,
    make_finding,
    share_finding,
)
from plogicnet.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph, TripleSet, Vocabulary
from plogicnet.graph.triples import BoolArray, FloatArray, IntArray
from plogicnet.support.errors import pluralize

MIN_JACCARD, MIN_TRIPLES = 0.9, 3
"""Minimum Jaccard index of redundant relations, and their minimum number of triples.

Relations with fewer triples can have the same pairs of entities by chance.
"""
LEAKAGES = ("inverse leakage", "symmetric leakage")
"""The checks for held-out triples that are reversed in train."""


def examine_graph(graph: KnowledgeGraph) -> DiagnosticReport:
    """Run all checks of a graph. Checks that need a missing split are skipped.

    Example:
        >>> rows = [("anna", "wife", "ben"), ("cleo", "wife", "dan"), ("dan", "husband", "cleo")]
        >>> report = examine_graph(KnowledgeGraph.from_names(rows, test=[("ben", "husband", "anna")]))
        >>> report.level, report.to_json()["inverse_leakage"]
        ('warning', 1.0)
        >>> [finding.examples for finding in report.findings if finding.check == "inverse leakage"]
        [('test (ben, husband, anna) – train (anna, wife, ben)',)]
    """
    all_triples = TripleSet.of(np.concatenate([graph.split(split) for split in SPLITS]), len(graph.entities))
    findings = (
        *overlaps(graph),
        *_leakage(graph),
        # Check all splits: in train, redundant relations differ more (WN18's hypernym and hyponym: Jaccard 0.88).
        _redundant_relations(graph, all_triples, reverse=False),
        _redundant_relations(graph, all_triples, reverse=True),
        _self_loops(graph, all_triples),
        *_unseen(graph),
        *_rare(graph),
        _similar_names(graph),
        _duplicate_lines(graph),
    )
    leakage = {f.check.replace(" ", "_"): f.share for f in findings if f.check in LEAKAGES}
    return DiagnosticReport(graph.name, "graph", findings, leakage)


def overlaps(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Check for triples that are in two splits.

    Example:
        >>> row = ("anna", "knows", "ben")
        >>> [finding.level for finding in overlaps(KnowledgeGraph.from_names([row], test=[row]))]
        ['warning']
    """
    for one, other in combinations(SPLITS, 2):
        first, second = graph.split(one), graph.split(other)
        if not len(first) or not len(second):
            continue
        both = second[TripleSet.of(first, len(graph.entities)).contains(second)]
        cause = "Settings are tuned on them" if one == "valid" else "The model is trained on them"
        meaning = f"{cause}, so the metrics on {other} are too good. Remove them from {one}."
        thresholds = Thresholds("The splits do not overlap.", meaning, warning=0.0)
        check, description = f"shared {one}/{other}", f"{other} triples are also in {one}"
        yield share_finding(check, len(both), len(second), description, thresholds, _texts(graph, both))


def _leakage(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Check for held-out triples (h, r, t) with a triple (t, r', h) in train; r' is another or the same relation."""
    inverse, symmetric = LEAKAGES
    split = next((s for s in ("test", "valid") if len(graph.split(s))), None)
    if split is None:
        absent = (
            "the graph has neither a test nor a valid split. Leakage can make the metrics on a later split too good."
            " Check the graph again after splitting."
        )
        yield from (make_finding(check, "note", None, absent, count=0) for check in LEAKAGES)
        return
    held_out = graph.split(split)
    other, same, linked = _reversed(graph.observed, held_out)
    none, few = "Leakage does not affect the metrics.", "Leakage changes the metrics by at most this share."
    prefix = f"{split} triples occur in train with head and tail swapped, under"
    thresholds = Thresholds(none, _meaning_of_inverses(float(other.mean()), linked), ONE_PERCENT, TEN_PERCENT, few)
    examples = [_with_reverse(graph, split, triple) for triple in held_out[other][:MAX_EXAMPLES]]
    yield share_finding(inverse, int(other.sum()), len(held_out), f"{prefix} another relation", thresholds, examples)
    meaning = (
        "Symmetric rules find them, so this part of the metrics shows only symmetry. After training, look at the"
        " metrics by relation (`plogicnet evaluate RUN --json`, or the report)."
    )
    thresholds = Thresholds(none, meaning, note=TEN_PERCENT, if_few=few)
    description = f"{prefix} the same relation"
    yield share_finding(
        symmetric, int(same.sum()), len(held_out), description, thresholds, _texts(graph, held_out[same])
    )


def _meaning_of_inverses(share: float, linked: float) -> str:
    """Explain inverse leakage.

    Args:
        share: the share of held-out triples that are reversed in train under another relation.
        linked: the share of all pairs of entities that are linked in train.
    """
    meaning = (
        "A model that learns only inverse relations finds them, so this part of the metrics shows only that inverses"
        " were learned. Remove one relation of each inverse pair before splitting."
    )
    if share >= TEN_PERCENT:
        meaning = (
            "A model that learns only inverse relations has high metrics, so the metrics do not measure reasoning."
            " Remove one relation of each inverse pair before splitting."
        )
    # In a dense graph such as Nations, a triple can have a reverse without an inverse relation.
    if linked >= TEN_PERCENT:
        meaning += (
            f" The graph is dense ({100 * linked:.0f}% of all pairs of entities are linked in train), so some of this"
            " is chance."
        )
    return meaning


def _reversed(train: TripleSet, triples: IntArray) -> tuple[BoolArray, BoolArray, float]:
    """Return whether each triple is reversed in train under another relation, and under the same relation.

    The third value is the share of all pairs of entities that are linked in train.
    """
    pairs, counts = np.unique(_pair_keys(train.triples, train.entities), return_counts=True)
    reverse = _pair_keys(triples, train.entities, reverse=True)
    rows = np.minimum(np.searchsorted(pairs, reverse), len(pairs) - 1)
    links = np.where(pairs[rows] == reverse, counts[rows], 0)
    same = train.contains(triples[:, [TAIL, RELATION, HEAD]])
    return links > same, same, len(pairs) / train.entities**2


def _redundant_relations(graph: KnowledgeGraph, all_triples: TripleSet, reverse: bool) -> Finding:
    """Check for relations that connect the same entities, in the same or the opposite direction."""
    pairs, jaccard = _redundant_pairs(all_triples, reverse)
    names = graph.relations.names
    name, property_ = (
        ("reverse", "each is the reverse of the other") if reverse else ("duplicate", "both connect the same entities")
    )
    affected = int(np.isin(all_triples.triples[:, RELATION], pairs).sum())
    meaning = (
        f"In {pluralize(len(pairs), 'pair')} of relations, {property_}, so one predicts the other."
        " Keep one relation of each pair."
    )
    thresholds = Thresholds("No relation is redundant.", meaning, warning=TEN_PERCENT)
    description = f"triples have a relation that {'reverses' if reverse else 'duplicates'} another"
    shown = zip(pairs[:MAX_EXAMPLES].tolist(), jaccard[:MAX_EXAMPLES].tolist(), strict=True)
    examples = [f"{names[one]} and {names[other]} ({100 * share:.0f}%)" for (one, other), share in shown]
    finding = share_finding(f"{name} relations", affected, len(all_triples), description, thresholds, examples)
    return replace(finding, count=len(pairs))


def _redundant_pairs(facts: TripleSet, reverse: bool) -> tuple[IntArray, FloatArray]:
    """Return pairs of relations with nearly the same (head, tail) pairs, and their Jaccard indices, highest first.

    With `reverse`, the pairs of one relation are compared with the (tail, head) pairs of the other.
    """
    uses = np.bincount(facts.triples[:, RELATION])
    triples = facts.triples[uses[facts.triples[:, RELATION]] >= MIN_TRIPLES]
    keys = [_pair_keys(triples, facts.entities, reverse=r) for r in (False, reverse)]
    distinct, columns = np.unique(np.concatenate(keys), return_inverse=True)
    ones, shape = np.ones(len(triples), dtype=np.int64), (len(uses), len(distinct))
    one, other = (sparse.csr_array((ones, (triples[:, RELATION], c)), shape=shape) for c in np.split(columns, 2))
    # The sparse product has entries only for relations that share a pair of entities.
    shared = (one @ other.T).tocoo()
    pairs = np.stack(shared.coords, axis=1).astype(np.int64)
    jaccard = shared.data / (uses[pairs].sum(axis=1) - shared.data)
    rows = np.flatnonzero((pairs[:, 0] < pairs[:, 1]) & (jaccard >= MIN_JACCARD))
    rows = rows[np.lexsort((pairs[rows, 1], pairs[rows, 0], -jaccard[rows]))]
    return pairs[rows], jaccard[rows]


def _self_loops(graph: KnowledgeGraph, all_triples: TripleSet) -> Finding:
    """Check for triples that connect an entity with itself."""
    triples = all_triples.triples
    loops = np.bincount(triples[triples[:, HEAD] == triples[:, TAIL]][:, RELATION], minlength=len(graph.relations))
    relations = int(np.count_nonzero(loops))
    most = np.argsort(-loops, kind="stable")[: min(MAX_EXAMPLES, relations)].tolist()
    meaning = (
        f"They belong to {pluralize(relations, 'relation')}. In a relation with few self-loops, the irreflexive"
        " constraint ranks unknown self-loops last. Set rules.irreflexive=false to disable it."
    )
    thresholds = Thresholds("The irreflexive constraint fits every relation.", meaning)
    examples = [f"{graph.relations.names[r]} ({loops[r]:,})" for r in most]
    description = "triples connect an entity with itself"
    return share_finding("self-loops", int(loops.sum()), len(triples), description, thresholds, examples)


def _unseen(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Check for entities and relations of valid and test that are not in train."""
    total = len(graph.valid) + len(graph.test)
    if not total:
        return
    for vocabulary, columns, noun in (
        (graph.entities, [HEAD, TAIL], "entities"),
        (graph.relations, [RELATION], "relations"),
    ):
        unseen, affected = _unseen_ids(graph, columns, len(vocabulary))
        splits = " and ".join(f"{count:,} {split}" for split, count in affected.items() if count)
        names = pluralize(len(unseen), f"{vocabulary.kind} is", f"{noun} are")
        triples = "triple" if sum(affected.values()) == 1 else "triples"
        meaning = (
            f"{names} unseen, in {splits} {triples}. The model learns nothing about these {noun}, so the ranks"
            " are random. Move triples about them to train."
        )
        thresholds = Thresholds(f"Train contains all {noun}.", meaning, warning=TEN_PERCENT)
        description = f"valid and test triples have {noun} that are not in train"
        examples = vocabulary.take(unseen[:MAX_EXAMPLES])
        yield share_finding(f"unseen {noun}", sum(affected.values()), total, description, thresholds, examples)


def _unseen_ids(graph: KnowledgeGraph, columns: list[int], size: int) -> tuple[IntArray, dict[str, int]]:
    """Return the ids that occur in some columns of valid and test but not of train, and their triples per split.

    There are `size` ids in total.
    """
    unseen, held_out = np.ones(size, dtype=bool), np.zeros(size, dtype=bool)
    unseen[graph.train[:, columns]] = False
    affected = {}
    for split in SPLITS[1:]:
        ids = graph.split(split)[:, columns]
        held_out[ids] = True
        affected[split] = int(unseen[ids].any(axis=1).sum())
    return np.flatnonzero(unseen & held_out), affected


def _rare(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Check for relations and entities with a single training triple."""
    heads, relations, tails = graph.train.T
    uses = np.bincount(relations, minlength=len(graph.relations))
    # a self-loop counts once for its entity
    degrees = np.bincount(np.concatenate([heads, tails[tails != heads]]), minlength=len(graph.entities))
    none = "All have more triples, or are not in train."
    for noun, counts, vocabulary, note, effect in (
        ("relations", uses, graph.relations, 0.0, "rules about these relations are guesses"),
        ("entities", degrees, graph.entities, TEN_PERCENT, "predictions about these entities are guesses"),
    ):
        rare = np.flatnonzero(counts == 1)
        thresholds = Thresholds(
            none, f"One triple is too little to learn from, so {effect}. Add facts about them to train.", note
        )
        check, description = f"{noun} with one triple", f"{noun} have a single triple in train"
        yield share_finding(
            check, len(rare), len(vocabulary), description, thresholds, vocabulary.take(rare[:MAX_EXAMPLES])
        )


def _similar_names(graph: KnowledgeGraph) -> Finding:
    """Check for different entities or relations with names that look the same."""
    groups = [group for vocabulary in (graph.entities, graph.relations) for group in _groups_of_similar(vocabulary)]
    meaning = (
        "Each is treated as an entity or relation of its own. If two mean the same thing, use one spelling in the"
        " files."
    )
    thresholds = Thresholds("All names look different.", meaning, warning=ONE_PERCENT)
    description = "names differ from another name only in white space or Unicode normalisation"
    count, total = sum(map(len, groups)), len(graph.entities) + len(graph.relations)
    examples = [_in_quotes(group[:MAX_EXAMPLES]) for group in groups[:MAX_EXAMPLES]]
    return share_finding("look-alike names", count, total, description, thresholds, examples)


def _groups_of_similar(vocabulary: Vocabulary) -> list[list[str]]:
    """Return groups of names that are equal after normalisation. The normalised name is first if it exists.

    Only names that are not normalised are collected, because nearly all names are normalised.
    """
    variants: dict[str, list[str]] = {}
    for name in vocabulary.names:
        normal = " ".join(normalize("NFC", name).split())
        if normal != name:
            variants.setdefault(normal, []).append(name)
    groups = ([normal, *names] if normal in vocabulary else names for normal, names in variants.items())
    return [group for group in groups if len(group) > 1]


def _in_quotes(names: Sequence[str]) -> str:
    """Return names as Python literals; with escapes if one is not in Unicode normal form NFC, so that they differ."""
    return " and ".join(map(repr if all(is_normalized("NFC", name) for name in names) else ascii, names))


def _duplicate_lines(graph: KnowledgeGraph) -> Finding:
    """Check for duplicate lines, which were dropped when the graph was read."""
    lines = sum(len(graph.split(split)) for split in SPLITS) + graph.duplicates
    meaning = "They were dropped, so the graph has fewer triples than the files have lines. No action is needed."
    thresholds = Thresholds("Every triple occurs once per split.", meaning)
    return share_finding(
        "duplicate lines", graph.duplicates, lines, "lines repeat a line of the same split", thresholds
    )


def _pair_keys(triples: IntArray, entities: int, reverse: bool = False) -> IntArray:
    """Return one key per (head, tail), or per (tail, head) with `reverse`."""
    first, second = (TAIL, HEAD) if reverse else (HEAD, TAIL)
    keys: IntArray = triples[:, first] * entities + triples[:, second]
    return keys


def _text(graph: KnowledgeGraph, triple: IntArray) -> str:
    return f"({', '.join(graph.names(triple))})"


def _texts(graph: KnowledgeGraph, triples: IntArray) -> list[str]:
    """Return the first `MAX_EXAMPLES` triples as text."""
    return [_text(graph, triple) for triple in triples[:MAX_EXAMPLES]]


def _with_reverse(graph: KnowledgeGraph, split: str, triple: IntArray) -> str:
    """Return a triple of a split and the first reverse of it in train under another relation, as text."""
    head, relation, tail = triple.tolist()
    train = graph.train
    reverse = (train[:, HEAD] == tail) & (train[:, TAIL] == head) & (train[:, RELATION] != relation)
    return f"{split} {_text(graph, triple)} – train {_text(graph, train[np.argmax(reverse)])}"
