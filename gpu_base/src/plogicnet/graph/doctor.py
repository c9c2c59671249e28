"""What a careful person checks in a graph before training, and what it means for the figures."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Literal
from unicodedata import is_normalized, normalize

import numpy as np
from scipy import sparse

from plogicnet.errors import many
from plogicnet.graph.knowledge_graph import SPLITS, KnowledgeGraph
from plogicnet.graph.triples import HEAD, RELATION, TAIL, BoolArray, FloatArray, IntArray, TripleSet
from plogicnet.graph.vocabulary import Vocabulary

Level = Literal["ok", "note", "warning"]
LEVELS: tuple[Level, ...] = ("ok", "note", "warning")
SOME, MANY, NEVER = 0.01, 0.1, float("inf")
"""The shares from which a finding is worth a word, and from which it changes what the figures mean."""
AGREEMENT, LEAST_TRIPLES = 0.9, 3
"""Two relations are duplicates from this Jaccard on; below three triples they may agree by chance."""
EXAMPLES = 5


@dataclass(frozen=True)
class Finding:
    """One check: what was counted, how bad it is, and in words what it means for the figures.

    Attributes:
        check: the name of the check.
        level: "ok", "note" (worth knowing) or "warning" (the figures do not mean what they seem to).
        count: how many were found: triples, relations, entities, names, lines, or pairs of relations that agree.
        share: which part of all that is; for pairs of relations, of all triples. None where nothing could be measured.
        message: what was seen, and what it means.
        examples: up to five, by name.

    Example:
        >>> finding = Finding("self-loops", "note", 1, 0.5, "self-loops: 1 of the 2 triples", ("knows (1)",))
        >>> finding.check, finding.level
        ('self-loops', 'note')
    """

    check: str
    level: Level
    count: int
    share: float | None
    message: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkup:
    """All findings about one graph.

    Example:
        >>> checkup = Checkup("tiny", (Finding("self-loops", "ok", 0, 0.0, "self-loops: none"),))
        >>> checkup.level, checkup.to_json()["inverse_leakage"]
        ('ok', None)
    """

    graph: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst level of any finding."""
        return worst(self.findings)

    def to_json(self) -> dict[str, object]:
        """Everything as `plogicnet doctor --json` prints it, with the two leakages at the top.

        Example:
            >>> Checkup("tiny", ()).to_json()["level"]
            'ok'
        """
        shares = {finding.check: finding.share for finding in self.findings}
        return {
            "graph": self.graph,
            "level": self.level,
            "findings": [asdict(finding) | {"examples": list(finding.examples)} for finding in self.findings],
            "inverse_leakage": shares.get("inverse leakage"),
            "symmetric_leakage": shares.get("symmetric leakage"),
        }


def worst(findings: Sequence[Finding]) -> Level:
    """The worst level of any finding.

    Example:
        >>> worst([])
        'ok'
    """
    return max((finding.level for finding in findings), key=LEVELS.index, default="ok")


def examine(graph: KnowledgeGraph) -> Checkup:
    """Every check of a graph; one about a split that the graph does not have is left out.

    Example:
        >>> rows = [("anna", "wife", "ben"), ("cleo", "wife", "dan"), ("dan", "husband", "cleo")]
        >>> checkup = examine(KnowledgeGraph.from_names(rows, test=[("ben", "husband", "anna")]))
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
    return Checkup(graph.name, findings)


def _finding(
    check: str,
    count: int,
    total: int,
    what: str,
    *,
    none: str,
    means: str,
    few: str = "",
    note: float = 0.0,
    warning: float = NEVER,
    examples: Sequence[str] = (),
) -> Finding:
    """A finding about a part of a total: its level and its meaning go by the share; none at all is always fine."""
    share = count / total
    level: Level = "ok" if not count else "warning" if share >= warning else "note" if share >= note else "ok"
    part = "none" if not count else f"{count:,}" if share < 0.001 else f"{100 * share:.1f} %"
    meaning = none if not count else few if level == "ok" else means
    return Finding(check, level, count, share, f"{check}: {part} of the {total:,} {what}; {meaning}", tuple(examples))


def shared(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Triples that stand in two splits.

    Example:
        >>> row = ("anna", "knows", "ben")
        >>> [finding.level for finding in shared(KnowledgeGraph.from_names([row], test=[row]))]
        ['warning']
    """
    for one, other in combinations(SPLITS, 2):
        if not len(graph.split(one)) or not len(graph.split(other)):
            continue
        asked = graph.split(other)
        both = asked[TripleSet.of(graph.split(one), len(graph.entities)).contains(asked)]
        tuned = one == "valid"
        yield _finding(
            f"shared {one}/{other}",
            len(both),
            len(asked),
            f"{other} triples are in {one} as well",
            none="the splits are apart, as they should be",
            means=f"{'settings are tuned on them' if tuned else 'they are known from training'}, "
            f"so the figures on {other} are too good; take them out of {one}",
            warning=0.0,
            examples=[_text(graph, triple) for triple in both[:EXAMPLES]],
        )


