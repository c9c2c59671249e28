"""A `Hooks.inspect` that ranks the test triples after each EM iteration, with the variants that the tables show."""

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plogicnet.config import Config
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.device import pick_device
from plogicnet.support.progress import Progress, no_progress
from plogicnet.systems.system import NEURAL, PLOGICNET_STAR_KEY, RULES
from plogicnet.training.selection import ranking_orders
from plogicnet.training.state import Outcome

ROOT = Path(__file__).resolve().parents[1]
SELF_LOOPS = ", self-loops compete"
"""Suffix of a ranking without the irreflexive constraint."""
TOP_100 = ", top 100"
"""Suffix of a ranking that re-ranks only the neural model's best 100 candidates, as the authors' program does."""
UNFILTERED = f"{RULES}, known facts compete"
"""The ranking by rules alone in which triples of train and valid are candidates."""


def ranking_variants(config: Config, lambda_: float) -> dict[str, CombinedOrder]:
    """Return the rankings of a run, and the variants that the paper or the authors' program uses.

    Example:
        >>> list(ranking_variants(Config().with_values({"em.neural": False}), 0.5))
        ['rules', 'plogicnet*', 'rules, self-loops compete']
    """
    named = ranking_orders(config, lambda_)
    if config.em.neural:
        named[PLOGICNET_STAR_KEY + SELF_LOOPS] = replace(named[PLOGICNET_STAR_KEY], constraint=False)
        named[PLOGICNET_STAR_KEY + TOP_100] = replace(named[PLOGICNET_STAR_KEY], rerank=100)
    else:
        named[RULES + SELF_LOOPS] = replace(named[RULES], constraint=False)
    if not config.em.rules:
        return {NEURAL: named[NEURAL]}
    return named


def rank_test(
    config: Config, commit: str | None, progress: Progress = no_progress
) -> Callable[[KnowledgeGraph, Outcome], Mapping[str, Any]]:
    """Return a `Hooks.inspect` that ranks the test triples, and records the commit and the device.

    The test metrics do not influence the training.
    """

    def inspect(graph: KnowledgeGraph, now: Outcome) -> Mapping[str, Any]:
        scores, memory = now.rule_model.scores(graph), config.evaluation.batch_memory_mb
        ranks = rank(graph, "test", now.neural, scores, ranking_variants(config, now.lambda_), memory, progress)
        if now.neural is None:
            unfiltered = {UNFILTERED: CombinedOrder(neural=False)}
            ranks |= rank(graph, "test", None, scores, unfiltered, memory, progress, filtered=["test"])
        metrics: dict[str, Any] = {name: compute_metrics(each.realistic) for name, each in ranks.items()}
        if now.neural is None:  # rules alone have many ties
            for name, each in ranks.items():
                metrics[name] |= {
                    "optimistic": compute_metrics(each.optimistic),
                    "pessimistic": compute_metrics(each.pessimistic),
                }
        made = {"commit": commit or source_commit(), "device": device_name(config.device), "graph": graph.name}
        return {"test": metrics, "made": made}

    return inspect


def device_name(device: str) -> str:
    """Return the name of the GPU, or the processor type.

    Example:
        >>> device_name("cpu") == f"CPU ({platform.machine()})"
        True
    """
    return torch.cuda.get_device_name() if pick_device(device).type == "cuda" else f"CPU ({platform.machine()})"


def source_commit() -> str | None:
    """Return the commit of the source, from $PLOGICNET_COMMIT or git, with a mark if files have changed since."""
    if given := os.environ.get("PLOGICNET_COMMIT"):
        return given

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        commit, changed = git("rev-parse", "--short", "HEAD"), git("status", "--porcelain", "src", "reproduction")
    except OSError:  # git is not installed
        return None
    return (commit + (" with changes" if changed else "")) or None
