"""The variational EM loop: the one place where the rule model and the embedding model meet."""

import copy
import hashlib
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import special

from plogicnet.baselines import learn, make_guide, make_rule_model, warn_of_no_rules
from plogicnet.config import Config
from plogicnet.errors import InputError
from plogicnet.evaluation import Ranks, System, rank, sample, summary
from plogicnet.files import checksum, locked, write_text
from plogicnet.graph import BoolArray, FloatArray, KnowledgeGraph, TripleSet
from plogicnet.kge import Checkpoint, Embedding, Examples, Guide, VectorModel, platt
from plogicnet.kge.models import make_geometry
from plogicnet.kge.vector_model import pick_device
from plogicnet.memory import require_bytes
from plogicnet.mln import RuleModel, RuleScores
from plogicnet.progress import Clock, Progress, silent
from plogicnet.rules import RuleTable

log = logging.getLogger(__name__)
OPTIMISER_BYTES = 130 * 2**20
"""What PyTorch loads when the first optimiser is made, its compiler among it."""
EXAMPLE_BYTES = 100
"""What a triple takes that is learned from: with its weight, and among the known ones that negatives are held to."""


@dataclass(frozen=True)
class Outcome:
    """What EM leaves behind after an iteration: everything that a run is made of, and that the next goes on from.

    Attributes:
        iteration: how many EM iterations led here; the history is longer where later ones were no better.
    """

    embedding: Embedding | None
    rule_model: RuleModel
    hidden_q: FloatArray
    accepted: BoolArray
    lambda_: float
    history: tuple[dict[str, Any], ...]
    iteration: int

    @property
    def merit(self) -> float:
        """How good it is on the validation triples: the MRR of pLogicNet*."""
        return float(self.history[self.iteration - 1]["valid"]["plogicnet*"]["mrr"])


Watch = Callable[[KnowledgeGraph, Outcome], Mapping[str, Any]]
"""Looks at what an iteration left behind; what it gives is added to the iteration's line of the history."""


def examples(graph: KnowledgeGraph, model: RuleModel, accepted: BoolArray, config: Config) -> Examples:
    """What the E-step learns from: O, and H's triples as the rules judge them (Eq. 7 and 8).

    Example:
        >>> examples(graph, model, accepted, config)  # doctest: +SKIP
    """
    hidden, p_w = model.groundings.hidden, model.hidden_p_w
    taken = accepted if config.em.targets == "hard" else p_w > 0
    weights = np.ones(int(taken.sum())) if config.em.targets == "hard" else p_w[taken]
    rejected = hidden[~accepted] if config.em.hidden_negatives == "explicit" else hidden[:0]
    return Examples(
        np.concatenate([graph.train, hidden[taken]]), np.concatenate([np.ones(len(graph.train)), weights]), rejected
    )


def begin(
    graph: KnowledgeGraph, config: Config, rules: RuleTable, constraints: RuleTable, progress: Progress = silent
) -> Outcome:
    """Where EM begins: rules without weights, an embedding without training.

    Example:
        >>> begin(graph, config, rules, constraints)  # doctest: +SKIP
    """
    if config.em.targets == "soft" and config.em.hidden_negatives == "explicit":
        raise InputError("em.hidden_negatives=explicit goes with em.targets=hard: soft targets reject no triple")
    model = make_rule_model(graph, config, rules, constraints, progress=progress)
    warn_of_no_rules(config, model)
    hidden_q = np.zeros(len(model.groundings.hidden))
    model.evidence.require_memory()  # now, not after an E-step of hours
    embedding = make_embedding(graph, config, make_guide(graph, config, model)) if config.em.embedding else None
    return Outcome(embedding, model, hidden_q, np.zeros(len(hidden_q), dtype=bool), 0.0, (), 0)


def make_embedding(graph: KnowledgeGraph, config: Config, guide: Guide | None = None) -> VectorModel:
    """The embedding model of the settings, untrained.

    Example:
        >>> make_embedding(graph, config)  # doctest: +SKIP
    """
    return VectorModel(len(graph.entities), len(graph.relations), config.kge, config.device, guide)


