"""Time and memory of native mining and grounding, compared with the SQL engine and with a bare pass over the paths.

The data sets are the paper's and synthetic graphs. The bare pass is compiled code on one core over the same two-step
paths, a lower bound. `touch` only reads the end of each path. `ask` also marks it and looks up whether both ends of the
path are observed together, the minimum for counting hits. Each measurement is a separate process with its own peak
memory. Compiled code is loaded first.
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

PAPER = ("wn18rr", "wn18", "fb15k-237", "fb15k")
MILLIONS = (1, 2, 4, 8)
SHAPES = ("flat", "hubs")
LOW_THRESHOLDS = {f"rules.min_precision.{p}": 0.1 for p in ("composition", "inverse", "symmetric", "subrelation")}


def peak_mb() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def graph_of(name: str):  # type: ignore[no-untyped-def]
    """Return a data set, or a synthetic graph such as `flat-2` (two million triples)."""
    from plogicnet.graph import open_graph

    shape, _, millions = name.partition("-")
    return synthetic(shape, int(millions)) if shape in SHAPES else open_graph(name)


def synthetic(shape: str, millions: int):  # type: ignore[no-untyped-def]
    """Return a graph with ten facts per entity and 200 relations; entities are uniform (flat) or skewed (hubs).

    A tenth of the facts are inverses and a tenth are compositions of others, so that rules exist.
    """
    from plogicnet.graph import KnowledgeGraph, Vocabulary, as_triples

    rng = np.random.default_rng(millions)
    n, relations = millions * 1_000_000, 200
    entities = n // 10

    def drawn(size: int) -> np.ndarray:
        share = rng.random(size) if shape == "flat" else rng.random(size) ** 2
        return (entities * share).astype(np.int64)

    plain = np.stack([drawn(n * 8 // 10), rng.integers(0, relations // 2, n * 8 // 10), drawn(n * 8 // 10)], axis=1)
    inverse = plain[rng.integers(0, len(plain), n // 10)][:, [2, 1, 0]] + [0, relations // 4, 0]
    order = np.argsort(plain[:, 0], kind="stable")
    begin = np.searchsorted(plain[order, 0], np.arange(entities + 1))
    first = plain[rng.integers(0, len(plain), n // 4)]
    out = begin[first[:, 2] + 1] - begin[first[:, 2]]
    first, out = first[out > 0][: n // 10], out[out > 0][: n // 10]
    second = plain[order[begin[first[:, 2]] + rng.integers(0, out)]]
    composed = np.stack([first[:, 0], (first[:, 1] + second[:, 1]) % relations, second[:, 2]], axis=1)
    triples = as_triples(np.concatenate([plain, inverse, composed]))
    names = Vocabulary("entity", tuple(map(str, range(entities))))
    kinds = Vocabulary("relation", tuple(f"r{i}" for i in range(relations)))
    return KnowledgeGraph.from_ids(names, kinds, [triples, as_triples([]), as_triples([])], f"{shape}-{millions}")


def floor(name: str) -> dict[str, object]:
    """Return the times of the bare passes."""
    from numba import njit

    from plogicnet.grounding.native.compositions import SortedFacts

    @njit
    def touch(tail, begin, _marks):  # type: ignore[no-untyped-def]
        total = 0
        for k in range(len(tail)):
            for q in range(begin[tail[k]], begin[tail[k] + 1]):
                total += tail[q]
        return total

    @njit
    def ask(tail, begin, marks):  # type: ignore[no-untyped-def]
        found = 0
        for head in range(len(begin) - 1):
            for k in range(begin[head], begin[head + 1]):
                marks[0, tail[k]] = head
            for k in range(begin[head], begin[head + 1]):
                for q in range(begin[tail[k]], begin[tail[k] + 1]):
                    marks[1, tail[q]] = k
                    found += marks[0, tail[q]] == head
        return found

    graph = graph_of(name)
    facts = SortedFacts.of(graph.observed)
    marks = np.full((2, len(graph.entities)), -1, dtype=np.int64)
    begin = facts.group_begin[facts.head_begin]  # the facts of each head
    paths = int(np.bincount(facts.tail, minlength=len(graph.entities)) @ np.diff(begin))
    results: dict[str, object] = {"triples": len(graph.train), "paths": paths}
    for pass_ in (touch, ask):
        pass_(facts.tail[:0], np.zeros(1, dtype=np.int64), marks)
        times = []
        for _ in range(3):
            marks[:] = -1
            start = time.perf_counter()
            pass_(facts.tail, begin, marks)
            times.append(time.perf_counter() - start)
        results[f"floor_{pass_.__name__}"] = round(float(np.median(times)), 4)
    return results


def engine(name: str, which: str, settings: dict[str, object]) -> dict[str, object]:
    """Return the times of mining and grounding, the counts and the peak memory."""
    from plogicnet.config import Config
    from plogicnet.graph import demo_family
    from plogicnet.grounding.grounder import Grounder
    from plogicnet.grounding.rulebook import collect_rules

    config = Config().with_values({"grounding.engine": which, **settings})

    def both(graph) -> tuple[float, float, object, object]:  # type: ignore[no-untyped-def]
        start = time.perf_counter()
        found = collect_rules(graph, config)
        mined = time.perf_counter()
        grounded = Grounder.of(graph, found.rules.rules, config).network
        return mined - start, time.perf_counter() - mined, found, grounded

    both(demo_family())  # warm up: compile, or load compiled code
    graph = graph_of(name)
    runs = [both(graph) for _ in range(3 if which == "native" and len(graph.train) < 1_000_000 else 1)]
    mine, ground, found, grounded = sorted(runs, key=lambda run: run[0] + run[1])[len(runs) // 2]
    counts = {"candidates": found.n_candidates, "rules": len(found.rules)}  # type: ignore[attr-defined]
    counts |= {"hidden": len(grounded.hidden), "groundings": grounded.size}  # type: ignore[attr-defined]
    return {**counts, "mine": round(mine, 3), "ground": round(ground, 3), "peak_mb": peak_mb()}


def child(*arguments: str) -> dict[str, object]:
    """Run one part of this script in a separate process."""
    finished = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    results: dict[str, object] = json.loads(finished.stdout)
    return results


def row(name: str, sql: bool, settings: dict[str, object]) -> dict[str, object]:
    """Return the results of one graph, and whether both engines agree."""
    encoded = json.dumps(settings)
    results = child("--part", "floor", name, encoded)
    native = child("--part", "native", name, encoded)
    seconds = float(str(native["mine"])) + float(str(native["ground"]))
    for pass_ in ("touch", "ask"):
        results[f"native_by_{pass_}"] = round(seconds / float(str(results[f"floor_{pass_}"])), 1)
    results["native"] = native
    if sql:
        results["sql"] = child("--part", "sql", name, encoded)
        same = ("candidates", "rules", "hidden", "groundings")
        results["agree"] = all(native[k] == results["sql"][k] for k in same)  # type: ignore[index]
    print(name, json.dumps(results), file=sys.stderr)
    return results


def main() -> None:
    """Print the results and save docs/results/mining.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs=3, metavar=("WHICH", "GRAPH", "SETTINGS"), help=argparse.SUPPRESS)
    parser.add_argument("--no-sql", action="store_true", help="skip the SQL engine")
    parser.add_argument(
        "--millions", type=int, default=8, help="size of the largest synthetic graph, in million triples"
    )
    options = parser.parse_args()
    if options.part:
        which, name, settings = options.part
        parts: dict[str, Callable[[], dict[str, object]]] = {"floor": lambda: floor(name)}
        run = parts.get(which, lambda: engine(name, which, json.loads(settings)))
        print(json.dumps(run()))
        return
    results: dict[str, object] = {name: row(name, not options.no_sql, {}) for name in PAPER}
    results["fb15k at 0.1 for all, paths"] = row("fb15k", False, LOW_THRESHOLDS | {"rules.counting": "paths"})
    for shape in SHAPES:
        for millions in [m for m in MILLIONS if m <= options.millions]:
            results[f"{shape}-{millions}"] = row(f"{shape}-{millions}", not options.no_sql and millions == 1, {})
    print(json.dumps(results, indent=1))
    print(save("mining", results))


if __name__ == "__main__":
    main()
