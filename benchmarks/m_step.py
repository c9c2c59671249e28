"""Time, memory and objective of the M-step by Newton's method, compared with the paper's 1,000 gradient ascent steps.

Rules are mined with the authors' thresholds and counting. No neural model is trained, so q of the hidden triples is
uniform(0, 1)² with a fixed seed. Gradient ascent is timed as the program runs it, with equal triples merged. With the
authors' aggregate, the mean, it is also timed over all triples, as in their code. (With the sum, steps of 1e-4 are too
long, and ascent oscillates.)
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
from plogicnet.grounding.grounder import Grounder
from plogicnet.grounding.rows import DistinctRows
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.mln import Pseudolikelihood, base_log_odds, features, gradient_ascent, learn_weights
from plogicnet.mln.conditional import Aggregate
from results import save

AGGREGATES: tuple[Aggregate, ...] = ("sum", "mean")
CASES = (("fb15k-237", 0.6), ("fb15k", 0.1))
REPEATS = 3


def main() -> None:
    """Print the table and save docs/results/m-step.json."""
    results: dict[str, object] = {}
    table = Table("data set", "solver", "seconds", "CPU seconds", "largest gradient", "objective", title="M-step")
    for name, threshold in CASES:
        # a separate process has its own peak memory
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            inputs, solvers = pool.submit(measure, name, threshold).result()
        results[f"{name}, {threshold} for all"] = inputs | {"solvers": solvers}
        for solver, row in solvers.items():
            cells = (f"{row[k]:.3g}" for k in ("seconds", "cpu_seconds", "largest_gradient"))
            table.add_row(name, solver, *cells, f"{row['objective']:.1f}")
    Console().print(table)
    print(save("m-step", results))


def measure(name: str, threshold: float) -> tuple[dict[str, object], dict[str, dict[str, float]]]:
    """Return the inputs of the M-step on one data set, and each solver's results."""
    thresholds = {f"rules.min_precision.{pattern}": threshold for pattern in Config().rules.patterns}
    config = Config().with_values({"rules.counting": "paths", **thresholds})
    graph = open_graph(name)
    rules = collect_rules(graph, config).rules
    groundings = Grounder.of(graph, rules.rules, config).groundings
    hidden = ~groundings.observed
    target = np.ones(len(hidden))
    target[hidden] = np.random.default_rng(0).random(int(hidden.sum())) ** 2
    base = base_log_odds(graph, unit_clauses=True)[groundings.triples.triples[:, RELATION]]
    matrices: dict[Aggregate, sparse.csr_array] = {
        aggregate: features(groundings, groundings.observed, "hypothesis", aggregate) for aggregate in AGGREGATES
    }
    compile_once()
    memory, paper = [peak_rss_mb()], config.with_values({"mln.solver": "gradient"}).mln
    step, steps = paper.gradient.step, paper.gradient.iterations
    solvers: dict[str, dict[str, float]] = {}
    objectives = {a: Pseudolikelihood(matrix, base, target, config.mln.l2) for a, matrix in matrices.items()}
    for aggregate, objective in objectives.items():
        newton = partial(solve_merged, objective, config.mln)
        solvers[f"{aggregate}: Newton"] = timed(objective, newton, REPEATS)
        memory.append(peak_rss_mb())
    for aggregate, objective in objectives.items():
        ascent = partial(solve_merged, objective, paper)
        solvers[f"{aggregate}: {steps} steps of ascent, equal triples merged"] = timed(objective, ascent)
    ascent = partial(gradient_ascent, objectives["mean"], step, steps)
    solvers[f"mean: {steps} steps of ascent"] = timed(objectives["mean"], ascent)
    inputs: dict[str, object] = {
        "rules": len(rules),
        "groundings": len(groundings.rule),
        "triples": len(hidden),
        "hidden": int(hidden.sum()),
        "entries_of_the_matrix": int(matrices["sum"].nnz),
        "hidden_q": "uniform(0, 1) squared, seed 0",
        "l2": config.mln.l2,
        "peak_rss_mb": {"mining, grounding and matrices": memory[0], "with Newton": memory[-1]},
    }
    return inputs, solvers


def timed(objective: Pseudolikelihood, solve: Callable[[], FloatArray], repeats: int = 1) -> dict[str, float]:
    """Return the best times of several repeats, and the final gradient and objective."""
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


def solve_merged(objective: Pseudolikelihood, settings: MLN) -> FloatArray:
    """Merge equal triples and return the learned weights."""
    return learn_weights(DistinctRows.of(objective.matrix, objective.base), objective.target, settings)


def compile_once() -> None:
    """Compile, or load compiled code, so that it is not timed."""
    one = sparse.csr_array(np.ones((1, 1)))
    one.indices, one.indptr = one.indices.astype(np.int32), one.indptr.astype(np.int32)
    solve_merged(Pseudolikelihood(one, np.zeros(1), np.ones(1), 1.0), Config().mln)


def peak_rss_mb() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
