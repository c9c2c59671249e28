"""Mining of longer chains and of rules with constants, and a proof that pruning changes no rule.

- `pruned`: the rules of the patterns, with support and hits, from the native engine and from the SQL engine, which
  counts all bodies. They must be equal.
- `hub`: a graph with an entity of 100,000 facts in and as many out, so ten billion paths of two steps.
- the other rows: time and peak memory of mining. Each is a separate process. Compiled code is loaded first.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from results import save

Row = dict[str, object]
DATA_SETS = ("countries-s1", "countries-s2", "countries-s3", "nations", "umls", "kinship", "codex-s", "wn18rr", "wn18",
             "fb15k-237", "fb15k")  # fmt: skip
HUB_EDGES = 100_000
LENGTH_3: Row = {"rules.max_length": 3, "rules.backward": True, "rules.min_hits": 2}
MINED: dict[str, tuple[str, Row]] = {
    "wn18rr, length 3, backward, constants": ("wn18rr", LENGTH_3 | {"rules.constants": True}),
    "fb15k-237, length 2, backward, constants": (
        "fb15k-237",
        {"rules.backward": True, "rules.constants": True, "rules.min_hits": 2},
    ),
    "fb15k-237, length 3, backward, budget 100 s": ("fb15k-237", LENGTH_3 | {"rules.budget_s": 100}),
}


def pruned(name: str) -> Row:
    """Compare the native engine with the SQL engine, rule by rule."""
    from plogicnet import config
    from plogicnet.graph import open_graph
    from plogicnet.grounding.engine import Resources
    from plogicnet.grounding.native.engine import NATIVE
    from plogicnet.grounding.sql.duckdb import SQL

    graph, row = open_graph(name), {}
    for threshold in (0.6, 0.1):
        settings = config.Rules(min_precision=config.MinPrecision(*4 * [threshold]))
        native, sql = (engine.mine(graph, settings, Resources()) for engine in (NATIVE, SQL))
        equal = native.rules.rules == sql.rules.rules and native.n_candidates == sql.n_candidates
        equal &= np.array_equal(native.rules.support, sql.rules.support)
        equal &= np.array_equal(native.rules.hits, sql.rules.hits)
        row[f"precision {threshold}"] = {"rules": len(native.rules), "equal": bool(equal)}
    return {"pruned": name, **row}


def hub(backward: bool) -> Row:
    """Mine a graph with one hub and as many other facts, of ten relations."""
    from plogicnet.config import Config
    from plogicnet.graph import KnowledgeGraph, Vocabulary, as_triples

    rng, n = np.random.default_rng(0), HUB_EDGES
    into = np.stack([np.arange(1, n + 1), rng.integers(0, 5, n), np.zeros(n, int)], axis=1)
    out = np.stack([np.zeros(n, int), rng.integers(5, 10, n), np.arange(n + 1, 2 * n + 1)], axis=1)
    other = np.stack([rng.integers(1, 2 * n, 2 * n), rng.integers(0, 10, 2 * n), rng.integers(1, 2 * n, 2 * n)], axis=1)
    triples = as_triples(np.concatenate([into, out, other]))
    entities = Vocabulary("entity", tuple(map(str, range(2 * n + 1))))
    relations = Vocabulary("relation", tuple(f"r{i}" for i in range(10)))
    graph = KnowledgeGraph.from_ids(entities, relations, [triples, as_triples([]), as_triples([])], "hub")
    degree = [np.bincount(triples[:, side], minlength=2 * n + 1) for side in (0, 2)]
    return {"triples": len(triples), "two-step paths": int(degree[0] @ degree[1])} | timed(
        graph, Config().with_values({"rules.backward": backward, "rules.min_hits": 2})
    )


def mined(name: str) -> Row:
    """Mine a data set."""
    from plogicnet.config import Config
    from plogicnet.graph import open_graph

    data_set, settings = MINED[name]
    return {"settings": settings} | timed(open_graph(data_set), Config().with_values(settings))


def timed(graph, config) -> Row:  # type: ignore[no-untyped-def]
    """Mine twice, first a small graph, and return the times, the counts and the peak memory."""
    from plogicnet.graph import demo_family
    from plogicnet.grounding.rulebook import collect_rules

    collect_rules(demo_family(), config.with_values({"rules.budget_s": 0}))
    if config.rules.budget_s:  # sampling has compiled code of its own
        sampled = {"rules.budget_s": 0, "rules.sampled_walks": 1000, "rules.counted_paths": 1000}
        collect_rules(demo_family(), config.with_values(sampled))
    start, start_cpu = time.perf_counter(), time.process_time()
    found = collect_rules(graph, config)
    seconds = {"seconds": round(time.perf_counter() - start, 1), "cpu": round(time.process_time() - start_cpu, 1)}
    peak = {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
    return {"rules": found.rules.counts(), "candidates": found.n_candidates, **seconds, **peak, "mined": found.mined}


def child(part: str) -> Row:
    """Run one part of this script in a separate process."""
    finished = subprocess.run([sys.executable, __file__, "--part", part], stdout=subprocess.PIPE, text=True, check=True)
    row: Row = json.loads(finished.stdout.splitlines()[-1])
    return row


def main() -> None:
    """Print the results and save docs/results/longer-rules.json. Exit with 1 if pruning changed a rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts: dict[str, Callable[[], Row]] = {"hub": lambda: hub(False), "hub, backward": lambda: hub(True)}
    parts |= {name: (lambda name=name: mined(name)) for name in MINED}  # type: ignore[misc]
    parts |= {f"pruned {name}": (lambda name=name: pruned(name)) for name in DATA_SETS}  # type: ignore[misc]
    if options.part:
        print(json.dumps(parts[options.part]()))
        return
    results: dict[str, object] = {}
    for part in parts:
        results[part] = child(part)
        print(json.dumps({part: results[part]}), flush=True)
        save("longer-rules", results)
    sys.exit('"equal": false' in json.dumps(results))


if __name__ == "__main__":
    main()
