"""Evaluation of a trained model on a split: filtered ranks, and the calibration quality of its probabilities."""

from dataclasses import replace

from plogicnet.config import Config
from plogicnet.evaluation.calibration import reliability, sample
from plogicnet.evaluation.ranking import filter_splits, rank
from plogicnet.evaluation.results import RankingMetrics, SplitMetrics
from plogicnet.inference.fitted import FittedModel
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, no_progress
from plogicnet.training.selection import ranking_orders


def evaluate(fitted: FittedModel, config: Config, split: str, progress: Progress = no_progress) -> SplitMetrics:
    """Compute the metrics of every ranking on a split, and the calibration quality of the probabilities."""
    if not len(fitted.graph.split(split)):
        other = next((s for s in ("valid", "test") if len(fitted.graph.split(s))), None)
        raise InputError(f"the run has no {split} triples." + (f" Use --split {other}." if other else ""))
    if split == "train":
        raise InputError("cannot evaluate on train: the model was trained on it. Use valid or test.")
    orders, memory = ranking_orders(config, fitted.outcome.lambda_), config.evaluation.batch_memory_mb
    ranks = rank(fitted.graph, split, fitted.outcome.neural, fitted.rules, orders, memory, progress)
    labels = sample(fitted.graph, split, filter_splits(split), config.seed, fitted.outcome.neural)
    calibrated, raw = fitted.probabilities(labels.triples).T
    uncalibrated = replace(reliability(raw, labels), curve=())
    return SplitMetrics(
        split=split,
        lambda_=fitted.outcome.lambda_,
        rankings={name: RankingMetrics.from_ranks(fitted.graph, split, r) for name, r in ranks.items()},
        calibration=replace(reliability(calibrated, labels), uncalibrated=uncalibrated),
    )
