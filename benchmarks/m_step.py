"""The M-step by Newton's method beside the paper's 1,000 steps of gradient ascent: seconds, memory, how far each gets.

Rules are mined with the authors' thresholds and counting; q of the hidden triples is uniform(0, 1)² with a fixed seed,
since no neural model is trained here. Ascent is timed as the program runs it, with equal triples merged, and under the
authors' mean also over all triples, as theirs does. (Under the sum a step of 1e-4 is too long: it swings to and fro.)
"""

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import sparse

from plogicnet.config import MLN, Config
from plogicnet.graph import RELATION, FloatArray, open_graph
from plogicnet.grounding.network import Network
from plogicnet.grounding.rows import Rows
from plogicnet.grounding.rulebook import find_rules
from plogicnet.mln import Pseudolikelihood, ascend, base_log_odds, features, learn_weights
from plogicnet.mln.conditional import Aggregate
from results import save

AGGREGATES: tuple[Aggregate, ...] = ("sum", "mean")
CASES = (("fb15k-237", 0.6), ("fb15k", 0.1))
REPEATS = 3


def main() -> None:
    """Prints the table and saves docs/results/m-step.json."""
    figures: dict[str, object] = {}
    table = Table("data set", "solver", "seconds", "CPU seconds", "largest gradient", "objective", title="M-step")
    for name, threshold in CASES:
        # a process of its own, so that its peak of memory is its own
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            about, solvers = pool.submit(measure, name, threshold).result()
        figures[f"{name}, {threshold} for all"] = about | {"solvers": solvers}
        for solver, row in solvers.items():
            cells = (f"{row[k]:.3g}" for k in ("seconds", "cpu_seconds", "largest_gradient"))
            table.add_row(name, solver, *cells, f"{row['objective']:.1f}")
    Console().print(table)
    print(save("m-step", figures))


def measure(name: str, threshold: float) -> tuple[dict[str, object], dict[str, dict[str, float]]]:
    """One data set: what the M-step is given, and each solver's figures."""
    thresholds = {f"rules.min_precision.{pattern}": threshold for pattern in Config().rules.patterns}
    config = Config().with_values({"rules.counting": "paths", **thresholds})
    graph = open_graph(name)
    rules = find_rules(graph, config).rules
    network = Network.of(graph, rules.rules, config).groundings
    hidden = ~network.observed
    target = np.ones(len(hidden))
    target[hidden] = np.random.default_rng(0).random(int(hidden.sum())) ** 2
    base = base_log_odds(graph, unit_clauses=True)[network.triples.triples[:, RELATION]]
    matrices: dict[Aggregate, sparse.csr_array] = {
        aggregate: features(network, network.observed, "hypothesis", aggregate) for aggregate in AGGREGATES
    }
    compile_once()
    memory, paper = [peak_rss_mb()], config.with_values({"mln.solver": "gradient"}).mln
    step, steps = paper.gradient.step, paper.gradient.iterations
    solvers: dict[str, dict[str, float]] = {}
    objectives = {a: Pseudolikelihood(matrix, base, target, config.mln.l2) for a, matrix in matrices.items()}
    for aggregate, objective in objectives.items():
        newton = partial(learned, objective, config.mln)
        solvers[f"{aggregate}: Newton"] = timed(objective, newton, REPEATS)
        memory.append(peak_rss_mb())
    for aggregate, objective in objectives.items():
        ascent = partial(learned, objective, paper)
        solvers[f"{aggregate}: {steps} steps of ascent, equal triples merged"] = timed(objective, ascent)
    ascent = partial(ascend, objectives["mean"], step, steps)
    solvers[f"mean: {steps} steps of ascent"] = timed(objectives["mean"], ascent)
    about: dict[str, object] = {
        "rules": len(rules),
        "groundings": len(network.rule),
        "triples": len(hidden),
        "hidden": int(hidden.sum()),
        "entries_of_the_matrix": int(matrices["sum"].nnz),
        "hidden_q": "uniform(0, 1) squared, seed 0",
        "l2": config.mln.l2,
        "peak_rss_mb": {"mining, grounding and matrices": memory[0], "with Newton": memory[-1]},
    }
    return about, solvers


def timed(objective: Pseudolikelihood, solve: Callable[[], FloatArray], repeats: int = 1) -> dict[str, float]:
    """The quickest of some repeats, and where it ends."""
    seconds, cpu_seconds = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        weights = solve()
        seconds.append(time.perf_counter() - wall)
        cpu_seconds.append(time.process_time() - cpu)
    return {
        "seconds": round(min(seconds), 3),
        "cpu_seconds": round(min(cpu_seconds), 3),
        "largest_gradient": float(np.abs(objective.gradient(weights)).max()),
        "objective": objective.value(weights),
    }


def learned(objective: Pseudolikelihood, settings: MLN) -> FloatArray:
    """The weights, the merging of equal triples included."""
    return learn_weights(Rows.of(objective.matrix, objective.base), objective.target, settings)


def compile_once() -> None:
    """Takes the compiling, or the loading of what was compiled before, out of the times."""
    one = sparse.csr_array(np.ones((1, 1)))
    one.indices, one.indptr = one.indices.astype(np.int32), one.indptr.astype(np.int32)
    learned(Pseudolikelihood(one, np.zeros(1), np.ones(1), 1.0), Config().mln)


def peak_rss_mb() -> int:
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
