"""Selection of the predictions and mistakes that the report shows, with explanations."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plogicnet.evaluation.ranking import rank
from plogicnet.evaluation.results import Ranks
from plogicnet.graph import SIDES, IntArray, Side
from plogicnet.inference.examples import NameTriple
from plogicnet.model import Explanation, PLogicNet, Prediction
from plogicnet.support.progress import Progress, no_progress
from plogicnet.systems.system import PLOGICNET_STAR_KEY
from plogicnet.training.selection import ranking_orders

MAX_RANKED = 5_000
"""Maximum number of triples to rank. Larger splits are sampled with the run's seed."""
MAX_QUERIES = 200
"""Maximum number of queries to answer."""
N_ANSWERS = 10
"""Number of answers per query."""
SHORTLIST = 25
"""Number of candidates from which the shown predictions are selected."""
MAX_SHOWN = 5
"""Maximum number of predictions or mistakes per section."""
MAX_GOOD_RANK, MIN_WRONG_PROBABILITY = 10, 0.01
"""The worst rank that is not a mistake, and the minimum probability of a wrong answer to show."""
PREMISES = 2
"""Number of groundings shown per rule."""


@dataclass(frozen=True)
class RankedTriples:
    """Triples of a split with their ranks.

    Attributes:
        triples: the ranked triples; a sample if the split is large.
        total: the number of triples of the whole split.
        ranks: the ranks of the triples, by key of the ranking.
        predictions: the predictions for the triples.
    """

    split: str
    triples: IntArray
    total: int
    ranks: dict[str, Ranks]
    predictions: list[Prediction]


@dataclass(frozen=True)
class QueryResult:
    """A query for the head or tail of a held-out triple, and its answers.

    Attributes:
        side: the missing side.
        correct: the prediction for the held-out triple.
        ranks: the rank of the held-out triple, by key of the ranking.
        answers: the most probable answers that are in no split.
    """

    side: Side
    correct: Prediction
    ranks: dict[str, float]
    answers: list[Prediction]


Mistake = tuple[QueryResult, Explanation]
"""A query whose correct answer is not ranked first, with an explanation of the correct answer or of a wrong one."""


def rank_split(model: PLogicNet, split: str, progress: Progress = no_progress) -> RankedTriples:
    """Rank the triples of a split, or a sample of them. All triples of the split are filtered in any case."""
    fitted, config, graph = model.fitted, model.config, model.fitted.graph
    triples = all_triples = graph.split(split)
    if len(all_triples) > MAX_RANKED:
        chosen = np.zeros(len(all_triples), dtype=bool)
        chosen[np.random.default_rng([config.seed, 23]).choice(len(all_triples), MAX_RANKED, replace=False)] = True
        triples = all_triples[chosen]
        other = "valid" if split == "test" else "train"  # move the other triples to a split that is filtered too
        splits: dict[str, Any] = {split: triples, other: np.concatenate([graph.split(other), all_triples[~chosen]])}
        graph = replace(graph, **splits)
    orders = ranking_orders(config, fitted.outcome.lambda_)
    ranks = rank(graph, split, fitted.outcome.neural, fitted.rules, orders, config.evaluation.batch_memory_mb, progress)
    return RankedTriples(split, triples, len(all_triples), ranks, model.predict_triples(triples))


def answer_queries(model: PLogicNet, ranked: RankedTriples, progress: Progress = no_progress) -> list[QueryResult]:
    """Answer the queries of the ranked triples, or a sample of them. Answers in any split are removed."""
    queries = np.arange(2 * len(ranked.triples))
    if len(queries) > MAX_QUERIES:
        queries = np.sort(np.random.default_rng([model.config.seed, 29]).choice(queries, MAX_QUERIES, replace=False))
    results = []
    with progress("answering queries", len(queries)) as advance:
        for query in queries.tolist():
            results.append(_answer_query(model, ranked, query))
            advance()
    return results


