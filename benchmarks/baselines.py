"""Test metrics of pLogicNet on small graphs, compared with ComplEx alone, RUGE, NNE-AER and rules alone (MLN, BLP).

ComplEx is trained in two ways: with the recipe one_vs_all, and with the logistic loss and sampled negatives, which is
close to the original programs of RUGE and NNE-AER. For each way, all systems have the same settings, except those
chosen on validation: RUGE's C, NNE-AER's µ, pLogicNet's λ and its number of EM iterations. All systems use the same
rules, if they support the pattern, and the same ranking. Nothing is chosen on test. However, the grids and the
penalties were set after trials on UMLS and Kinship that also showed test metrics.
"""

import argparse
import json
import sys
from typing import Any

import numpy as np

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.evaluation.results import SplitMetrics
from plogicnet.evaluation.seeds import mean_and_sd
from plogicnet.graph import KnowledgeGraph, open_graph
from results import ROOT, save

DATASETS = ("umls", "kinship", "nations")
RULES = {f"rules.min_precision.{p}": 0.6 for p in ("composition", "inverse", "symmetric", "subrelation")}
COMMON: dict[str, object] = {
    "device": "cpu",
    "threads": 1,
    "neural.model": "ComplEx",
    "neural.vectors.dim": 64,
    "neural.batch": 256,
    **RULES,
}
COMMON |= {"rules.irreflexive": False, "em.tau_triplet": 0.9, "em.patience": 1, "em.combine": "log_odds"}
COMMON |= {"em.lambda_grid": [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]}
WAYS: dict[str, dict[str, object]] = {
    "all entities": {
        "neural.vectors.recipe": "one_vs_all",
        "neural.learning_rate": 0.1,
        "neural.vectors.regularization": 0.005,
    },
    "sampled": {
        "neural.vectors.recipe": "sampled",
        "neural.optimizer": "adagrad",
        "neural.learning_rate": 0.1,
        "neural.vectors.regularization": 1e-4,
        "neural.vectors.adversarial_temperature": 0.0,
        "neural.vectors.negatives": 32,
        "neural.vectors.share_negatives": 16,
    },
}
STEPS = {"all entities": 500, "sampled": 1000}
MIN_EPOCHS = 8
"""Minimum number of epochs over the training triples."""
GRIDS: dict[str, tuple[str, tuple[float, ...]]] = {
    "RUGE": ("systems.ruge.c", (0.001, 0.01)),
    "NNE-AER": ("systems.nne_aer.mu", (0.001, 0.1)),
}
RULES_ALONE: dict[str, dict[str, object]] = {"MLN": {"em.neural": False}, "BLP": {"system": "blp"}}
COLUMNS = ("ComplEx", "RUGE", "NNE-AER", "pLogicNet", "pLogicNet*", "MLN", "BLP")
PAGE = ROOT / "docs" / "systems.md"
SAVED = ROOT / "docs" / "results" / "baselines.json"
BEGIN, END = "<!-- made by `python benchmarks/baselines.py` -->", "<!-- end -->"


def fitted(graph: KnowledgeGraph, values: dict[str, object], seed: int) -> PLogicNet:
    """Return a model trained with the common settings and these values."""
    system = {key: values[key] for key in ("system",) if key in values}  # the others override what it implies
    return PLogicNet(Config(seed=seed).with_values(system | COMMON | values)).fit(graph)


def test_metrics(model: PLogicNet, system: str) -> dict[str, float]:
    """Return the test metrics of a ranking."""
    metrics: Any = model.metrics
    return dict(SplitMetrics.from_json(metrics["test"]).rankings[system].overall)


def validation_mrr(model: PLogicNet) -> float:
    """Return the validation MRR of the neural model."""
    metrics: Any = model.metrics
    return float(metrics["valid"]["neural"]["mrr"])