def training_bytes(graph: KnowledgeGraph, config: Config) -> int:
    """About what an E-step takes on a CPU: vectors, gradients and the optimiser's state, and a batch.

    Example:
        >>> graph = KnowledgeGraph.from_names([("anna", "knows", "ben")])
        >>> training_bytes(graph, Config()) < training_bytes(graph, Config().with_values({"kge.dim": 20_000}))
        True
    """
    kge, n = config.kge, len(graph.entities)
    geometry = make_geometry(kge, torch.device("cpu"))
    width, relation_width = geometry.widths
    vectors = n * width + len(graph.relations) * relation_width * (1 + geometry.reciprocal)
    copies = 7 + bool(kge.validate_every) + bool(config.em.patience)  # the tables, and gradients as large as they
    if kge.recipe == "sampled":
        sets = -(-kge.batch // kge.share_negatives)
        batch = 10 * kge.batch * kge.negatives + 4 * sets * kge.negatives * width + 12 * kge.batch * width
    else:
        batch = 5 * kge.batch * n
    return 4 * (copies * vectors + batch) + EXAMPLE_BYTES * len(graph.train)


def require_training(graph: KnowledgeGraph, config: Config) -> None:
    """Refuses an E-step that a memory limit has no room for.

    Example:
        >>> require_training(graph, config)  # doctest: +SKIP
    """
    if pick_device(config.device).type == "cpu":
        require_bytes(
            training_bytes(graph, config) + (0 if "torch._dynamo" in sys.modules else OPTIMISER_BYTES),
            f"training vectors of {config.kge.dim} dimensions for {len(graph.entities):,} entities",
            "take a smaller kge.dim or kge.batch",
        )


def run_em(
    graph: KnowledgeGraph,
    config: Config,
    start: Outcome,
    clock: Clock,
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
    reached: Callable[[Outcome, Outcome], None] = lambda *_: None,
    best: Outcome | None = None,
    watch: Watch = lambda *_: {},
    shared: Path | None = None,
) -> Outcome:
    """Trains q_θ and p_w in turn; the first E-step learns from the observed triples alone.

    Args:
        graph: what to learn from.
        config: the settings.
        start: where to go on from; `begin` gives the beginning.
        clock: takes the times.
        progress: how long steps are shown.
        checkpoint: where an E-step keeps its place.
        reached: is told what each iteration leaves behind, and which one would be given back if it were the last.
        best: the best of the iterations before `start`; with em.patience, the best of all is what is given back.
        watch: looks at each iteration; it decides nothing.
        shared: where trainings that begin alike leave the vectors of their first E-step to each other.

    Example:
        >>> run_em(graph, config, begin(graph, config, rules, constraints), Clock())  # doctest: +SKIP
    """
    now = start
    while not is_over(now, config):
        now = _iterated(graph, config, now, clock, progress, checkpoint, shared)
        now = replace(now, history=(*now.history[:-1], {**now.history[-1], **watch(graph, now)}))
        log.info("EM iteration %d: %s", now.iteration, now.history[-1])
        if config.em.patience and (best is None or now.merit > best.merit):
            best = now
        reached(now, best or now)
    return now if best is None else replace(best, history=now.history)


def is_over(now: Outcome, config: Config) -> bool:
    """Whether all iterations are done, or as many without gain as em.patience allows.

    Example:
        >>> is_over(outcome, config)  # doctest: +SKIP
    """
    # without the one half there is nothing to iterate over
    iterations = config.em.iterations if config.em.embedding and len(now.rule_model.rules) else 1
    merits = [line["valid"]["plogicnet*"]["mrr"] for line in now.history]
    stalled = config.em.patience and merits and len(merits) - 1 - int(np.argmax(merits)) >= config.em.patience
    return now.iteration >= iterations or bool(stalled)


def _iterated(
    graph: KnowledgeGraph,
    config: Config,
    last: Outcome,
    clock: Clock,
    progress: Progress,
    checkpoint: Checkpoint | None,
    shared: Path | None,
) -> Outcome:
    """One E-step and one M-step."""
    iteration, model, hidden_q = last.iteration + 1, last.rule_model, last.hidden_q
    # an E-step trains in place, and the last vectors may be the best
    embedding = copy.deepcopy(last.embedding) if config.em.patience else last.embedding
    seed = config.seed * 1000 + iteration
    if embedding is not None:
        require_training(graph, config)
        learned_from = examples(graph, model, last.accepted, config) if iteration > 1 else Examples.of(graph.train)
        judge = partial(_merit, graph, config, embedding) if config.kge.validate_every else None
        warm = config.em.warm_start and iteration > 1
        fit = partial(embedding.fit, learned_from, seed, warm, progress, validate=judge, checkpoint=checkpoint)
        if shared is None or iteration > 1 or config.system != "plogicnet":
            with clock("e_step"):
                fit()
        else:
            _fit_once(embedding, fit, shared / _digest(graph, config, seed), clock)
        if config.kge.recipe == "one_vs_all":
            with clock("e_step"):
                _scale(graph, config, embedding)
        hidden_q = _hidden_q(embedding, model)
    return _after_m_step(graph, config, replace(last, embedding=embedding), hidden_q, clock, progress)


def _digest(graph: KnowledgeGraph, config: Config, seed: int) -> str:
    """What the first E-step hangs on, the code that makes it among it: with all of it the same, its vectors are."""
    sizes = [len(x) for x in (graph.entities, graph.relations, graph.train, graph.valid)]
    about = (config.kge, seed, pick_device(config.device).type, bool(find_spec("triton")), sizes)
    digest = hashlib.sha256(repr(about).encode())
    for file in sorted((Path(__file__).parent / "kge").rglob("*.py")):
        digest.update(file.read_bytes())
    for triples in (graph.train, graph.valid if config.kge.validate_every else graph.train[:0]):
        digest.update(np.ascontiguousarray(triples).tobytes())
    return digest.hexdigest()[:32]


def _fit_once(embedding: Embedding, fit: Callable[[], None], folder: Path, clock: Clock) -> None:
    """Trains, or takes the vectors that another training left; of two at once, the second waits for the first."""
    folder.mkdir(parents=True, exist_ok=True)
    vectors, kept = folder / "embeddings.safetensors", folder / "sha256"
    with locked(folder, wait=True):
        whole = not kept.is_file() or kept.read_text(encoding="utf-8").strip() == checksum(vectors)
        if vectors.is_file() and not whole:
            log.warning("%s is damaged: it does not fit its checksum; this E-step is trained anew", vectors)
            vectors.unlink()  # without its checksum, should this be killed, it would pass for whole
        elif vectors.is_file():
            with clock("e_step_shared"):
                embedding.load(vectors)
            log.info("the first E-step is taken from %s", vectors)
            return
        with clock("e_step"):
            fit()
        kept.unlink(missing_ok=True)
        embedding.save(vectors)
        write_text(kept, checksum(vectors) + "\n")


def _hidden_q(embedding: Embedding | None, model: RuleModel) -> FloatArray:
    hidden = model.groundings.hidden
    return np.zeros(len(hidden)) if embedding is None else torch.sigmoid(embedding.score(hidden).double()).cpu().numpy()


def _after_m_step(
    graph: KnowledgeGraph, config: Config, last: Outcome, hidden_q: FloatArray, clock: Clock, progress: Progress
) -> Outcome:
    """The M-step with the embedding as it is, and how good both are on validation."""
    iteration, embedding = last.iteration + 1, last.embedding
    with clock("m_step"):
        model = learn(last.rule_model, hidden_q, config, config.seed * 1000 + iteration)
    accepted = model.hidden_p_w >= config.em.tau_triplet
    with clock("validate"):
        lambda_, figures = validate(graph, config, embedding, model.scores(graph), progress)
    line = {
        "iteration": iteration,
        **_discovered(graph, model, accepted),
        "elbo": _elbo_parts(model, hidden_q),
        "lambda": lambda_,
        "valid": figures,
    }
    history = (*last.history[: last.iteration], line)
    return Outcome(embedding, model, hidden_q, accepted, lambda_, history, iteration)


def _merit(graph: KnowledgeGraph, config: Config, embedding: Embedding) -> float:
    """The embedding's own MRR on valid, by which its training may stop early."""
    alone, memory = {"embedding": System(constraint=False)}, config.evaluation.batch_memory_mb
    ranks = rank(graph, "valid", embedding, _no_rules(graph), alone, memory)
    return float(summary(ranks["embedding"].realistic)["mrr"])


def _no_rules(graph: KnowledgeGraph) -> RuleScores:
    none = TripleSet.of([], len(graph.entities))
    n = len(graph.relations)
    return RuleScores(none, np.zeros(0), np.zeros(n), np.zeros(n, dtype=bool), graph.observed)


def _scale(graph: KnowledgeGraph, config: Config, embedding: Embedding) -> None:
    """Makes σ(score) of a softmax-trained model a probability, by validation triples against sampled corruptions."""
    if not len(graph.valid):
        return
    labels = sample(graph, "valid", ["train", "valid"], config.seed)
    scores = embedding.score(labels.triples).double().cpu().numpy()
    embedding.rescale(*platt(scores, labels.label, labels.count))


def _elbo_parts(model: RuleModel, hidden_q: FloatArray) -> dict[str, float]:
    """The parts of Eq. 4's bound that can be had: the pseudolikelihood under q in place of E_q log p, and q's entropy.

    Both over the triples that some rule reaches; what no rule reaches is the same for all weights.
    """
    reached = np.diff(model.matrix.indptr) > 0
    target = np.ones(len(reached))
    target[~model.groundings.observed] = hidden_q
    odds = model.log_odds
    likelihood = np.sum((target * odds - np.logaddexp(0.0, odds))[reached])
    return {"pseudolikelihood": float(likelihood), "entropy": float(np.sum(special.entr([hidden_q, 1 - hidden_q])))}


def refit(
    graph: KnowledgeGraph,
    config: Config,
    last: Outcome,
    rules: RuleTable,
    constraints: RuleTable,
    clock: Clock,
    progress: Progress = silent,
) -> Outcome:
    """An M-step for these rules, with the embedding as it is; the history ends with it.

    Example:
        >>> refit(graph, config, outcome, rules, constraints, Clock())  # doctest: +SKIP
    """
    with clock("ground"):
        model = make_rule_model(graph, config, rules, constraints, progress=progress)
        hidden_q = _hidden_q(last.embedding, model)
    before = replace(last, rule_model=model, iteration=last.iteration - 1)
    return _after_m_step(graph, config, before, hidden_q, clock, progress)


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


def ties(config: Config, outcome: Outcome) -> System:
    """pLogicNet*'s order over all candidates: what decides between predictions of equal probability.

    Example:
        >>> ties(Config(), outcome)  # doctest: +SKIP
    """
    return replace(systems(config, outcome.lambda_)["plogicnet*"], rerank=0)


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
