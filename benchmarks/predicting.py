"""Predicting at FB15k-237's size on a CPU: queries a second, and the memory of completing the graph to a file.

Rules are mined from the graph and their weights learned; vectors are random, since what they are makes no difference
to speed. Probabilities are set so that a tenth of the candidates pass and are written. Queries are the test triples
with their tails and heads left open in turn: one at a time, and all in one call; beside them stands the slow way, which
judges every candidate. The completion is the real command in a process of its own, whose memory is looked at while it
writes.
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
from plogicnet.evaluation.calibration import Calibration, columns_of
from plogicnet.graph import HEAD, OPEN, RELATION, TAIL, IntArray, KnowledgeGraph, open_graph
from plogicnet.grounding.rulebook import find_rules
from plogicnet.inference import prediction
from plogicnet.inference.fitted import Fitted
from plogicnet.mln import m_step
from plogicnet.training.em import begin
from plogicnet.training.hooks import Hooks
from results import save

MODELS = {"ComplEx": "dot product", "TransE": "distance"}
WRITTEN = 0.1
"""The share of candidates that are probable enough to be written."""
SAMPLES_A_SECOND = 10
POINTS = 20


def make_model(graph: KnowledgeGraph, name: str, dim: int, threads: int) -> PLogicNet:
    """Mined rules with learned weights, random vectors, and probabilities that a tenth of the candidates reach."""
    values = {"neural.model": name, "neural.vectors.dim": dim, "device": "cpu", "threads": threads}
    config = Config().with_values(values)
    mined = find_rules(graph, config, [])
    start = begin(graph, config, mined.rules, mined.constraints, Hooks())
    neural: Any = start.neural
    generator = torch.Generator().manual_seed(0)
    for table in (neural.entity, neural.relation):
        table.copy_(torch.randn(table.shape, generator=generator) / dim**0.5)
    hidden_q = np.full(len(start.hidden_q), 0.5)
    outcome = replace(start, rule_model=m_step(start.rule_model, hidden_q, config, 0), hidden_q=hidden_q, lambda_=1.0)
    scores = outcome.rule_model.scores(graph)
    columns = columns_of(neural, scores, some_candidates(graph))
    spread = float(columns[:, 0].std())
    calibration = Calibration(-float(np.quantile(columns[:, 0], 1 - WRITTEN)) / spread, 1 / spread, 2.0, 0.0)
    model = PLogicNet(config)
    model._fitted = Fitted.of(graph, config, outcome, calibration, mined.candidates)
    model.metrics = {
        "lambda": 1.0,
        "calibration": calibration.to_json(),
        "candidates": mined.candidates,
        "iteration": 0,
    }
    return model


def some_candidates(graph: KnowledgeGraph, n: int = 50_000) -> IntArray:
    """Random pairs of entities that a relation has been seen with."""
    rng = np.random.default_rng(0)
    rows = graph.train[rng.integers(len(graph.train), size=n)].copy()
    order = np.lexsort((rng.random(n), rows[:, RELATION]))  # tails change places within a relation
    rows[np.argsort(rows[:, RELATION], kind="stable"), TAIL] = rows[order, TAIL]
    return rows


def rate(work: Any, units: int, rounds: int) -> float:
    """The best of the rounds, in units a second."""
    best = np.inf
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return round(units / best, 1)


def queries_a_second(f: Fitted, a: argparse.Namespace) -> dict[str, float]:
    """One query at a time, all in one call, and the slow way."""
    queries = f.graph.test[np.random.default_rng(0).permutation(len(f.graph.test))[: a.queries]].copy()
    queries[::2, TAIL], queries[1::2, HEAD] = OPEN, OPEN
    n = len(f.graph.entities)

    def slowly() -> None:
        for query in queries[:10]:
            triples = np.tile(query, (n, 1))
            triples[:, int(np.argmax(query == OPEN))] = np.arange(n)
            prediction.most_probable(f, [f.judged(triples[~f.graph.observed.contains(triples)])], 10)

    list(prediction.answers(f, queries[:2]))  # builds the indexes, and reads compiled code from the disk
    return {
        "one_by_one": rate(lambda: [list(prediction.answers(f, q[None])) for q in queries[:100]], 100, a.rounds),
        "in_one_call": rate(lambda: list(prediction.answers(f, queries)), len(queries), a.rounds),
        "by_judging_every_candidate": rate(slowly, 10, a.rounds),
    }


def completing(run: Path, f: Fitted, ending: str) -> dict[str, object]:
    """Completes to a file by the command, and looks at its memory while the file is written."""
    out = run.parent / f"missing{ending}"
    words = [sys.executable, "-m", "plogicnet", "predict", str(run), "--complete", "--min-probability", "0.5"]
    child = subprocess.Popen([*words, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    samples: list[tuple[float, float]] = []
    start = 0.0
    while child.poll() is None:
        if list(out.parent.glob(f".{out.name}.*.part")):
            start = start or time.perf_counter()
            now = resident_mb(child.pid)
            samples += [(round(time.perf_counter() - start, 1), now)] if now else []
        time.sleep(1 / SAMPLES_A_SECOND)
    if child.returncode:
        raise SystemExit(f"the command ended with {child.returncode}")
    memory = [m for _, m in samples]
    half = len(memory) // 2
    every = max(1, len(samples) // POINTS)
    return {
        "candidates": sum(place.size for place in prediction.ends(f)),
        "file_mb": round(out.stat().st_size / 2**20, 1),
        "seconds": samples[-1][0],
        "peak_mb": max(memory),
        "peak_of_the_second_half_over_the_first": round(max(memory[half:]) / max(memory[:half]), 3),
        "resident_mb_at_seconds": samples[::every],
    }


def resident_mb(pid: int) -> float:
    """A process's memory now."""
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return round(int(fields["VmRSS"].split()[0]) / 1024, 1)
    except (OSError, KeyError):  # it has just ended
        return 0.0


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fb15k-237")
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--ending", default=".parquet", help="of the file that is completed to")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    """Prints the table and saves docs/results/predicting.json."""
    a = options()
    torch.set_num_threads(a.threads)
    graph = open_graph(a.dataset)
    measured: dict[str, dict[str, Any]] = {}
    for name, kind in MODELS.items():
        model = make_model(graph, name, a.dim, a.threads)
        f = model.fitted
        row: dict[str, Any] = {"compares_by": kind, "queries_per_second": queries_a_second(f, a)}
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "run")
            row["completing"] = completing(Path(folder) / "run", f, a.ending)
        measured[name] = row
        print(name, row, file=sys.stderr)
    table = Table("model", "one by one", "in one call", "judging all", "completing, s", "peak MB", "2nd half ÷ 1st")
    for name, row in measured.items():
        done = row["completing"]
        figures = (*row["queries_per_second"].values(), done["seconds"], done["peak_mb"])
        table.add_row(name, *map(str, figures), str(done["peak_of_the_second_half_over_the_first"]))
    Console().print(table)
    kept = ("dataset", "dim", "queries", "ending", "rounds", "threads")
    print(save("predicting", {k: getattr(a, k) for k in kept} | {"vectors": "random", "measured": measured}))


if __name__ == "__main__":
    main()
