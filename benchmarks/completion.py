"""Test facts among the candidates of completion, by the recall that was asked for, compared with pairs of known ends.

    python benchmarks/completion.py [--data umls --preset best/umls-complex] [--recalls 0.5,0.8,0.9,0.95]

A row per recall: the recall on valid, by which the effort was chosen, and that on test, the numbers of queries and
candidates, and the seconds of finding them. `known_pairs` is the simple alternative: all pairs of a head and a tail
that both occur with the relation in train.
"""

import argparse
import json
import time
from typing import Any

import numpy as np

from plogicnet import Config, PLogicNet, demo_family, open_graph
from plogicnet.config import parse_assignments
from plogicnet.graph import HEAD, RELATION, TAIL, KnowledgeGraph, TripleSet
from plogicnet.inference.fitted import FittedModel
from results import ROOT, save

FAMILY = "family"
NAME = "completion"


def by_recall(fitted: FittedModel, recalls: list[float]) -> list[dict[str, Any]]:
    """Return a row per recall."""
    graph, rows = fitted.graph, []
    for recall in recalls:
        started, pool = time.perf_counter(), fitted.pool(recall, known=["train"])
        parts = [pool.candidates(r, lambda units=1, note="": None) for r in range(len(graph.relations))]  # noqa: ARG005
        candidates = np.concatenate(parts)
        seconds = round(time.perf_counter() - started, 1)
        found = TripleSet.of(candidates, len(graph.entities)).contains(graph.test)
        row = {"asked": recall, "test_recall": round(float(found.mean()), 3), **pool.effort.to_json()}
        rows.append(row | {"queries": pool.n_queries(), "candidates": len(candidates), "seconds": seconds})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def known_pairs(graph: KnowledgeGraph) -> dict[str, Any]:
    """Return recall and number of the pairs of a known head and a known tail of each relation."""
    found, size = np.zeros(len(graph.test), dtype=bool), 0
    for relation in range(len(graph.relations)):
        facts = graph.train[graph.train[:, RELATION] == relation]
        heads, tails = np.unique(facts[:, HEAD]), np.unique(facts[:, TAIL])
        rows = graph.test[:, RELATION] == relation
        found[rows] = np.isin(graph.test[rows, HEAD], heads) & np.isin(graph.test[rows, TAIL], tails)
        size += len(heads) * len(tails) - len(facts)
    return {"candidates": size, "test_recall": round(float(found.mean()), 3)}


def main() -> None:
    """Train, measure, and add the rows of a graph to docs/results/completion.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=FAMILY)
    parser.add_argument("--preset", default="best/family")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument(
        "--recalls", type=lambda text: [float(x) for x in text.split(",")], default=[0.5, 0.8, 0.9, 0.95]
    )
    options = parser.parse_args()
    graph = demo_family() if options.data == FAMILY else open_graph(options.data)
    config = Config().with_preset(options.preset).with_values(parse_assignments(options.set))
    fitted = PLogicNet(config).fit(graph).fitted
    new = {"preset": options.preset, "set": options.set, "known_pairs": known_pairs(graph)}
    new["pool"] = by_recall(fitted, options.recalls)
    file = ROOT / "docs" / "results" / f"{NAME}.json"
    old = json.loads(file.read_text())["graphs"] if file.is_file() else {}
    print(json.dumps(new["known_pairs"]), save(NAME, {"graphs": old | {options.data: new}}))


if __name__ == "__main__":
    main()
