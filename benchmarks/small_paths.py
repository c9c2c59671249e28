"""The path model on small graphs and a CPU, over several seeds, compared with ComplEx, their mixture, and rules alone.

A mixture is trained once per seed, and its parts are also evaluated alone. Rules are mined in the same run.

    python benchmarks/small_paths.py --data umls --out FILE      one data set, a row per model; seeds that FILE has are
                                                                 not trained again
    python benchmarks/paths.py collect FILE ...                  add rows to docs/results/paths.json
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from plogicnet import Config, PLogicNet, demo_family, open_graph
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import KnowledgeGraph, choose_hiding
from plogicnet.neural.mixture.model import MixtureModel
from plogicnet.support.progress import Advance
from plogicnet.training.hooks import Hooks

FAMILY = "family"
SYSTEMS = {"mixture": "neural", "rules": "rules", "mixture and rules": "plogicnet*"}
"""The key of a whole run's metrics, by row."""


class Seconds:
    """A progress display that measures the seconds of each part, by the first two words of its description.

    CPU seconds are those of all threads. They do not grow if other programs use the machine.
    """

    def __init__(self) -> None:
        self.by_part: dict[str, float] = {}
        self.cpu_by_part: dict[str, float] = {}

    @contextmanager
    def __call__(self, description: str, total: float) -> Iterator[Advance]:  # noqa: ARG002
        """Measure a part."""
        started, cpu_started = time.perf_counter(), time.process_time()
        yield lambda units=1, note="": None  # noqa: ARG005
        part = " ".join(description.replace(",", "").split()[:2])
        self.by_part[part] = self.by_part.get(part, 0.0) + time.perf_counter() - started
        self.cpu_by_part[part] = self.cpu_by_part.get(part, 0.0) + time.process_time() - cpu_started


def graph_of(data: str, seed: int) -> KnowledgeGraph:
    """Return the graph of a data set. Each seed has its own split of the demo family."""
    return demo_family(seed) if data == FAMILY else open_graph(data)


def measure(data: str, seed: int) -> dict[str, dict[str, float]]:
    """Return MRR, Hits@10 and training seconds on test of each row, for one seed."""
    graph = graph_of(data, seed)
    config = Config().with_preset(f"best/{data}-mixture").with_values({"seed": seed, "device": "cpu"})
    seconds, started = Seconds(), time.perf_counter()
    model = PLogicNet(config).fit(graph, hooks=Hooks(progress=seconds))
    whole = time.perf_counter() - started
    test: dict[str, Any] = dict(model.evaluate("test"))
    metrics = {row: test[key] for row, key in SYSTEMS.items()}
    outcome = model.fitted.outcome
    mixture = outcome.neural
    if not isinstance(mixture, MixtureModel):
        raise SystemExit(f"best/{data}-mixture is no mixture")
    scores = outcome.rule_model.scores(graph)
    for name, part in zip(mixture.names, mixture.parts, strict=True):
        orders = {name: CombinedOrder(constraint=False), f"{name} with constraint": CombinedOrder()}
        metrics |= {row: compute_metrics(r.realistic) for row, r in rank(graph, "test", part, scores, orders).items()}
    trained = {name: seconds.by_part[f"training {name}"] for name in mixture.names}
    cpu = {name: round(seconds.cpu_by_part[f"training {name}"], 1) for name in mixture.names}
    trained |= {f"{name} with constraint": trained[name] for name in mixture.names}
    rules = sum(model.seconds[part] for part in ("mine", "ground", "m_step"))
    trained |= {"mixture": model.seconds["e_step"], "mixture and rules": whole, "rules": rules}
    return {
        row: {"mrr": m["mrr"], "hits_at_10": m["hits_at_10"], "train_seconds": round(trained[row], 1)}
        | ({"train_cpu_seconds": cpu[row]} if row in cpu else {})
        for row, m in metrics.items()
    }


def main() -> None:
    """Train the seeds of one data set, and print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="umls, kinship, codex-s or family")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out: Path | None = options.out
    rows: dict[str, dict[str, Any]] = {
        row["model"]: row for row in (json.loads(out.read_text()) if out and out.exists() else [])
    }
    threads = torch.get_num_threads()
    for seed in map(int, options.seeds.split(",")):
        if any(seed in row["seeds"] for row in rows.values()):
            continue
        for name, new in measure(options.data, seed).items():
            row = rows.setdefault(name, {"dataset": options.data, "model": name, "seeds": []})
            row["seeds"].append(seed)
            for key, value in new.items():
                row.setdefault(key, []).append(value)
            row |= {
                "preset": f"best/{options.data}-mixture",
                "hide": choose_hiding(graph_of(options.data, seed)),
                "device": f"CPU, {threads} thread{'s' * (threads > 1)}",
                "command": f"python benchmarks/small_paths.py --data {options.data}",
            }
            print(seed, name, new, file=sys.stderr, flush=True)
        if out:  # after each seed, so that a kill loses only one
            out.write_text(json.dumps(list(rows.values()), indent=1))
    for name, row in rows.items():
        print(f"{options.data:10} {name:25} MRR {sum(row['mrr']) / len(row['mrr']):.4f}")


if __name__ == "__main__":
    main()
