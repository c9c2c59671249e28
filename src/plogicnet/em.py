"""The variational EM loop: the one place where the rule model and the embedding model meet."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from plogicnet.config import Config
from plogicnet.evaluation import Ranks, System, rank, summary
from plogicnet.graph import BoolArray, FloatArray, KnowledgeGraph, TripleSet
from plogicnet.kge import Embedding, Examples, VectorModel
from plogicnet.mln import RuleModel, RuleScores, build_rule_model, m_step
from plogicnet.progress import Clock, Progress, silent
from plogicnet.rules import RuleTable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What EM leaves behind: everything that a run is made of."""

    embedding: Embedding | None
    rule_model: RuleModel
    hidden_q: FloatArray
    accepted: BoolArray
    lambda_: float
    history: tuple[dict[str, object], ...]


def examples(graph: KnowledgeGraph, model: RuleModel, accepted: BoolArray, config: Config) -> Examples:
    """What the E-step learns from: O, and H's triples as the rules judge them (Eq. 7 and 8).

    Example:
        >>> examples(graph, model, accepted, config)  # doctest: +SKIP
    """
    hidden, p_w = model.groundings.hidden, model.hidden_p_w
    taken = accepted if config.em.targets == "hard" else p_w > 0
    weights = np.ones(int(taken.sum())) if config.em.targets == "hard" else p_w[taken]
    return Examples.of(
        np.concatenate([graph.train, hidden[taken]]), np.concatenate([np.ones(len(graph.train)), weights])
    )


def run_em(
    graph: KnowledgeGraph,
    config: Config,
    rules: RuleTable,
    constraints: RuleTable,
    clock: Clock,
    progress: Progress = silent,
) -> Outcome:
    """Trains q_θ and p_w in turn; the first E-step learns from the observed triples alone.

    Example:
        >>> run_em(graph, config, rules, constraints, Clock())  # doctest: +SKIP
    """
    with clock("ground"):
        model = build_rule_model(graph, config, rules, constraints, progress=progress)
        hidden_q = np.zeros(len(model.groundings.hidden))
    embedding = None
    if config.em.embedding:
        embedding = VectorModel(len(graph.entities), len(graph.relations), config.kge, config.device)
    accepted = np.zeros(len(hidden_q), dtype=bool)
    history: list[dict[str, object]] = []
    lambda_ = 0.0
    # without the one half there is nothing to iterate over
    iterations = config.em.iterations if config.em.embedding and len(rules) else 1
    for iteration in range(1, iterations + 1):
        seed = config.seed * 1000 + iteration
        if embedding is not None:
            learned_from = examples(graph, model, accepted, config) if iteration > 1 else Examples.of(graph.train)
            with clock("e_step"):
                embedding.fit(learned_from, seed, warm=config.em.warm_start and iteration > 1, progress=progress)
            hidden_q = torch.sigmoid(embedding.score(model.groundings.hidden).double()).cpu().numpy()
        with clock("m_step"):
            model = m_step(model, hidden_q, config, seed)
        accepted = model.hidden_p_w >= config.em.tau_triplet
        with clock("validate"):
            lambda_, figures = validate(graph, config, embedding, model.scores(graph), progress)
        history.append(
            {
                "iteration": iteration,
                **_discovered(graph, model, accepted),
                "lambda": lambda_,
                "valid": figures,
            }
        )
        log.info("EM iteration %d of %d: %s", iteration, iterations, history[-1])
    return Outcome(embedding, model, hidden_q, accepted, lambda_, tuple(history))


def systems(config: Config, lambda_: float) -> dict[str, System]:
    """The systems that are compared: each half alone, pLogicNet and pLogicNet*.

    Example:
        >>> list(systems(Config(), 0.5))
        ['embedding', 'rules', 'plogicnet', 'plogicnet*']
    """
    rerank = 0 if config.evaluation.rerank == "all" else config.evaluation.rerank
    star = System(config.em.embedding, lambda_, combine=config.em.combine, rerank=rerank)
    named = {
        "embedding": System(constraint=False),
        "rules": System(embedding=False),
        "plogicnet": System(),
        "plogicnet*": star,
    }
    return named if config.em.embedding else {"rules": named["rules"], "plogicnet*": star}


def validate(
    graph: KnowledgeGraph, config: Config, embedding: Embedding | None, rules: RuleScores, progress: Progress
) -> tuple[float, dict[str, dict[str, float]]]:
    """Chooses λ on the validation triples, and gives each system's figures there.

    Example:
        >>> validate(graph, config, embedding, rules, silent)  # doctest: +SKIP
    """
    given = config.em.lambda_
    # a λ of zero stands first, so that rules that add nothing are given nothing
    grid = sorted(set(config.em.lambda_grid)) if given == "auto" else [float(given)]
    if embedding is None or not len(rules.reached):
        grid = grid[:1] if given != "auto" else [0.0]
    named = {f"λ={value!r}": systems(config, value)["plogicnet*"] for value in grid}
    compared = {name: s for name, s in systems(config, 0.0).items() if name != "plogicnet*"} | named
    ranks: Mapping[str, Ranks] = rank(
        graph, "valid", embedding, rules, compared, config.evaluation.batch_memory_mb, progress
    )
    figures = {name: summary(r.realistic) for name, r in ranks.items()}
    best = max(grid, key=lambda value: (figures[f"λ={value!r}"]["mrr"], -value))
    kept = {name: figures[name] for name in compared if name not in named}
    return best, kept | {"plogicnet*": figures[f"λ={best!r}"]}


def _discovered(graph: KnowledgeGraph, model: RuleModel, accepted: BoolArray) -> dict[str, object]:
    """How many hidden triples the rules accept, and the share of them found among held-out facts (Table 5)."""
    held_out = TripleSet.of(np.concatenate([graph.valid, graph.test]), len(graph.entities))
    found = held_out.contains(model.groundings.hidden[accepted])
    return {
        "hidden": len(accepted),
        "accepted": int(accepted.sum()),
        "accepted_precision": float(found.mean()) if len(found) else None,
    }
