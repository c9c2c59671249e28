"""Benchmark results as JSON files in docs/results, with the command and the commit that produced them."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

from plogicnet.graph import KnowledgeGraph, TripleSet, as_triples
from plogicnet.mln import RuleScores
from plogicnet.support.files import write_text

ROOT = Path(__file__).resolve().parent.parent


def current_commit() -> str:
    """Return the short name of the current commit, and whether `src` has changes that are not in it."""
    commands = (["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "src"])
    commit, changed = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for command in commands
    )
    return commit + (" with changes" if changed else "")


def no_rules(graph: KnowledgeGraph) -> RuleScores:
    """Return the scores of no rules, for ranking with a neural model alone."""
    n, nothing = len(graph.relations), TripleSet.of(as_triples([]), len(graph.entities))
    return RuleScores(nothing, np.empty(0), np.zeros(n), np.zeros(n, dtype=bool), graph.observed)


def save(name: str, results: dict[str, object]) -> Path:
    """Write docs/results/NAME.json and return its path."""
    origin = {
        "command": "python " + " ".join([str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]]),
        "commit": current_commit(),
        "python": platform.python_version(),
    }
    file = ROOT / "docs" / "results" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(origin | results, indent=1, ensure_ascii=False) + "\n")
    return file
