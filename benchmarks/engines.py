"""Results and times of the native engine, compared with the SQL engine, on FB15k-237 and FB15k."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from plogicnet import config
from plogicnet.graph import IntArray, open_graph
from plogicnet.grounding.engine import CountingMode, GroundingTask, MiningResult, Resources
from plogicnet.grounding.groundings import GroundNetwork
from plogicnet.grounding.native.engine import NATIVE
from plogicnet.grounding.sql.duckdb import SQL
from results import save

T = TypeVar("T")
LOW_PRECISION = config.MinPrecision(0.1, 0.1, 0.1, 0.1)
CASES: list[tuple[str, CountingMode, Any]] = [
    ("fb15k-237", "distinct", config.MinPrecision()),
    ("fb15k-237", "paths", config.MinPrecision()),
    ("fb15k", "distinct", config.MinPrecision()),
    ("fb15k", "paths", config.MinPrecision()),
    ("fb15k", "paths", LOW_PRECISION),
]


def rows(network: GroundNetwork) -> IntArray:
    """Return rule, hypothesis and premises of each grounding, sorted."""
    arrays = network.load()
    columns = np.column_stack([arrays.rule, arrays.hypothesis, np.sort(arrays.premises, axis=1)])
    return np.asarray(columns[np.lexsort(columns.T[::-1])])


def differences(native: MiningResult, sql: MiningResult) -> list[str]:
    """Return the names of the mining results that differ."""
    same = {
        "candidates": native.n_candidates == sql.n_candidates,
        "rules": native.rules.rules == sql.rules.rules,
        "support": np.array_equal(native.rules.support, sql.rules.support),
        "hits": np.array_equal(native.rules.hits, sql.rules.hits),
        "constraints": native.constraints.rules == sql.constraints.rules,
    }
    return [name for name, equal in same.items() if not equal]


def compare(name: str, counting: CountingMode, min_precision: Any) -> dict[str, object]:
    """Return the counts of both engines on one data set, their differences and their times."""
    graph = open_graph(name)
    settings = config.Rules(counting=counting, min_precision=min_precision)
    seconds: dict[str, float] = {}

    def timed(part: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        seconds[part] = round(time.perf_counter() - start, 2)
        return result

    native = timed("native mine", lambda: NATIVE.mine(graph, settings, Resources()))
    sql = timed("sql mine", lambda: SQL.mine(graph, settings, Resources()))
    unequal, task = differences(native, sql), GroundingTask(graph, native.rules.rules, counting)
    native_network = timed("native ground", lambda: NATIVE.ground(task))
    sql_network = timed("sql ground", lambda: SQL.ground(task))
    counts = timed("sql count", lambda: SQL.count(task))
    unequal += [] if np.array_equal(native_network.hidden, sql_network.hidden) else ["hidden"]
    unequal += [] if np.array_equal(rows(native_network), rows(sql_network)) else ["groundings"]
    unequal += [] if np.array_equal(counts, [native.rules.support, native.rules.hits]) else ["counts of written rules"]
    return {
        "graph": name,
        "counting": counting,
        "min_precision": min_precision.composition,
        "candidates": native.n_candidates,
        "rules": len(native.rules),
        "hidden": len(native_network.hidden),
        "groundings": native_network.size,
        "different": unequal,
        "seconds": seconds,
    }


def main() -> None:
    """Print each comparison and save docs/results/engines.json. Exit with 1 if the engines differ."""
    compared = []
    for case in CASES:
        compared.append(compare(*case))
        print(json.dumps(compared[-1]), flush=True)
    print(save("engines", {"compared": compared}))
    sys.exit(any(c["different"] for c in compared))


if __name__ == "__main__":
    main()
