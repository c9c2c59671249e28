"""What a report shows beyond the run's own files: ranks, examples of rules, surprises and mistakes, each explained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from plogicnet.em import systems
from plogicnet.evaluation import Ranks, rank
from plogicnet.graph import IntArray, KnowledgeGraph, TripleSet
from plogicnet.model import PLogicNet, Prediction
from plogicnet.progress import Progress, silent
from plogicnet.rules import Rule

RANKED_MOST = 5_000
"""Of a larger split so many triples are ranked again, drawn by the run's seed."""
ASKED_MOST = 200
"""So many queries are asked for their best answers."""
ANSWERS = 10
SHORTLIST = 25
SHOWN = 5
BADLY, CONFIDENTLY = 10, 0.01
"""The rank beyond which a truth is ranked badly, and the probability from which on a wrong answer is worth a look."""
SIDES = ("head", "tail")
Names = tuple[str, str, str]


@dataclass(frozen=True)
class Ranked:
    """Triples of a split, ranked by each system.

    Attributes:
        triples: those that were ranked.
        of: how many the split has.
        judged: the same triples, judged.
    """

    split: str
    triples: IntArray
    of: int
    ranks: dict[str, Ranks]
    judged: list[Prediction]

    def place(self, system: str, row: int, side: int) -> float:
        """The rank of one triple's head (0) or tail (1)."""
        return float(self.ranks[system].realistic[row, side])


@dataclass(frozen=True)
class Explained:
    """A judged triple with the reasons.

    Attributes:
        found_in: the held-out split that has it, if one does.
        why: what `explain` says, and how groundings were taken together (`aggregate`).
    """

    judged: Prediction
    found_in: str | None
    why: dict[str, Any]

    @property
    def names(self) -> Names:
        """Head, relation, tail."""
        return names_of(self.judged)


@dataclass(frozen=True)
class Asked:
    """A query made of a held-out triple by leaving one end open, with its answers.

    Attributes:
        row: the triple's place among those ranked.
        side: the end left open, "head" or "tail".
        truth: the triple.
        answers: the most probable answers that are in no split.
    """

    row: int
    side: str
    truth: Prediction
    answers: list[Prediction]


@dataclass(frozen=True)
class Mistake:
    """A query whose truth does not stand first: its ranks by system, what is explained, and what stands above it."""

    asked: Asked
    places: dict[str, float]
    explained: Explained


@dataclass(frozen=True)
class Example:
    """One grounding of a rule, in names.

    Attributes:
        known: whether the hypothesis is a training triple.
        found_in: the held-out split that has it, if one does.
    """

    premises: list[Names]
    hypothesis: Names
    known: bool
    found_in: str | None


def names_of(judged: Prediction) -> Names:
    """The names of a judged triple.

    Example:
        >>> names_of(model.judge(graph.test[:1])[0])  # doctest: +SKIP
    """
    return judged.head, judged.relation, judged.tail


def ranked(model: PLogicNet, split: str, progress: Progress = silent) -> Ranked:
    """Ranks a split, or of a large one a sample, by every system; all of the split is filtered nonetheless.

    Example:
        >>> ranked(model, "test").ranks["plogicnet*"].realistic  # doctest: +SKIP
    """
    f, config = model.fitted, model.config
    everything = f.graph.split(split)
    graph, triples = f.graph, everything
    if len(everything) > RANKED_MOST:
        chosen = np.zeros(len(everything), dtype=bool)
        chosen[np.random.default_rng([config.seed, 23]).choice(len(everything), RANKED_MOST, replace=False)] = True
        triples = everything[chosen]
        # the others move to a split that is filtered too
        rest = everything[~chosen]
        if split == "test":
            graph = replace(f.graph, test=triples, valid=np.concatenate([f.graph.valid, rest]))
        else:
            graph = replace(f.graph, valid=triples, train=np.concatenate([f.graph.train, rest]))
    compared = systems(config, f.outcome.lambda_)
    ranks = rank(graph, split, f.outcome.embedding, f.rules, compared, config.evaluation.batch_memory_mb, progress)
    return Ranked(split, triples, len(everything), ranks, model.judge(triples))


