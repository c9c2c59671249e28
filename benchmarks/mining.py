"""Mining and grounding: native, sql, and the bare floor side by side, on the paper's data sets and on synthetic graphs.

The floor is one compiled pass, on one core, over the same two-step paths. `touch` only reads the end of each; `ask`
also marks it and asks whether the path's two ends are observed together, which is the least that counting a rule's
hits takes. Each measurement is a child process of its own, so that its peak memory is its own; compiled code is warm.
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
EVERYTHING = {f"rules.min_precision.{p}": 0.1 for p in ("composition", "inverse", "symmetric", "subrelation")}


def peak_mb() -> int:
    """This process's peak memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def graph_of(name: str):  # type: ignore[no-untyped-def]
    """A data set, or a synthetic graph `flat-2` (two million triples)."""
    from plogicnet.graph import open_graph

    shape, _, millions = name.partition("-")
    return synthetic(shape, int(millions)) if shape in SHAPES else open_graph(name)


def synthetic(shape: str, millions: int):  # type: ignore[no-untyped-def]
    """Ten facts an entity, 200 relations; entities drawn evenly, or a few of them very often.

    A tenth of the facts are inverses and a tenth compositions of others, so that there are rules to find.
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
    return KnowledgeGraph.from_numbers(names, kinds, [triples, as_triples([]), as_triples([])], f"{shape}-{millions}")


def floor(name: str) -> dict[str, object]:
    """Seconds of the bare passes."""
    from numba import njit

    from plogicnet.grounding.native.compositions import Runs

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
    runs = Runs.of(graph.observed)
    marks = np.full((2, len(graph.entities)), -1, dtype=np.int64)
    paths = int(np.bincount(runs.pair_tail, minlength=len(graph.entities)) @ np.diff(runs.of_pair))
    figures: dict[str, object] = {"triples": len(graph.train), "paths": paths}
    for pass_ in (touch, ask):
        pass_(runs.tail[:0], np.zeros(1, dtype=np.int64), marks)
        times = []
        for _ in range(3):
            marks[:] = -1
            start = time.perf_counter()
            pass_(runs.tail, runs.of_pair, marks)
            times.append(time.perf_counter() - start)
        figures[f"floor_{pass_.__name__}"] = round(float(np.median(times)), 4)
    return figures


def engine(name: str, which: str, settings: dict[str, object]) -> dict[str, object]:
    """Seconds of mining and grounding, what came out, and the peak memory."""
    from plogicnet.config import Config
    from plogicnet.graph import demo_family
    from plogicnet.grounding.network import Network
    from plogicnet.grounding.rulebook import find_rules

    config = Config().with_values({"grounding.engine": which, **settings})

    def both(graph) -> tuple[float, float, object, object]:  # type: ignore[no-untyped-def]
        start = time.perf_counter()
        found = find_rules(graph, config)
        mined = time.perf_counter()
        grounded = Network.of(graph, found.rules.rules, config).grounded
        return mined - start, time.perf_counter() - mined, found, grounded

    both(demo_family())  # compiles, or loads what is compiled
    graph = graph_of(name)
    runs = [both(graph) for _ in range(3 if which == "native" and len(graph.train) < 1_000_000 else 1)]
    mine, ground, found, grounded = sorted(runs, key=lambda run: run[0] + run[1])[len(runs) // 2]
    counts = {"candidates": found.candidates, "rules": len(found.rules)}  # type: ignore[attr-defined]
    counts |= {"hidden": len(grounded.hidden), "groundings": grounded.size}  # type: ignore[attr-defined]
    return {**counts, "mine": round(mine, 3), "ground": round(ground, 3), "peak_mb": peak_mb()}


def child(*words: str) -> dict[str, object]:
    """Runs one part of this script in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, object] = json.loads(done.stdout)
    return figures


def row(name: str, sql: bool, settings: dict[str, object]) -> dict[str, object]:
    """One graph's figures; agreement of the two engines where both ran."""
    given = json.dumps(settings)
    figures = child("--part", "floor", name, given)
    native = child("--part", "native", name, given)
    seconds = float(str(native["mine"])) + float(str(native["ground"]))
    for pass_ in ("touch", "ask"):
        figures[f"native_by_{pass_}"] = round(seconds / float(str(figures[f"floor_{pass_}"])), 1)
    figures["native"] = native
    if sql:
        figures["sql"] = child("--part", "sql", name, given)
        same = ("candidates", "rules", "hidden", "groundings")
        figures["agree"] = all(native[k] == figures["sql"][k] for k in same)  # type: ignore[index]
    print(name, json.dumps(figures), file=sys.stderr)
    return figures


def main() -> None:
    """Prints and saves docs/results/mining.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", nargs=3, metavar=("WHICH", "GRAPH", "SETTINGS"), help=argparse.SUPPRESS)
    parser.add_argument("--no-sql", action="store_true", help="leave the SQL engine out")
    parser.add_argument("--millions", type=int, default=8, help="the largest synthetic graph")
    options = parser.parse_args()
    if options.part:
        which, name, settings = options.part
        parts: dict[str, Callable[[], dict[str, object]]] = {"floor": lambda: floor(name)}
        run = parts.get(which, lambda: engine(name, which, json.loads(settings)))
        print(json.dumps(run()))
        return
    figures: dict[str, object] = {name: row(name, not options.no_sql, {}) for name in PAPER}
    figures["fb15k at 0.1 for all, paths"] = row("fb15k", False, EVERYTHING | {"rules.counting": "paths"})
    for shape in SHAPES:
        for millions in [m for m in MILLIONS if m <= options.millions]:
            figures[f"{shape}-{millions}"] = row(f"{shape}-{millions}", not options.no_sql and millions == 1, {})
    print(json.dumps(figures, indent=1))
    print(save("mining", figures))


if __name__ == "__main__":
    main()
