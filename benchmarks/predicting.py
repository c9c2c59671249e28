"""Queries per second at FB15k-237's size on a CPU, compared with scoring every candidate; memory of completing a graph.

Rules are mined and their weights learned. Vectors are random, because their values do not affect speed. Probabilities
are calibrated so that a tenth of the candidates are written. Queries are the test triples with tail and head missing in
turn, one at a time and all in one call. The real command completes the graph in a separate process. Its memory is
sampled while it writes.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.calibration import Calibration, calibration_features
from plogicnet.graph import HEAD, MISSING, RELATION, TAIL, IntArray, KnowledgeGraph, open_graph
from plogicnet.grounding.rulebook import collect_rules
from plogicnet.inference import prediction
from plogicnet.inference.fitted import FittedModel
from plogicnet.training.em import initial_state
from plogicnet.training.hooks import Hooks
from results import save

MODELS = {"ComplEx": "dot product", "TransE": "distance"}
WRITTEN_SHARE = 0.1
"""The share of candidates that are written."""
SAMPLES_PER_SECOND = 10
MAX_POINTS = 20


def make_model(graph: KnowledgeGraph, name: str, dim: int, threads: int) -> PLogicNet:
    """Return a model with mined rules, learned weights and random vectors; a tenth of the candidates reach 0.5."""
    values = {"neural.model": name, "neural.vectors.dim": dim, "device": "cpu", "threads": threads}
    config = Config().with_values(values)
    mined = collect_rules(graph, config, [])
    start = initial_state(graph, config, mined.rules, mined.constraints, Hooks())
    neural: Any = start.neural
    generator = torch.Generator().manual_seed(0)
    for table in (neural.entity, neural.relation):
        table.copy_(torch.randn(table.shape, generator=generator) / dim**0.5)
    hidden_q = np.full(len(start.hidden_q), 0.5)
    outcome = replace(start, rule_model=start.rule_model.learn(hidden_q, config, 0), hidden_q=hidden_q, lambda_=1.0)
    scores = outcome.rule_model.scores(graph)
    columns = calibration_features(neural, scores, some_candidates(graph))
    spread = float(columns[:, 0].std())
    calibration = Calibration(-float(np.quantile(columns[:, 0], 1 - WRITTEN_SHARE)) / spread, 1 / spread, 2.0, 0.0)
    model = PLogicNet(config)
    model._fitted = FittedModel.of(graph, config, outcome, calibration, mined.n_candidates)
    model.metrics = {
        "lambda": 1.0,
        "calibration": calibration.to_json(),
        "candidates": mined.n_candidates,
        "iteration": 0,
    }
    return model


def some_candidates(graph: KnowledgeGraph, n: int = 50_000) -> IntArray:
    """Return random pairs of entities of the same relation."""
    rng = np.random.default_rng(0)
    rows = graph.train[rng.integers(len(graph.train), size=n)].copy()
    order = np.lexsort((rng.random(n), rows[:, RELATION]))  # shuffle the tails within each relation
    rows[np.argsort(rows[:, RELATION], kind="stable"), TAIL] = rows[order, TAIL]
    return rows


def rate(work: Any, units: int, rounds: int) -> float:
    """Return the best rate of all rounds, in units per second."""
    best = np.inf
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return round(units / best, 1)


def queries_per_second(fitted: FittedModel, args: argparse.Namespace) -> dict[str, float]:
    """Return the rates of single queries, of one call, and of scoring every candidate."""
    queries = fitted.graph.test[np.random.default_rng(0).permutation(len(fitted.graph.test))[: args.queries]].copy()
    queries[::2, TAIL], queries[1::2, HEAD] = MISSING, MISSING
    n = len(fitted.graph.entities)

    def score_every_candidate() -> None:
        for query in queries[:10]:
            triples = np.tile(query, (n, 1))
            triples[:, int(np.argmax(query == MISSING))] = np.arange(n)
            prediction.most_probable(
                fitted, [fitted.predict_batch(triples[~fitted.graph.observed.contains(triples)])], 10
            )

    list(prediction.iter_answers(fitted, queries[:2]))  # warm up: build the indexes and load compiled code
    return {
        "one_by_one": rate(
            lambda: [list(prediction.iter_answers(fitted, q[None])) for q in queries[:100]], 100, args.rounds
        ),
        "in_one_call": rate(lambda: list(prediction.iter_answers(fitted, queries)), len(queries), args.rounds),
        "by_judging_every_candidate": rate(score_every_candidate, 10, args.rounds),
    }


def measure_completion(run: Path, fitted: FittedModel, ending: str) -> dict[str, object]:
    """Complete the graph to a file with the real command and sample its memory while it writes."""
    out = run.parent / f"missing{ending}"
    command = [sys.executable, "-m", "plogicnet", "predict", str(run), "--complete", "--min-probability", "0.5"]
    child = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    samples: list[tuple[float, float]] = []
    start = 0.0
    while child.poll() is None:
        if list(out.parent.glob(f".{out.name}.*.part")):
            start = start or time.perf_counter()
            now = resident_mb(child.pid)
            samples += [(round(time.perf_counter() - start, 1), now)] if now else []
        time.sleep(1 / SAMPLES_PER_SECOND)
    if child.returncode:
        raise SystemExit(f"plogicnet predict failed with exit code {child.returncode}")
    memory = [m for _, m in samples]
    half = len(memory) // 2
    every = max(1, len(samples) // MAX_POINTS)
    return {
        "queries": fitted.pool(prediction.RECALL).n_queries(),
        "file_mb": round(out.stat().st_size / 2**20, 1),
        "seconds": samples[-1][0],
        "peak_mb": max(memory),
        "peak_of_the_second_half_over_the_first": round(max(memory[half:]) / max(memory[:half]), 3),
        "resident_mb_at_seconds": samples[::every],
    }


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return round(int(fields["VmRSS"].split()[0]) / 1024, 1)
    except (OSError, KeyError):  # the process has ended
        return 0.0


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fb15k-237")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--ending", default=".parquet", help="file type of the completed graph")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    """Print the table and save docs/results/predicting.json."""
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    graph = open_graph(args.dataset)
    measured: dict[str, dict[str, Any]] = {}
    for name, kind in MODELS.items():
        model = make_model(graph, name, args.dim, args.threads)
        fitted = model.fitted
        row: dict[str, Any] = {"compares_by": kind, "queries_per_second": queries_per_second(fitted, args)}
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "run")
            row["completing"] = measure_completion(Path(folder) / "run", fitted, args.ending)
        measured[name] = row
        print(name, row, file=sys.stderr)
    table = Table("model", "one by one", "in one call", "every candidate", "completion, s", "peak MB", "2nd half ÷ 1st")
    for name, row in measured.items():
        completion = row["completing"]
        numbers = (*row["queries_per_second"].values(), completion["seconds"], completion["peak_mb"])
        table.add_row(name, *map(str, numbers), str(completion["peak_of_the_second_half_over_the_first"]))
    Console().print(table)
    kept = ("dataset", "dim", "queries", "ending", "rounds", "threads")
    print(save("predicting", {k: getattr(args, k) for k in kept} | {"vectors": "random", "measured": measured}))


if __name__ == "__main__":
    main()
