"""A `Hooks.inspect`: the test ranks after each EM iteration, with the variants that the tables show."""

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plogicnet.config import Config
from plogicnet.evaluation.metrics import summary
from plogicnet.evaluation.orders import Combination
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import KnowledgeGraph
from plogicnet.neural.device import pick_device
from plogicnet.support.progress import Progress, silent
from plogicnet.systems.system import NEURAL, RULES, STAR
from plogicnet.training.selection import rankings
from plogicnet.training.state import Outcome

ROOT = Path(__file__).resolve().parents[1]
SELF_LOOPS = ", self-loops compete"
"""Without the irreflexive constraint."""
TOP_100 = ", top 100"
"""With only the neural model's best hundred candidates re-ranked, as in the authors' program."""
UNFILTERED = f"{RULES}, known facts compete"
"""The rules alone with facts of train and valid among the candidates."""


def variants(config: Config, lambda_: float) -> dict[str, Combination]:
    """The rankings of a run, and those that the paper or the authors' program has instead.

    Example:
        >>> list(variants(Config().with_values({"em.neural": False}), 0.5))
        ['rules', 'plogicnet*', 'rules, self-loops compete']
    """
    named = rankings(config, lambda_)
    if config.em.neural:
        named[STAR + SELF_LOOPS] = replace(named[STAR], constraint=False)
        named[STAR + TOP_100] = replace(named[STAR], rerank=100)
    else:
        named[RULES + SELF_LOOPS] = replace(named[RULES], constraint=False)
    if not config.em.rules:
        return {NEURAL: named[NEURAL]}
    return named


def rank_test(
    config: Config, commit: str | None, progress: Progress = silent
) -> Callable[[KnowledgeGraph, Outcome], Mapping[str, Any]]:
    """A `Hooks.inspect` that ranks the test triples, and records the commit and the device; nothing is chosen by it."""

    def inspect(graph: KnowledgeGraph, now: Outcome) -> Mapping[str, Any]:
        scores, memory = now.rule_model.scores(graph), config.evaluation.batch_memory_mb
        ranks = rank(graph, "test", now.neural, scores, variants(config, now.lambda_), memory, progress)
        if now.neural is None:
            alone = {UNFILTERED: Combination(neural=False)}
            ranks |= rank(graph, "test", None, scores, alone, memory, progress, filtered=["test"])
        figures: dict[str, Any] = {name: summary(of.realistic) for name, of in ranks.items()}
        if now.neural is None:  # rules alone tie often
            for name, of in ranks.items():
                figures[name] |= {"optimistic": summary(of.optimistic), "pessimistic": summary(of.pessimistic)}
        made = {"commit": commit or source_commit(), "device": device_name(config.device), "graph": graph.name}
        return {"test": figures, "made": made}

    return inspect


def device_name(device: str) -> str:
    """The GPU's name, or the processor's kind.

    Example:
        >>> device_name("cpu") == f"CPU ({platform.machine()})"
        True
    """
    return torch.cuda.get_device_name() if pick_device(device).type == "cuda" else f"CPU ({platform.machine()})"


def source_commit() -> str | None:
    """The commit of this source, marked where files differ from it: $PLOGICNET_COMMIT, or git's answer."""
    if given := os.environ.get("PLOGICNET_COMMIT"):
        return given

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        commit, changed = git("rev-parse", "--short", "HEAD"), git("status", "--porcelain", "src", "reproduction")
    except OSError:  # no git here
        return None
    return (commit + (" with changes" if changed else "")) or None