def _leakage(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Held-out triples that stand reversed in train, under another relation or under their own."""
    inverse, symmetric = "inverse leakage", "symmetric leakage"
    split = next((s for s in ("test", "valid") if len(graph.split(s))), None)
    if split is None:
        absent = "the graph has neither a test nor a valid split, so there is nothing to measure it on"
        advice = "figures on a split that is made later may be helped by it"
        for check in (inverse, symmetric):
            yield Finding(check, "note", 0, None, f"{check}: {absent}; {advice}")
        return
    asked = graph.split(split)
    other, same, linked = _reversed(graph.observed, asked)
    few = "that is the most that the figures owe to it"
    means = (
        "a model that only learns inverses scores high on them, so figures on this graph say little about reasoning; "
        "compare with a graph without it"
        if other.mean() >= MANY
        else "a model that only learns inverses finds them, so that part of the figures shows inverses and no more"
    )
    # In a dense graph a reverse is no sign of an inverse relation: in Nations nearly every pair is linked somehow.
    if linked >= MANY:
        means += f" (but {100 * linked:.0f} % of all pairs of entities are linked in train, so some of it is density)"
    yield _finding(
        inverse,
        int(other.sum()),
        len(asked),
        f"{split} triples stand reversed in train under another relation",
        none="the figures owe nothing to it",
        few=few,
        means=means,
        note=SOME,
        warning=MANY,
        examples=[_with_reverse(graph, triple) for triple in asked[other][:EXAMPLES]],
    )
    yield _finding(
        symmetric,
        int(same.sum()),
        len(asked),
        f"{split} triples stand reversed in train under their own relation",
        none="the figures owe nothing to it",
        few=few,
        means="rules of the symmetric pattern find them, so that part of the figures shows symmetry and no more",
        note=MANY,
        examples=[_text(graph, triple) for triple in asked[same][:EXAMPLES]],
    )


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
    says = "each is the other's reverse" if reverse else "both say the same"
    concerned = np.isin(everything.triples[:, RELATION], pairs)
    finding = _finding(
        "reverse relations" if reverse else "duplicate relations",
        int(concerned.sum()),
        len(everything),
        f"triples have a relation that agrees with another{' the other way round' if reverse else ''}",
        none="no relation stands in for another",
        means=f"in {many(len(pairs), 'pair')} of relations {says}, so a held-out triple of one is often given away by "
        "the other; keep one of each pair if the figures are to show more than that",
        warning=MANY,
        examples=[
            f"{names[one]} and {names[other]} ({100 * share:.0f} %)"
            for (one, other), share in zip(pairs[:EXAMPLES].tolist(), agreement[:EXAMPLES].tolist(), strict=True)
        ],
    )
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
    most = np.argsort(-loops, kind="stable")[: min(EXAMPLES, np.count_nonzero(loops))]
    return _finding(
        "self-loops",
        int(loops.sum()),
        len(triples),
        "triples lead from an entity to itself",
        none="the irreflexive constraint holds for every relation",
        means=f"they are of {many(int(np.count_nonzero(loops)), 'relation')}; where they are common the irreflexive "
        "constraint is not kept, where they are rare it ranks them last; see whether they are meant",
        examples=[f"{graph.relations.names[r]} ({loops[r]:,})" for r in most.tolist()],
    )


def _unseen(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Entities and relations that are held out but not in train."""
    held_out = np.concatenate([graph.valid, graph.test])
    if not len(held_out):
        return
    for check, columns, vocabulary, why in (
        (
            "unseen entities",
            [HEAD, TAIL],
            graph.entities,
            "such an entity's vector is untrained and no rule reaches it",
        ),
        ("unseen relations", [RELATION], graph.relations, "such a relation's vector is untrained and no rule has it"),
    ):
        names = vocabulary.names
        fresh = np.ones(len(names), dtype=bool)
        fresh[graph.train[:, columns]] = False
        concerned = {split: int(fresh[graph.split(split)[:, columns]].any(axis=1).sum()) for split in SPLITS[1:]}
        places = np.flatnonzero(np.bincount(held_out[:, columns].ravel(), minlength=len(names)) * fresh)
        where = " and ".join(f"{count:,} in {split}" for split, count in concerned.items() if count)
        noun = check.removeprefix("unseen ")
        yield _finding(
            check,
            sum(concerned.values()),
            len(held_out),
            f"valid and test triples have {noun} that train does not",
            none="train has something about each",
            means=f"{where}, of {many(len(places), vocabulary.kind, noun)}; {why}, so these triples rank hardly better "
            "than by chance and lower the figures",
            warning=MANY,
            examples=[names[at] for at in places[:EXAMPLES].tolist()],
        )


def _single(graph: KnowledgeGraph) -> Iterator[Finding]:
    """Relations and entities of which train has a single triple."""
    heads, relations, tails = graph.train.T
    uses = np.bincount(relations, minlength=len(graph.relations))
    # a self-loop is one triple of its entity, not two
    degrees = np.bincount(np.concatenate([heads, tails[tails != heads]]), minlength=len(graph.entities))
    for check, counts, names, note, why in (
        ("relations with one triple", uses, graph.relations.names, 0.0, "a rule about such a relation is a guess"),
        ("entities with one triple", degrees, graph.entities.names, MANY, "what is predicted for them is a guess"),
    ):
        rare = np.flatnonzero(counts == 1)
        kind = check.split()[0]
        yield _finding(
            check,
            len(rare),
            len(names),
            f"{kind} have a single triple in train",
            none="each has more to learn from, or is not in train at all",
            few="too few to matter",
            means=f"one triple is little to learn from, and {why}",
            note=note,
            examples=[names[at] for at in rare[:EXAMPLES].tolist()],
        )


def _look_alikes(graph: KnowledgeGraph) -> Finding:
    """Names of different entities, or of different relations, that read the same."""
    groups = [group for names in (graph.entities, graph.relations) for group in _alike(names)]
    return _finding(
        "look-alike names",
        sum(map(len, groups)),
        len(graph.entities) + len(graph.relations),
        "names differ from another by nothing but spaces or the way that accents are encoded",
        none="each name reads like no other",
        means="names are taken as they are, so each of these is an entity or a relation of its own, and what is known "
        "of one is not known of the other; where one is meant, write it in one way in the files",
        warning=SOME,
        examples=[_in_quotes(group[:EXAMPLES]) for group in groups[:EXAMPLES]],
    )


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
    return _finding(
        "double lines",
        graph.duplicates,
        sum(len(graph.split(split)) for split in SPLITS) + graph.duplicates,
        "lines repeat another of their split",
        none="each triple was given once",
        means="they were dropped when the graph was read, so the figures do not count them twice; "
        "published counts of lines are higher by them",
    )


def _ends(triples: IntArray, entities: int, reverse: bool = False) -> IntArray:
    """One number for each (head, tail), or (tail, head)."""
    first, second = (TAIL, HEAD) if reverse else (HEAD, TAIL)
    ends: IntArray = triples[:, first] * entities + triples[:, second]
    return ends


def _text(graph: KnowledgeGraph, triple: IntArray) -> str:
    return f"({', '.join(graph.names(triple))})"


def _with_reverse(graph: KnowledgeGraph, triple: IntArray) -> str:
    """The triple and the first training triple that is its reverse under another relation."""
    head, relation, tail = triple.tolist()
    train = graph.train
    reverse = (train[:, HEAD] == tail) & (train[:, TAIL] == head) & (train[:, RELATION] != relation)
    return f"{_text(graph, triple)} as {_text(graph, train[np.argmax(reverse)])}"
