"""The figures of a trained model on a split: filtered ranks, and how good its probabilities are."""

from dataclasses import replace

from plogicnet.config import Config
from plogicnet.evaluation.calibration import reliability, sample
from plogicnet.evaluation.figures import RankingFigures, SplitFigures
from plogicnet.evaluation.ranking import filter_splits, rank
from plogicnet.inference.fitted import Fitted
from plogicnet.support.errors import InputError
from plogicnet.support.progress import Progress, silent
from plogicnet.training.selection import rankings


def evaluate(f: Fitted, config: Config, split: str, progress: Progress = silent) -> SplitFigures:
    """Filtered ranks of a split by each half alone, pLogicNet and pLogicNet*, and how good the probabilities are."""
    if not len(f.graph.split(split)):
        raise InputError(f"the graph has no {split} triples to evaluate on")
    if split == "train":
        raise InputError("train is what the model learned from; evaluate on valid or test")
    compared, memory = rankings(config, f.outcome.lambda_), config.evaluation.batch_memory_mb
    ranks = rank(f.graph, split, f.outcome.neural, f.rules, compared, memory, progress)
    labels = sample(f.graph, split, filter_splits(split), config.seed)
    calibrated, raw = f.probabilities(labels.triples).T
    uncalibrated = replace(reliability(raw, labels), curve=())
    return SplitFigures(
        split=split,
        lambda_=f.outcome.lambda_,
        rankings={name: RankingFigures.of(f.graph, split, r) for name, r in ranks.items()},
        calibration=replace(reliability(calibrated, labels), uncalibrated=uncalibrated),
    )
