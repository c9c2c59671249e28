"""The path model, ComplEx, their mixture, and rules with each of them, over several seeds.

A mixture is trained once per seed, and its parts are also evaluated alone and with the rules, each with its own λ.
Rules are mined in the same run, but not with `--set em.rules=false`. With mln.objective=pseudolikelihood, their weights
are learned from q of the mixture, also where a row ranks by rules and one part.

On a CPU, ComplEx takes much less time than the path model. With `--longer`, only ComplEx is trained, with so many times
its steps, for example the ratio of the seconds of both. The MRR on valid decides with which of the two to compare.

    python benchmarks/mixtures.py --data umls --out FILE         one data set, a row per model; seeds that FILE has are
                                                                 not trained again
    python benchmarks/mixtures.py --data wn18rr --device cuda …  the same on a GPU
    python benchmarks/mixtures.py --data umls --longer 24 …      ComplEx in about the time of the path model
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
from plogicnet.config import parse_assignments
from plogicnet.evaluation.metrics import compute_metrics
from plogicnet.evaluation.orders import CombinedOrder
from plogicnet.evaluation.ranking import rank
from plogicnet.graph import KnowledgeGraph, choose_hiding
from plogicnet.mln import RuleScores
from plogicnet.neural.mixture.model import MixtureModel
from plogicnet.neural.protocol import Examples, NeuralModel
from plogicnet.neural.registry import make_model
from plogicnet.support.progress import Advance, no_progress
from plogicnet.training.hooks import Hooks
from plogicnet.training.selection import choose_lambda, rescale
from results import current_commit, no_rules

Row = dict[str, float]
FAMILY, SEEDS = "family", [0, 1, 2, 3, 4]
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

    def training(self, model: str) -> Row:
        """Return the seconds of the training of a model."""
        part = f"training {model}"
        return {"train_seconds": self.by_part[part], "train_cpu_seconds": self.cpu_by_part[part]}


def graph_of(data: str, seed: int) -> KnowledgeGraph:
    """Return the graph of a data set. Each seed has its own split of the demo family."""
    return demo_family(seed) if data == FAMILY else open_graph(data)


def alone(graph: KnowledgeGraph, model: NeuralModel, scores: RuleScores, constraint: dict[str, bool]) -> dict[str, Row]:
    """Return the metrics of a model alone. `constraint` tells for each row whether to use the constraint."""
    orders = {row: CombinedOrder(constraint=value) for row, value in constraint.items()}
    return ranked(graph, model, scores, orders)


def ranked(
    graph: KnowledgeGraph, model: NeuralModel, scores: RuleScores, orders: dict[str, CombinedOrder]
) -> dict[str, Row]:
    """Return the metrics of each order, by row."""
    valid, test = (rank(graph, split, model, scores, orders) for split in ("valid", "test"))
    return {row: metrics_of(*(compute_metrics(ranks[row].realistic) for ranks in (valid, test))) for row in orders}


def of_part(graph: KnowledgeGraph, config: Config, name: str, model: NeuralModel, scores: RuleScores) -> dict[str, Row]:
    """Return the metrics of a part alone, with the constraint, and with the rules. λ is chosen on valid."""
    if not model.is_logit:
        rescale(graph, config, model)
    lambda_, _ = choose_lambda(graph, config, model, scores, no_progress)
    orders, together = {name: CombinedOrder(constraint=False)}, f"{name} and rules"
    if config.em.rules:
        orders[f"{name} with constraint"] = CombinedOrder()
        orders[together] = CombinedOrder(lambda_=lambda_, combine=config.em.combine)
    rows = ranked(graph, model, scores, orders)
    if config.em.rules:
        rows[together]["lambda"] = lambda_
    return rows


def metrics_of(valid: Any, test: Any) -> Row:
    """Return the metrics of a row."""
    return {"mrr": test["mrr"], "hits_at_10": test["hits_at_10"], "valid_mrr": valid["mrr"]}


def measure(graph: KnowledgeGraph, config: Config) -> dict[str, Row]:
    """Return the metrics and the training seconds of each row, for one seed. CPU seconds are those of all threads."""
    seconds, started, cpu_started = Seconds(), time.perf_counter(), time.process_time()
    model = PLogicNet(config).fit(graph, hooks=Hooks(progress=seconds))
    whole, whole_cpu = time.perf_counter() - started, time.process_time() - cpu_started
    test: dict[str, Any] = dict(model.evaluate("test"))
    valid = model.history[-1].valid
    systems = SYSTEMS if config.em.rules else {"mixture": SYSTEMS["mixture"]}
    rows = {row: metrics_of(valid[key], test[key]) for row, key in systems.items()}
    rows["mixture"]["train_seconds"] = model.seconds["e_step"]
    if config.em.rules:
        rows["rules"]["train_seconds"] = sum(model.seconds[part] for part in ("mine", "ground", "m_step"))
        rows["mixture and rules"] |= {"train_seconds": whole, "train_cpu_seconds": whole_cpu}
        rows["mixture and rules"]["lambda"] = model.history[-1].lambda_
    outcome = model.fitted.outcome
    mixture = outcome.neural
    if not isinstance(mixture, MixtureModel):
        raise SystemExit("the preset is not a mixture")
    scores = outcome.rule_model.scores(graph)
    for name, part in zip(mixture.names, mixture.parts, strict=True):
        for row, value in of_part(graph, config, name, part, scores).items():
            rows[row] = value | seconds.training(name)
    return rows


def measure_longer(graph: KnowledgeGraph, config: Config, times: int) -> dict[str, Row]:
    """Return the row of ComplEx alone with more steps."""
    part = next(part for part in config.model_configs if part.neural.model == "ComplEx")
    model, seconds = make_model(graph, part.with_values({"neural.steps": times * int(part.neural.steps)})), Seconds()
    model.fit(Examples.of(graph.train), config.seed, progress=seconds)
    name = f"ComplEx, {times} times the steps"
    return {name: alone(graph, model, no_rules(graph), {name: False})[name] | seconds.training("ComplEx")}


def rounded(key: str, value: float) -> float:
    """Return seconds with one digit, metrics with four."""
    return round(value, 1 if "seconds" in key else 4)


def main() -> None:
    """Train the seeds of one data set, and print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="umls, kinship, codex-s, family, wn18rr or fb15k-237")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=SEEDS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], help="setting, as in `plogicnet train`")
    parser.add_argument("--commit", help="the commit of the code; default: the current one")
    parser.add_argument("--longer", type=int, default=0, help="train ComplEx alone, with this many times its steps")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out: Path | None = options.out
    rows: dict[str, dict[str, Any]] = {
        row["model"]: row for row in (json.loads(out.read_text()) if out and out.exists() else [])
    }
    command = f"python benchmarks/mixtures.py --data {options.data}"
    command += f" --device {options.device}" if options.device != "cpu" else ""
    command += "".join(f" --set '{assignment}'" for assignment in options.set)
    command += f" --longer {options.longer}" if options.longer else ""
    threads = torch.get_num_threads()
    device = f"CPU, {threads} thread{'s' * (threads > 1)}"
    device = torch.cuda.get_device_name() if options.device == "cuda" else device
    for seed in options.seeds:
        if any(seed in row["seeds"] for row in rows.values()):
            continue
        graph = graph_of(options.data, seed)
        overlay = parse_assignments(options.set) | {"seed": seed, "device": options.device}
        config = Config().with_preset(f"best/{options.data}-mixture").with_values(overlay)
        new_rows = measure_longer(graph, config, options.longer) if options.longer else measure(graph, config)
        for name, values in new_rows.items():
            new = {key: rounded(key, value) for key, value in values.items()}
            row = rows.setdefault(name, {"dataset": options.data, "model": name, "seeds": []})
            row["seeds"].append(seed)
            for key, value in new.items():
                row.setdefault(key, []).append(value)
            row |= {
                "preset": f"best/{options.data}-mixture",
                "hide": choose_hiding(graph),
                "device": device,
                "command": command + (f" --seeds {','.join(map(str, row['seeds']))}" if row["seeds"] != SEEDS else ""),
                "commit": options.commit or current_commit(),
            }
            print(seed, name, new, file=sys.stderr, flush=True)
        if out:  # after each seed, so that a kill loses only one
            out.write_text(json.dumps(list(rows.values()), indent=1))
    for name, row in rows.items():
        print(f"{options.data:10} {name:25} MRR {sum(row['mrr']) / len(row['mrr']):.4f}")


if __name__ == "__main__":
    main()
