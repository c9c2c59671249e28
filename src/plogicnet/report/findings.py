"""What a report shows beyond the run's own files: ranks, surprises and mistakes, each explained."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plogicnet.evaluation.figures import Ranks
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import SIDES, IntArray, Side
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


@dataclass(frozen=True)
class Asked:
    """A query made of a held-out triple by leaving one end open, with its answers.

    Attributes:
        side: the end left open.
        truth: the triple.
        places: its rank by each system.
        answers: the most probable answers that are in no split.
    """

    side: Side
    truth: Prediction
    places: dict[str, float]
    answers: list[Prediction]


Mistake = tuple[Asked, Explanation]
"""A query whose truth does not stand first, and why the truth, or what stands above it, is probable or not."""


def ranked(model: PLogicNet, split: str, progress: Progress = silent) -> Ranked:
    """Ranks a split, or of a large one a sample, by every system; all of the split is filtered nonetheless."""
    f, config, graph = model.fitted, model.config, model.fitted.graph
    triples = everything = graph.split(split)
    if len(everything) > RANKED_MOST:
        chosen = np.zeros(len(everything), dtype=bool)
        chosen[np.random.default_rng([config.seed, 23]).choice(len(everything), RANKED_MOST, replace=False)] = True
        triples = everything[chosen]
        other = "valid" if split == "test" else "train"  # the others move to a split that is filtered too
        splits: dict[str, Any] = {split: triples, other: np.concatenate([graph.split(other), everything[~chosen]])}
        graph = replace(graph, **splits)
    compared = rankings(config, f.outcome.lambda_)
    ranks = rank(graph, split, f.outcome.neural, f.rules, compared, config.evaluation.batch_memory_mb, progress)
    return Ranked(split, triples, len(everything), ranks, model.judge(triples))


def ask(model: PLogicNet, ranking: Ranked, progress: Progress = silent) -> list[Asked]:
    """The answers to a sample of queries, without those that any split holds."""
    queries = np.arange(2 * len(ranking.triples))
    if len(queries) > ASKED_MOST:
        queries = np.sort(np.random.default_rng([model.config.seed, 29]).choice(queries, ASKED_MOST, replace=False))
    asked = []
    with progress("asking, queries", len(queries)) as advance:
        for query in queries.tolist():
            asked.append(_asked(model, ranking, query))
            advance()
    return asked


def _asked(model: PLogicNet, ranking: Ranked, query: int) -> Asked:
    """One query: number 2n asks for the head of the ranked triple n, number 2n + 1 for its tail."""
    row, side = divmod(query, 2)
    truth, asked = ranking.judged[row], SIDES[side]
    head, tail = (None, truth.tail) if asked == "head" else (truth.head, None)
    answers = model.predict(head, truth.relation, tail, top=ANSWERS)
    places = {system: float(ranks.realistic[row, side]) for system, ranks in ranking.ranks.items()}
    return Asked(asked, truth, places, [answer for answer in answers if answer.held_out is None])


def believed_by_rules(model: PLogicNet) -> list[Explanation]:
    """Missing facts that rules make probable and that the neural model doubts, most probable first."""
    return _explained(model, _hidden(model, by_rules=True))


def believed_by_neural(model: PLogicNet, asked: Sequence[Asked]) -> list[Explanation]:
    """Missing facts that the neural model makes probable and that rules doubt or do not reach, most probable first."""
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
    before = Counter[str]()
    turns = []
    for at, judged in enumerate(best):
        turns.append((before[judged.relation], at))
        before[judged.relation] += 1
    return [best[at] for at in sorted(at for _, at in sorted(turns)[:SHOWN])]


def ranked_badly(model: PLogicNet, ranking: Ranked) -> list[Mistake]:
    """Held-out triples that a rule reaches and that pLogicNet* ranks badly all the same, the worst first."""
    places = ranking.ranks[STAR].realistic
    reached = np.array([judged.in_hidden for judged in ranking.judged], dtype=bool)
    badly = np.flatnonzero((places > BADLY) & reached[:, None])
    worst: dict[str, int] = {}
    for query in badly[np.argsort(-places.ravel()[badly], kind="stable")].tolist():  # one for each relation
        worst.setdefault(ranking.judged[query // 2].relation, query)
    asked = [_asked(model, ranking, query) for query in list(worst.values())[:SHOWN]]
    return [(query, model.explain(*query.truth.triple, PREMISES)) for query in asked]


def confidently_wrong(model: PLogicNet, asked: Sequence[Asked]) -> list[Mistake]:
    """Answers in no split that are held more probable than the truth, the most probable first."""
    wrong: dict[Names, Asked] = {}
    for query in asked:
        best = query.answers[0].probability if query.answers else 0.0
        if query.places[STAR] > 1 and best > query.truth.probability and best >= CONFIDENTLY:
            wrong.setdefault(query.answers[0].triple, query)
    order = sorted(wrong.values(), key=lambda query: -query.answers[0].probability)
    chosen = _varied([query.answers[0] for query in order])
    return [(wrong[answer.triple], model.explain(*answer.triple, PREMISES)) for answer in chosen]
