"""What is looked at after each EM iteration of a reproduction: the test ranks, of all the variants that matter."""

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from plogicnet.config import Config
from plogicnet.em import Outcome, Watch, systems
from plogicnet.evaluation import Ranks, System, rank, summary
from plogicnet.graph import KnowledgeGraph
from plogicnet.kge.vector_model import pick_device
from plogicnet.progress import Progress, silent

TOP = 100
"""The authors' program re-ranks so many of the embedding's best."""
UNFILTERED = "rules, known facts compete"
"""The rules alone with facts of train and valid among the candidates."""


def variants(config: Config, lambda_: float) -> dict[str, System]:
    """The systems of a run and what the paper or the authors' program would have instead.

    Example:
        >>> list(variants(Config().with_values({"em.embedding": False}), 0.5))
        ['rules', 'plogicnet*', 'rules, self-loops compete']
    """
    named = systems(config, lambda_)
    if config.em.embedding:
        star = named["plogicnet*"]
        named["plogicnet*, self-loops compete"] = replace(star, constraint=False)
        named["plogicnet*, top 100"] = replace(star, rerank=TOP)
    else:
        named["rules, self-loops compete"] = replace(named["rules"], constraint=False)
    if not config.em.rules:
        return {"embedding": named["embedding"]}
    return named


def watching(config: Config, commit: str | None, progress: Progress = silent) -> Watch:
    """Ranks the test triples after each EM iteration, for the history; nothing is chosen by it.

    Example:
        >>> watching(Config(), None)  # doctest: +SKIP
    """

    def watch(graph: KnowledgeGraph, now: Outcome) -> Mapping[str, Any]:
        if not len(graph.test):
            return {}
        scores, memory = now.rule_model.scores(graph), config.evaluation.batch_memory_mb
        ranks = rank(graph, "test", now.embedding, scores, variants(config, now.lambda_), memory, progress)
        if now.embedding is None:
            alone = {UNFILTERED: System(embedding=False)}
            ranks |= rank(graph, "test", None, scores, alone, memory, progress, filtered=["test"])
        figures = {name: _figures(r, ties=now.embedding is None) for name, r in ranks.items()}
        made = {"commit": commit or commit_here(), "device": device_name(config.device), "graph": graph.name}
        return {"test": figures, "made": made}

    return watch


def _figures(ranks: Ranks, ties: bool) -> dict[str, object]:
    """The realistic figures; scores hardly tie, but rules alone do, and then all policies are of interest."""
    others = {"optimistic": summary(ranks.optimistic), "pessimistic": summary(ranks.pessimistic)}
    return {**summary(ranks.realistic), **(others if ties else {})}


def device_name(device: str) -> str:
    """The GPU's name, or the processor's kind.

    Example:
        >>> device_name("cpu") == f"CPU ({platform.machine()})"
        True
    """
    return torch.cuda.get_device_name() if pick_device(device).type == "cuda" else f"CPU ({platform.machine()})"


def commit_here() -> str | None:
    """The commit of this source, with a word where files differ from it: $PLOGICNET_COMMIT, or what git says.

    Example:
        >>> commit_here()  # doctest: +SKIP
    """
    if given := os.environ.get("PLOGICNET_COMMIT"):
        return given
    here = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        commit, changed = git("rev-parse", "--short", "HEAD"), git("status", "--porcelain", ".")
    except OSError:  # no git here
        return None
    return (commit + (" with changes" if changed else "")) or None