def measure(graph: KnowledgeGraph, way: str, seed: int) -> dict[str, Any]:
    """Return each system's test metrics and validation choices for one way of training and one seed."""
    steps = max(STEPS[way], MIN_EPOCHS * len(graph.train) // int(str(COMMON["neural.batch"])))
    settings: dict[str, object] = WAYS[way] | {"neural.steps": steps}
    neural_only, both = fitted(graph, settings | {"em.rules": False}, seed), fitted(graph, settings, seed)
    row: dict[str, Any] = {"ComplEx": test_metrics(neural_only, "neural")}
    for name, (key, values) in GRIDS.items():
        system: dict[str, object] = {"system": name.lower().replace("-", "_")}
        system_settings: dict[str, object] = {"em.patience": 0, "em.iterations": 1, "em.lambda": 0.0} | {
            "systems.ruge.batch": COMMON["neural.batch"]
        }
        patterns = ["composition", "inverse"] if name == "RUGE" else ["inverse", "subrelation"]
        system_settings |= {"rules.patterns": patterns}
        models = [fitted(graph, system | settings | system_settings | {key: value}, seed) for value in values]
        best = max(range(len(models)), key=lambda i: validation_mrr(models[i]))
        row[name] = test_metrics(models[best], "neural")
        row[f"{name} chose"] = values[best]
        row[f"{name} by choice"] = {
            str(v): test_metrics(m, "neural")["mrr"] for v, m in zip(values, models, strict=True)
        }
    row["pLogicNet"], row["pLogicNet*"] = test_metrics(both, "neural"), test_metrics(both, "plogicnet*")
    row["pLogicNet* chose"] = {"lambda": both.fitted.outcome.lambda_, "iterations": both.fitted.outcome.iteration}
    return row | {"steps": steps}


def rules_alone(graph: KnowledgeGraph) -> dict[str, Any]:
    """Return the metrics of MLN and BLP, which are deterministic, and the number of hidden triples in valid or test."""
    row: dict[str, Any] = {}
    for name, values in RULES_ALONE.items():
        model = fitted(graph, values, 0)
        row[name] = test_metrics(model, "rules")
        groundings = model.fitted.outcome.rule_model.groundings
        held_out = np.concatenate([graph.valid, graph.test])
        true = groundings.triples.find(held_out)
        row["hidden"] = len(groundings.hidden)
        row["hidden, in valid or test"] = int((~groundings.observed[true[true >= 0]]).sum())
    return row


def aggregate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation of each system's metrics over seeds, and the metrics of each seed."""
    result: dict[str, Any] = {}
    for name in COLUMNS:
        if name in rows[0]:
            result[name] = {key: mean_and_sd([row[name][key] for row in rows]) for key in rows[0][name]}
    return result | {"by_seed": rows}


def markdown(results: dict[str, Any]) -> str:
    """Return the table of the page: MRR of each system, for each graph and way of training."""
    lines = ["| graph | recipe | " + " | ".join(COLUMNS).replace("*", "\\*") + " |"]
    lines.append("|---|---|" + "--:|" * len(COLUMNS))
    for graph, result in results["test"].items():
        for way, row in result["ways"].items():
            cells = [row.get(name) or result["rules alone"][name] for name in COLUMNS]
            recipe = results["ways"][way]["neural.vectors.recipe"]
            lines.append(f"| {graph} | `{recipe}` | " + " | ".join(_format(cell["mrr"]) for cell in cells) + " |")
    shares = [
        f"{graph} {result['rules alone']['hidden, in valid or test']:,} of {result['rules alone']['hidden']:,}"
        for graph, result in results["test"].items()
    ]
    seeds = len(results["seeds"])
    caption = f"Test MRR, mean ± standard deviation over {seeds} seeds (MLN and BLP are deterministic)."
    return "\n".join([*lines, "", caption, f"Hidden triples that are in valid or test: {', '.join(shares)}."])


def _format(value: float | dict[str, float]) -> str:
    return f"{value['mean']:.3f} ± {value['sd']:.3f}" if isinstance(value, dict) else f"{value:.3f}"


def write_table(results: dict[str, Any]) -> None:
    """Replace the table in the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}", encoding="utf-8")


def saved_results(seeds: list[int]) -> dict[str, Any]:
    """Return the saved results if they have the same settings and seeds, so that other graphs can be added."""
    if not SAVED.is_file():
        return {}
    old = json.loads(SAVED.read_text(encoding="utf-8"))
    same = all(old[key] == value for key, value in (("seeds", seeds), ("settings", COMMON), ("ways", WAYS)))
    return dict(old["test"]) if same else {}


def main() -> None:
    """Run the benchmark, save docs/results/baselines.json, and write the table of docs/systems.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--table", action="store_true", help="only write the table again, from the saved results")
    options = parser.parse_args()
    if not options.table:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        test = saved_results(seeds)
        for name in options.datasets.split(","):
            graph = open_graph(name)
            result = test[name] = {"rules alone": rules_alone(graph), "ways": {}}
            for way in WAYS:
                result["ways"][way] = row = aggregate([measure(graph, way, seed) for seed in seeds])
                mrr = {k: _format(row[k]["mrr"]) for k in COLUMNS if k in row}
                print(name, way, mrr, [r["RUGE chose"] for r in row["by_seed"]], file=sys.stderr, flush=True)
            save("baselines", {"seeds": seeds, "settings": COMMON, "ways": WAYS, "test": test})
    write_table(json.loads(SAVED.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