def ask(model: PLogicNet, told: Ranked, progress: Progress = silent) -> list[Asked]:
    """The answers to a sample of queries, without those that any split holds.

    Example:
        >>> ask(model, ranked(model, "test"))[0].answers  # doctest: +SKIP
    """
    queries = np.arange(2 * len(told.triples))
    if len(queries) > ASKED_MOST:
        queries = np.sort(np.random.default_rng([model.config.seed, 29]).choice(queries, ASKED_MOST, replace=False))
    asked = []
    known = _everything(model.fitted.graph)
    with progress("asking, queries", len(queries)) as advance:
        for query in queries.tolist():
            row, side = divmod(query, 2)
            asked.append(_asked(model, told, row, side, known))
            advance()
    return asked


def _asked(model: PLogicNet, told: Ranked, row: int, side: int, known: TripleSet) -> Asked:
    head, relation, tail = names_of(told.judged[row])
    open_head = SIDES[side] == "head"
    answers = model.predict(None if open_head else head, relation, tail if open_head else None, top=ANSWERS)
    numbers = np.array([model.fitted.graph.numbers(*names_of(a)) for a in answers], dtype=np.int64).reshape(-1, 3)
    new = [a for a, is_known in zip(answers, known.contains(numbers).tolist(), strict=True) if not is_known]
    return Asked(row, SIDES[side], told.judged[row], new)


def _everything(graph: KnowledgeGraph) -> TripleSet:
    return TripleSet.of(np.concatenate([graph.train, graph.valid, graph.test]), len(graph.entities))


def believed_by_rules(model: PLogicNet, run: Path) -> list[Explained]:
    """Missing facts that rules make probable and that the vectors doubt, most probable first.

    Example:
        >>> believed_by_rules(model, Path("runs/family"))  # doctest: +SKIP
    """
    return _explained(model, _hidden(model, run, by_rules=True))


def believed_by_vectors(model: PLogicNet, run: Path, asked: Sequence[Asked]) -> list[Explained]:
    """Missing facts that the vectors make probable while rules doubt them or do not reach them, most probable first.

    Example:
        >>> believed_by_vectors(model, Path("runs/family"), [])  # doctest: +SKIP
    """
    if model.fitted.outcome.embedding is None:
        return []
    unreached = {names_of(a): a for query in asked for a in query.answers if not a.in_hidden}
    candidates = [*_hidden(model, run, by_rules=False), *unreached.values()]
    most = sorted(candidates, key=lambda c: -(c.q or 0.0) * (1 - c.p_w))
    return _explained(model, most[:SHORTLIST])


def _hidden(model: PLogicNet, run: Path, by_rules: bool) -> list[Prediction]:
    """The hidden triples that one half believes and the other doubts most: p_w · (1 − q), or q · (1 − p_w).

    Without vectors, which have no doubts then, they are the rules' favourites.
    """
    table = pq.read_table(run / "hidden.parquet", columns=["head", "relation", "tail", "q", "p_w"])
    if not len(table):
        return []
    p_w, q = table["p_w"].to_numpy(), table["q"].to_numpy()
    believed, doubted = (p_w, q) if by_rules else (q, p_w)
    rows = np.argsort(-believed * (1 - doubted), kind="stable")[:SHORTLIST]
    chosen = table.take(rows[believed[rows] > doubted[rows]])
    names = zip(*(chosen[c].to_pylist() for c in ("head", "relation", "tail")), strict=True)
    numbers = np.array([model.fitted.graph.numbers(*triple) for triple in names], dtype=np.int64).reshape(-1, 3)
    return model.judge(numbers)


def _explained(model: PLogicNet, candidates: Iterable[Prediction]) -> list[Explained]:
    """The most probable of them, of different relations as far as there are some, explained."""
    best = sorted({names_of(c): c for c in candidates}.values(), key=lambda c: -c.probability)
    return [explained(model, c) for c in _varied(best)]


def explained(model: PLogicNet, judged: Prediction) -> Explained:
    """A judged triple with its reasons.

    Example:
        >>> explained(model, model.judge(graph.test[:1])[0]).why["rules"]  # doctest: +SKIP
    """
    graph = model.fitted.graph
    found = _found_in(graph, graph.numbers(*names_of(judged)))
    why = model.explain(*names_of(judged)) | {"aggregate": model.config.mln.aggregate}
    return Explained(judged, found, why)


