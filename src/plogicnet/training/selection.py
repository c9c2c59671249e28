"""The valid split, the order of each ranking, the choice of λ, and the metric for early stopping of E-steps."""

import logging
from dataclasses import replace

import numpy as np

from plogicnet.config import Config
from plogicnet.evaluation.calibration import sample
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.evaluation.scaling import platt
from plogicnet.graph import KnowledgeGraph, TripleSet
from plogicnet.mln import RuleScores
from plogicnet.neural.protocol import NeuralModel
from plogicnet.support.errors import pluralize
from plogicnet.support.progress import Progress
from plogicnet.systems.system import NEURAL, PLOGICNET_KEY, PLOGICNET_STAR_KEY, RULES

log = logging.getLogger(__name__)


def ranking_orders(config: Config, lambda_: float) -> dict[str, CombinedOrder]:
    """Return the order of each ranking: neural model alone, rules alone, pLogicNet and pLogicNet*.

    Example:
        >>> list(ranking_orders(Config(), 0.5))
        ['neural', 'rules', 'plogicnet', 'plogicnet*']
    """
    rerank = 0 if config.evaluation.rerank == "all" else config.evaluation.rerank
    star = CombinedOrder(config.em.neural, lambda_, combine=config.em.combine, rerank=rerank)
    rules = {RULES: CombinedOrder(neural=False)}
    if not config.em.neural:
        return {**rules, PLOGICNET_STAR_KEY: star}
    return {NEURAL: CombinedOrder(constraint=False), **rules, PLOGICNET_KEY: CombinedOrder(), PLOGICNET_STAR_KEY: star}


def tie_breaker(config: Config, lambda_: float) -> CombinedOrder:
    """Return the order of predictions with equal probability: pLogicNet* with all candidates re-ranked."""
    return replace(ranking_orders(config, lambda_)[PLOGICNET_STAR_KEY], rerank=0)


def choose_lambda(
    graph: KnowledgeGraph, config: Config, neural: NeuralModel | None, rules: RuleScores, progress: Progress
) -> tuple[float, dict[str, dict[str, float]]]:
    """Return the λ with the best validation MRR, and the validation metrics of each ranking."""
    setting = config.em.lambda_
    grid = sorted(set(config.em.lambda_grid)) if setting == "auto" else [float(setting)]
    if neural is None or rules.is_empty:
        grid = grid[:1] if setting != "auto" else [0.0]
    by_lambda = {f"λ={value!r}": ranking_orders(config, value)[PLOGICNET_STAR_KEY] for value in grid}
    others = {name: order for name, order in ranking_orders(config, 0.0).items() if name != PLOGICNET_STAR_KEY}
    ranks = rank(graph, "valid", neural, rules, others | by_lambda, config.evaluation.batch_memory_mb, progress)
    metrics = {name: compute_metrics(r.realistic) for name, r in ranks.items()}
    # of equally good values, take the smallest, for example 0 if the rules add nothing
    best = max(grid, key=lambda value: (metrics[f"λ={value!r}"]["mrr"], -value))
    return best, {name: metrics[name] for name in others} | {PLOGICNET_STAR_KEY: metrics[f"λ={best!r}"]}


def validation_mrr(graph: KnowledgeGraph, config: Config, neural: NeuralModel) -> float:
    """Return the MRR of the neural model alone on valid, for early stopping."""
    order, memory = {NEURAL: CombinedOrder(constraint=False)}, config.evaluation.batch_memory_mb
    empty, zeros = TripleSet.of([], len(graph.entities)), np.zeros(len(graph.relations))
    no_rules = RuleScores(empty, np.zeros(0), zeros, zeros > 0, graph.observed)
    return compute_metrics(rank(graph, "valid", neural, no_rules, order, memory)[NEURAL].realistic)["mrr"]


def rescale(graph: KnowledgeGraph, config: Config, neural: NeuralModel) -> None:
    """Rescale the scores of a neural model by Platt scaling on valid, so that σ(score) is a probability."""
    if not len(graph.valid):
        return
    labels = sample(graph, "valid", ["train", "valid"], config.seed, neural)
    scores = neural.score(labels.triples).double().cpu().numpy()
    neural.rescale(*platt(scores, labels.label, labels.count))


def with_validation(graph: KnowledgeGraph, config: Config) -> KnowledgeGraph:
    """Return a graph with a valid split. If it has none, some training triples are held out, with a warning."""
    graph = graph.with_validation(config.seed)
    if graph.moved_to_valid:
        count = pluralize(graph.moved_to_valid, "training triple is", "training triples are")
        log.warning("the graph has no valid split, so %s held out for λ and calibration", count)
    return graph
