"""Validation metrics of rules alone (em.neural=false): how groundings are aggregated, and negative evidence.

Test triples are not used, because the table is there to choose settings.
"""

import argparse
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, demo_family, open_graph
from plogicnet.training.em import mine_and_ground, run_em
from plogicnet.training.hooks import Hooks
from results import save

FAMILY = "family"
DATASETS = (FAMILY, "umls", "kinship", "codex-s", "wn18rr", "fb15k-237")
WAYS: dict[str, dict[str, object]] = {
    "sum": {"mln.aggregate": "sum"},
    "mean": {"mln.aggregate": "mean"},
    "saturating": {"mln.aggregate": "saturating"},
    "functional": {"rules.negative": ["functional"]},
    "disjoint": {"rules.negative": ["disjoint"]},
    "functional and disjoint": {"rules.negative": ["functional", "disjoint"]},
}


def measure(graph: KnowledgeGraph, way: str, assignments: list[str]) -> dict[str, Any]:
    """Return the validation metrics of rules alone, the number of rules per pattern, and the seconds."""
    config = Config().with_assignments(assignments).with_values({"em.neural": False, "threads": 1, **WAYS[way]})
    started = time.perf_counter()
    hooks = Hooks()
    state, _ = mine_and_ground(graph, config, (), hooks)
    outcome = run_em(graph, config, state, hooks)
    seconds = round(time.perf_counter() - started, 1)
    return {**outcome.history[-1].valid["rules"], "rules": outcome.rule_model.rules.counts(), "seconds": seconds}


def main() -> None:
    """Print the table and save docs/results/rule-settings.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=DATASETS)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--set", action="append", default=[], dest="assignments", metavar="SETTING=VALUE")
    parser.add_argument("--name", default="rule-settings", help="name of the file in docs/results")
    arguments = parser.parse_args()
    table = Table("graph", *arguments.ways, title="validation MRR of rules alone")
    results: dict[str, dict[str, Any]] = {}
    for name in arguments.datasets:
        graph = demo_family(0) if name == FAMILY else open_graph(name)
        results[name] = {}
        for way in arguments.ways:
            results[name][way] = measure(graph, way, arguments.assignments)
            print(name, way, results[name][way], file=sys.stderr)
        table.add_row(name, *(f"{result['mrr']:.3f}" for result in results[name].values()))
    Console().print(table)
    print(save(arguments.name, {"settings": arguments.assignments, "valid": results}))


if __name__ == "__main__":
    main()