def _found_in(graph: KnowledgeGraph, triple: IntArray) -> str | None:
    """The held-out split that has a triple."""
    return next((split for split in ("test", "valid") if (graph.split(split) == triple).all(axis=1).any()), None)


def _varied(best: Sequence[Prediction]) -> list[Prediction]:
    """The first few, one for each relation as long as there are others."""
    rounds: dict[str, int] = {}
    turn = []
    for at, judged in enumerate(best):
        rounds[judged.relation] = rounds.get(judged.relation, -1) + 1
        turn.append((rounds[judged.relation], at))
    chosen = sorted(turn)[:SHOWN]
    return [best[at] for at in sorted(at for _, at in chosen)]


def ranked_badly(model: PLogicNet, told: Ranked) -> list[Mistake]:
    """Held-out triples that a rule reaches and that pLogicNet* ranks badly all the same, the worst first.

    Example:
        >>> ranked_badly(model, ranked(model, "test"))  # doctest: +SKIP
    """
    places = told.ranks["plogicnet*"].realistic
    reached = np.array([judged.in_hidden for judged in told.judged], dtype=bool)
    rows, sides = np.nonzero((places > BADLY) & reached[:, None])
    order = np.argsort(-places[rows, sides], kind="stable").tolist()
    worst: dict[str, tuple[int, int]] = {}
    for at in order:  # one for each relation
        worst.setdefault(told.judged[rows[at]].relation, (int(rows[at]), int(sides[at])))
    known = _everything(model.fitted.graph)
    asked = [_asked(model, told, row, side, known) for row, side in list(worst.values())[:SHOWN]]
    return [_mistake(model, told, a, a.truth) for a in asked]


def confidently_wrong(model: PLogicNet, told: Ranked, asked: Sequence[Asked]) -> list[Mistake]:
    """Answers in no split that are held more probable than the truth, the most probable first.

    Example:
        >>> confidently_wrong(model, told, ask(model, told))  # doctest: +SKIP
    """
    wrong: dict[Names, Asked] = {}
    for query in asked:
        best = query.answers[0].probability if query.answers else 0.0
        missed = told.place("plogicnet*", query.row, SIDES.index(query.side)) > 1
        if missed and best > query.truth.probability and best >= CONFIDENTLY:
            wrong.setdefault(names_of(query.answers[0]), query)
    order = sorted(wrong.values(), key=lambda query: -query.answers[0].probability)
    chosen = _varied([query.answers[0] for query in order])
    return [_mistake(model, told, wrong[names_of(answer)], answer) for answer in chosen]


def _mistake(model: PLogicNet, told: Ranked, asked: Asked, about: Prediction) -> Mistake:
    places = {system: told.place(system, asked.row, SIDES.index(asked.side)) for system in told.ranks}
    return Mistake(asked, places, explained(model, about))


def examples_of(model: PLogicNet, rule: Rule, most: int = 2) -> list[Example]:
    """Groundings of a rule: first those whose hypothesis is new, for which the rule is of use, then known ones.

    Example:
        >>> examples_of(model, model.rules.rules[0])  # doctest: +SKIP
    """
    rule_model, graph = model.fitted.outcome.rule_model, model.fitted.graph
    groundings = rule_model.groundings
    own = np.flatnonzero(groundings.rule == rule_model.rules.rules.index(rule))
    known = groundings.observed[groundings.hypothesis[own]]
    # one of each kind, where both are
    order = np.concatenate([own[~known][:1], own[known][:1], own[~known][1:], own[known][1:]])[:most]
    triples = groundings.triples.triples
    found = []
    for at in order.tolist():
        rows = groundings.premises[at]
        premises = [graph.names(triples[row]) for row in rows[rows >= 0]]
        concluded = triples[groundings.hypothesis[at]]
        is_known = bool(groundings.observed[groundings.hypothesis[at]])
        found.append(Example(premises, graph.names(concluded), is_known, _found_in(graph, concluded)))
    return found
