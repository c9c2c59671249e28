"""What validation chooses: λ, and when an E-step stops; and the rankings that are compared."""

from dataclasses import replace

import numpy as np

from plogicnet.config import Config
from plogicnet.evaluation.calibration import sample
from plogicnet.evaluation.metrics import summary
from plogicnet.evaluation.orders import Combination
from plogicnet.evaluation.ranking import rank
from plogicnet.evaluation.scaling import platt
from plogicnet.graph import KnowledgeGraph, TripleSet
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.progress import Progress
from plogicnet.systems.system import NEURAL, PLAIN, RULES, STAR


def rankings(config: Config, lambda_: float) -> dict[str, Combination]:
    """The rankings that are compared: each half alone, pLogicNet and pLogicNet*.

    Example:
        >>> list(rankings(Config(), 0.5))
        ['neural', 'rules', 'plogicnet', 'plogicnet*']
    """
    rerank = 0 if config.evaluation.rerank == "all" else config.evaluation.rerank
    star = Combination(config.em.neural, lambda_, combine=config.em.combine, rerank=rerank)
    rules = {RULES: Combination(neural=False)}
    if not config.em.neural:
        return {**rules, STAR: star}
    return {NEURAL: Combination(constraint=False), **rules, PLAIN: Combination(), STAR: star}


def tie_breaker(config: Config, lambda_: float) -> Combination:
    """pLogicNet*'s order over all candidates: what decides between predictions of equal probability."""
    return replace(rankings(config, lambda_)[STAR], rerank=0)


def choose_lambda(
    graph: KnowledgeGraph, config: Config, neural: NeuralModel | None, rules: RuleScores, progress: Progress
) -> tuple[float, dict[str, dict[str, float]]]:
    """λ by the validation triples, and the figures of each ranking there."""
    given = config.em.lambda_
    # a λ of zero stands first, so that rules that add nothing are given nothing
    grid = sorted(set(config.em.lambda_grid)) if given == "auto" else [float(given)]
    if neural is None or not len(rules.reached):
        grid = grid[:1] if given != "auto" else [0.0]
    named = {f"λ={value!r}": rankings(config, value)[STAR] for value in grid}
    others = {name: order for name, order in rankings(config, 0.0).items() if name != STAR}
    ranks = rank(graph, "valid", neural, rules, others | named, config.evaluation.batch_memory_mb, progress)
    figures = {name: summary(r.realistic) for name, r in ranks.items()}
    best = max(grid, key=lambda value: (figures[f"λ={value!r}"]["mrr"], -value))
    return best, {name: figures[name] for name in others} | {STAR: figures[f"λ={best!r}"]}


def merit(graph: KnowledgeGraph, config: Config, neural: NeuralModel) -> float:
    """The neural model's own MRR on valid, by which its training may stop early."""
    alone, memory = {NEURAL: Combination(constraint=False)}, config.evaluation.batch_memory_mb
    none, zeros = TripleSet.of([], len(graph.entities)), np.zeros(len(graph.relations))
    no_rules = RuleScores(none, np.zeros(0), zeros, zeros > 0, graph.observed)
    return summary(rank(graph, "valid", neural, no_rules, alone, memory)[NEURAL].realistic)["mrr"]


def rescale(graph: KnowledgeGraph, config: Config, neural: NeuralModel) -> None:
    """Makes σ(score) of a softmax-trained model a probability, by validation triples against sampled corruptions."""
    if not len(graph.valid):
        return
    labels = sample(graph, "valid", ["train", "valid"], config.seed)
    scores = neural.score(labels.triples).double().cpu().numpy()
    neural.rescale(*platt(scores, labels.label, labels.count))
