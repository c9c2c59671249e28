"""What a report shows beyond the run's own files: ranks, surprises and mistakes, each explained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plogicnet.evaluation.figures import Ranks
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import SIDES, IntArray, KnowledgeGraph, TripleSet
from plogicnet.inference.examples import Names
from plogicnet.model import Explanation, PLogicNet, Prediction
from plogicnet.support.progress import Progress, silent
from plogicnet.systems.system import STAR
from plogicnet.training.selection import rankings

RANKED_MOST = 5_000
"""Of a larger split so many triples are ranked again, drawn by the run's seed."""
ASKED_MOST = 200
"""So many queries are asked for their best answers."""
ANSWERS = 10
SHORTLIST = 25
SHOWN = 5
BADLY, CONFIDENTLY = 10, 0.01
"""The rank beyond which a truth is ranked badly, and the probability from which on a wrong answer is shown."""
PREMISES = 2
"""How many groundings of a rule are shown."""


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
    explained: Explanation


def ranked(model: PLogicNet, split: str, progress: Progress = silent) -> Ranked:
    """Ranks a split, or of a large one a sample, by every system; all of the split is filtered nonetheless."""
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
    compared = rankings(config, f.outcome.lambda_)
    ranks = rank(graph, split, f.outcome.neural, f.rules, compared, config.evaluation.batch_memory_mb, progress)
    return Ranked(split, triples, len(everything), ranks, model.judge(triples))


def ask(model: PLogicNet, ranking: Ranked, progress: Progress = silent) -> list[Asked]:
    """The answers to a sample of queries, without those that any split holds."""
    queries = np.arange(2 * len(ranking.triples))
    if len(queries) > ASKED_MOST:
        queries = np.sort(np.random.default_rng([model.config.seed, 29]).choice(queries, ASKED_MOST, replace=False))
    asked = []
    known = _everything(model.fitted.graph)
    with progress("asking, queries", len(queries)) as advance:
        for query in queries.tolist():
            row, side = divmod(query, 2)
            asked.append(_asked(model, ranking, row, side, known))
            advance()
    return asked


def _asked(model: PLogicNet, ranking: Ranked, row: int, side: int, known: TripleSet) -> Asked:
    head, relation, tail = ranking.judged[row].triple
    open_head = SIDES[side] == "head"
    answers = model.predict(None if open_head else head, relation, tail if open_head else None, top=ANSWERS)
    numbers = np.array([model.fitted.graph.numbers(*a.triple) for a in answers], dtype=np.int64).reshape(-1, 3)
    new = [a for a, is_known in zip(answers, known.contains(numbers).tolist(), strict=True) if not is_known]
    return Asked(row, SIDES[side], ranking.judged[row], new)


def _everything(graph: KnowledgeGraph) -> TripleSet:
    return TripleSet.of(np.concatenate([graph.train, graph.valid, graph.test]), len(graph.entities))


def believed_by_rules(model: PLogicNet) -> list[Explanation]:
    """Missing facts that rules make probable and that the neural model doubts, most probable first."""
    return _explained(model, _hidden(model, by_rules=True))


def believed_by_neural(model: PLogicNet, asked: Sequence[Asked]) -> list[Explanation]:
    """Missing facts that the neural model makes probable and that rules doubt or do not reach, most probable first."""
    if model.fitted.outcome.neural is None:
        return []
    unreached = {a.triple: a for query in asked for a in query.answers if not a.in_hidden}
    candidates = [*_hidden(model, by_rules=False), *unreached.values()]
    most = sorted(candidates, key=lambda c: -(c.q or 0.0) * (1 - c.p_w))
    return _explained(model, most[:SHORTLIST])


def _hidden(model: PLogicNet, by_rules: bool) -> list[Prediction]:
    """The hidden triples that one half believes and the other doubts most: p_w · (1 − q), or q · (1 − p_w).

    Without a neural model they are those that the rules believe most.
    """
    outcome = model.fitted.outcome
    p_w, q = outcome.rule_model.hidden_p_w, outcome.hidden_q
    believed, doubted = (p_w, q) if by_rules else (q, p_w)
    rows = np.argsort(-believed * (1 - doubted), kind="stable")[:SHORTLIST]
    return model.judge(outcome.rule_model.hidden[rows[believed[rows] > doubted[rows]]])


def _explained(model: PLogicNet, candidates: Iterable[Prediction]) -> list[Explanation]:
    """The most probable of them, of different relations as far as there are some, explained."""
    best = sorted({c.triple: c for c in candidates}.values(), key=lambda c: -c.probability)
    return [model.explain(*c.triple, PREMISES) for c in _varied(best)]


def _varied(best: Sequence[Prediction]) -> list[Prediction]:
    """The first few, one for each relation as long as there are others."""
    rounds: dict[str, int] = {}
    turn = []
    for at, judged in enumerate(best):
        rounds[judged.relation] = rounds.get(judged.relation, -1) + 1
        turn.append((rounds[judged.relation], at))
    chosen = sorted(turn)[:SHOWN]
    return [best[at] for at in sorted(at for _, at in chosen)]


def ranked_badly(model: PLogicNet, ranking: Ranked) -> list[Mistake]:
    """Held-out triples that a rule reaches and that pLogicNet* ranks badly all the same, the worst first."""
    places = ranking.ranks[STAR].realistic
    reached = np.array([judged.in_hidden for judged in ranking.judged], dtype=bool)
    rows, sides = np.nonzero((places > BADLY) & reached[:, None])
    order = np.argsort(-places[rows, sides], kind="stable").tolist()
    worst: dict[str, tuple[int, int]] = {}
    for at in order:  # one for each relation
        worst.setdefault(ranking.judged[rows[at]].relation, (int(rows[at]), int(sides[at])))
    known = _everything(model.fitted.graph)
    asked = [_asked(model, ranking, row, side, known) for row, side in list(worst.values())[:SHOWN]]
    return [_mistake(model, ranking, a, a.truth) for a in asked]


def confidently_wrong(model: PLogicNet, ranking: Ranked, asked: Sequence[Asked]) -> list[Mistake]:
    """Answers in no split that are held more probable than the truth, the most probable first."""
    wrong: dict[Names, Asked] = {}
    for query in asked:
        best = query.answers[0].probability if query.answers else 0.0
        missed = ranking.place(STAR, query.row, SIDES.index(query.side)) > 1
        if missed and best > query.truth.probability and best >= CONFIDENTLY:
            wrong.setdefault(query.answers[0].triple, query)
    order = sorted(wrong.values(), key=lambda query: -query.answers[0].probability)
    chosen = _varied([query.answers[0] for query in order])
    return [_mistake(model, ranking, wrong[answer.triple], answer) for answer in chosen]


def _mistake(model: PLogicNet, ranking: Ranked, asked: Asked, about: Prediction) -> Mistake:
    places = {system: ranking.place(system, asked.row, SIDES.index(asked.side)) for system in ranking.ranks}
    return Mistake(asked, places, model.explain(*about.triple, PREMISES))