def _answer_query(model: PLogicNet, ranked: RankedTriples, query: int) -> QueryResult:
    """Answer one query by index: in query 2n the head of ranked triple n is missing, in query 2n + 1 the tail."""
    row, column = divmod(query, 2)
    correct, side = ranked.predictions[row], SIDES[column]
    head, tail = (None, correct.tail) if side == "head" else (correct.head, None)
    answers = model.predict(head, correct.relation, tail, top=N_ANSWERS)
    ranks = {ranking: float(ranks.realistic[row, column]) for ranking, ranks in ranked.ranks.items()}
    return QueryResult(side, correct, ranks, [answer for answer in answers if answer.held_out is None])


def supported_by_rules(model: PLogicNet) -> list[Explanation]:
    """Explain missing facts with a high p_w and a low q, most probable first."""
    return _explain(model, _disputed_hidden(model, by_rules=True))


def supported_by_neural(model: PLogicNet, results: Sequence[QueryResult]) -> list[Explanation]:
    """Explain missing facts with a high q and a low p_w, most probable first."""
    not_concluded = {a.triple: a for result in results for a in result.answers if not a.in_hidden}
    candidates = [*_disputed_hidden(model, by_rules=False), *not_concluded.values()]
    most_disputed = sorted(candidates, key=lambda c: -(c.q or 0.0) * (1 - c.p_w))
    return _explain(model, most_disputed[:SHORTLIST])


def _disputed_hidden(model: PLogicNet, by_rules: bool) -> list[Prediction]:
    """Return the hidden triples with the highest p_w · (1 − q), or without `by_rules` q · (1 − p_w).

    Without a neural model, q is 0, so these are the triples with the highest p_w.
    """
    outcome = model.fitted.outcome
    p_w, q = outcome.rule_model.hidden_p_w, outcome.hidden_q
    high, low = (p_w, q) if by_rules else (q, p_w)
    rows = np.argsort(-high * (1 - low), kind="stable")[:SHORTLIST]
    return model.predict_triples(outcome.rule_model.hidden[rows[high[rows] > low[rows]]])


def _explain(model: PLogicNet, candidates: Iterable[Prediction]) -> list[Explanation]:
    """Explain the most probable candidates, from different relations if possible."""
    best = sorted({c.triple: c for c in candidates}.values(), key=lambda c: -c.probability)
    return [model.explain(*c.triple, PREMISES) for c in _diversify(best)]


def _diversify(best: Sequence[Prediction]) -> list[Prediction]:
    """Return at most `MAX_SHOWN` of the predictions, from as many relations as possible, in the given order."""
    seen = Counter[str]()
    priorities = []
    for i, prediction in enumerate(best):
        priorities.append((seen[prediction.relation], i))
        seen[prediction.relation] += 1
    return [best[i] for i in sorted(i for _, i in sorted(priorities)[:MAX_SHOWN])]


def badly_ranked(model: PLogicNet, ranked: RankedTriples) -> list[Mistake]:
    """Explain held-out triples that a rule concludes but pLogicNet* ranks badly, worst first, one per relation."""
    ranks = ranked.ranks[PLOGICNET_STAR_KEY].realistic
    concluded = np.array([prediction.in_hidden for prediction in ranked.predictions], dtype=bool)
    bad = np.flatnonzero((ranks > MAX_GOOD_RANK) & concluded[:, None])
    worst: dict[str, int] = {}
    for query in bad[np.argsort(-ranks.ravel()[bad], kind="stable")].tolist():
        worst.setdefault(ranked.predictions[query // 2].relation, query)
    results = [_answer_query(model, ranked, query) for query in list(worst.values())[:MAX_SHOWN]]
    return [(result, model.explain(*result.correct.triple, PREMISES)) for result in results]


def wrong_answers(model: PLogicNet, results: Sequence[QueryResult]) -> list[Mistake]:
    """Explain answers that are in no split and more probable than the correct one, most probable first."""
    wrong: dict[NameTriple, QueryResult] = {}
    for result in results:
        best = result.answers[0].probability if result.answers else 0.0
        if result.ranks[PLOGICNET_STAR_KEY] > 1 and best > result.correct.probability and best >= MIN_WRONG_PROBABILITY:
            wrong.setdefault(result.answers[0].triple, result)
    order = sorted(wrong.values(), key=lambda result: -result.answers[0].probability)
    chosen = _diversify([result.answers[0] for result in order])
    return [(wrong[answer.triple], model.explain(*answer.triple, PREMISES)) for answer in chosen]
