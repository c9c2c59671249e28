"""The native engine against the SQL engine: every rule, count, hidden triple and grounding of the large data sets."""

import json
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from plogicnet import config
from plogicnet.graph import IntArray, open_graph
from plogicnet.grounding import Counting, Groundings, Mined, chains_of, ground_network, mine
from plogicnet.grounding.sql import clause_of, count_sql, ground_sql, mine_sql
from results import save

T = TypeVar("T")
LOW = config.MinPrecision(0.1, 0.1, 0.1, 0.1)
CASES: list[tuple[str, Counting, config.MinPrecision]] = [
    ("fb15k-237", "distinct", config.MinPrecision()),
    ("fb15k-237", "paths", config.MinPrecision()),
    ("fb15k", "distinct", config.MinPrecision()),
    ("fb15k", "paths", config.MinPrecision()),
    ("fb15k", "paths", LOW),
]


def rows(network: Groundings) -> IntArray:
    """Rule, hypothesis and premises of each grounding, sorted."""
    found = np.column_stack([network.rule, network.hypothesis, np.sort(network.premises, axis=1)])
    return np.asarray(found[np.lexsort(found.T[::-1])])


def differences(native: Mined, sql: Mined) -> list[str]:
    """What two engines mined differently."""
    same = {
        "candidates": native.candidates == sql.candidates,
        "rules": native.rules.rules == sql.rules.rules,
        "support": np.array_equal(native.rules.support, sql.rules.support),
        "hits": np.array_equal(native.rules.hits, sql.rules.hits),
        "constraints": native.constraints.rules == sql.constraints.rules,
    }
    return [name for name, equal in same.items() if not equal]


def compare(name: str, counting: Counting, least: config.MinPrecision) -> dict[str, object]:
    """Both engines on one data set: their counts, which must be the same, and their seconds."""
    graph = open_graph(name)
    settings = config.Rules(counting=counting, min_precision=least)
    seconds: dict[str, float] = {}

    def timed(part: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        done = work()
        seconds[part] = round(time.perf_counter() - start, 2)
        return done

    native = timed("native mine", lambda: mine(graph, settings))
    sql = timed("sql mine", lambda: mine_sql(graph, settings))
    wrong = differences(native, sql)
    chains = chains_of(native.rules, graph)
    clauses = [clause_of(rule, graph) for rule in native.rules.rules]
    grounded = timed("native ground", lambda: ground_network(graph.observed, chains, counting))
    found = timed("sql ground", lambda: ground_sql(graph.observed, clauses, counting))
    counts = timed("sql count", lambda: count_sql(graph.observed, clauses, counting))
    wrong += [] if np.array_equal(grounded.hidden, found.hidden) else ["hidden"]
    wrong += [] if np.array_equal(rows(grounded), rows(found)) else ["groundings"]
    wrong += [] if np.array_equal(counts, [native.rules.support, native.rules.hits]) else ["counts of written rules"]
    return {
        "graph": name,
        "counting": counting,
        "min_precision": least.composition,
        "candidates": native.candidates,
        "rules": len(native.rules),
        "hidden": len(grounded.hidden),
        "groundings": len(grounded.rule),
        "different": wrong,
        "seconds": seconds,
    }


def main() -> None:
    """Prints each comparison and saves docs/results/engines.json; fails where the engines differ."""
    compared = []
    for case in CASES:
        compared.append(compare(*case))
        print(json.dumps(compared[-1]), flush=True)
    print(save("engines", {"compared": compared}))
    sys.exit(any(c["different"] for c in compared))


if __name__ == "__main__":
    main()
