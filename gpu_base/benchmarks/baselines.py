"""Is it worth it on a small graph? ComplEx alone, RUGE, NNE-AER, pLogicNet, and rules alone: same rules, same ranking.

ComplEx is trained in two ways: by cross-entropy over all entities, and by the logistic loss with sampled negatives,
which is near to what RUGE and NNE-AER were published with. Within a way all systems have the same settings, but for
what each chooses on validation: RUGE its C, NNE-AER its µ, pLogicNet its λ and whether a second EM iteration is kept.
Every system is given the same rules and takes the patterns that it can use. Test triples choose nothing here; but what
there is to choose from, and the penalties, were set after trials on UMLS and Kinship that showed test figures too.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from plogicnet import PLogicNet
from plogicnet.config import Config
from plogicnet.graph import KnowledgeGraph, open_graph
from results import ROOT, save

DATASETS = ("umls", "kinship", "nations")
RULES = {f"rules.min_precision.{p}": 0.6 for p in ("composition", "inverse", "symmetric", "subrelation")}
SAME: dict[str, object] = {
    "device": "cpu",
    "threads": 1,
    "kge.model": "ComplEx",
    "kge.dim": 64,
    "kge.batch": 256,
    **RULES,
}
SAME |= {"rules.irreflexive": False, "em.tau_triplet": 0.9, "em.patience": 1, "em.combine": "log_odds"}
SAME |= {"em.lambda_grid": [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]}
WAYS: dict[str, dict[str, object]] = {
    "all entities": {"kge.recipe": "one_vs_all", "kge.learning_rate": 0.1, "kge.regularization": 0.005},
    "sampled": {
        "kge.recipe": "sampled",
        "kge.optimizer": "adagrad",
        "kge.learning_rate": 0.1,
        "kge.regularization": 1e-4,
        "kge.adversarial_temperature": 0.0,
        "kge.negatives": 32,
        "kge.share_negatives": 16,
    },
}
STEPS = {"all entities": 500, "sampled": 1000}
PASSES = 8
"""At least so many over the training triples."""
CHOICES: dict[str, tuple[str, tuple[float, ...]]] = {
    "RUGE": ("baselines.ruge_c", (0.001, 0.01)),
    "NNE-AER": ("baselines.nne_aer_mu", (0.001, 0.1)),
}
ALONE: dict[str, dict[str, object]] = {"MLN": {"em.embedding": False}, "BLP": {"system": "blp"}}
SHOWN = ("ComplEx", "RUGE", "NNE-AER", "pLogicNet", "pLogicNet*", "MLN", "BLP")
FIGURES = ("mr", "mrr", "hits_at_1", "hits_at_3", "hits_at_10")
PAGE = ROOT / "docs" / "baselines.md"
SAVED = ROOT / "docs" / "results" / "baselines.json"
BEGIN, END = "<!-- made by `python benchmarks/baselines.py` -->", "<!-- end -->"


def fitted(graph: KnowledgeGraph, values: dict[str, object], seed: int, shared: Path | None = None) -> PLogicNet:
    """A model with what is the same for all and these settings."""
    system = {key: values[key] for key in ("system",) if key in values}  # it sets what the rest may set again
    return PLogicNet(Config(seed=seed).with_values(system | SAME | values)).fit(graph, shared=shared)


def figures_of(model: PLogicNet, system: str) -> dict[str, float]:
    """The test figures of a system."""
    metrics: Any = model.metrics
    return {key: metrics["test"][system][key] for key in FIGURES}


def merit(model: PLogicNet) -> float:
    """The MRR on validation of the vectors alone."""
    metrics: Any = model.metrics
    return float(metrics["valid"]["embedding"]["mrr"])


def measure(graph: KnowledgeGraph, way: str, seed: int) -> dict[str, Any]:
    """One seed of one way: each system's test figures, and what was chosen on validation."""
    steps = max(STEPS[way], PASSES * len(graph.train) // int(str(SAME["kge.batch"])))
    settings: dict[str, object] = WAYS[way] | {"kge.steps": steps}
    with tempfile.TemporaryDirectory() as folder:  # pLogicNet begins with the vectors of ComplEx alone
        alone = fitted(graph, settings | {"em.rules": False}, seed, Path(folder))
        both = fitted(graph, settings, seed, Path(folder))
    row: dict[str, Any] = {"ComplEx": figures_of(alone, "embedding")}
    for name, (key, values) in CHOICES.items():
        system: dict[str, object] = {"system": name.lower().replace("-", "_")}
        own: dict[str, object] = {"em.patience": 0, "em.iterations": 1, "em.lambda": 0.0} | {
            "baselines.ruge_batch": SAME["kge.batch"]
        }
        patterns = ["composition", "inverse"] if name == "RUGE" else ["inverse", "subrelation"]
        own |= {"rules.patterns": patterns}
        models = [fitted(graph, system | settings | own | {key: value}, seed) for value in values]
        best = max(range(len(models)), key=lambda i: merit(models[i]))
        row[name] = figures_of(models[best], "embedding")
        row[f"{name} chose"] = values[best]
        row[f"{name} by choice"] = {
            str(v): figures_of(m, "embedding")["mrr"] for v, m in zip(values, models, strict=True)
        }
    row["pLogicNet"], row["pLogicNet*"] = figures_of(both, "embedding"), figures_of(both, "plogicnet*")
    row["pLogicNet* chose"] = {"lambda": both.fitted.outcome.lambda_, "iterations": both.fitted.outcome.iteration}
    return row | {"steps": steps}


def rules_alone(graph: KnowledgeGraph) -> dict[str, Any]:
    """MLN and BLP, in which nothing is random; and how much of what the rules conclude is held out as true."""
    row: dict[str, Any] = {}
    for name, values in ALONE.items():
        model = fitted(graph, values, 0)
        row[name] = figures_of(model, "rules")
        groundings = model.fitted.outcome.rule_model.groundings
        held_out = np.concatenate([graph.valid, graph.test])
        true = groundings.triples.find(held_out)
        row["hidden"] = len(groundings.hidden)
        row["hidden, in valid or test"] = int((~groundings.observed[true[true >= 0]]).sum())
    return row


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of each system's figures, and each seed's own."""
    result: dict[str, Any] = {}
    for name in SHOWN:
        if name in rows[0]:
            columns = {key: [row[name][key] for row in rows] for key in FIGURES}
            result[name] = {
                key: {"mean": float(np.mean(v)), "sd": float(np.std(v, ddof=1))} for key, v in columns.items()
            }
    return result | {"by_seed": rows}


def markdown(results: dict[str, Any]) -> str:
    """The table of the page: MRR of each system, on each graph, in each way of training."""
    lines = ["| graph | trained against | " + " | ".join(SHOWN).replace("*", "\\*") + " |"]
    lines.append("|---|---|" + "--:|" * len(SHOWN))
    for graph, about in results["test"].items():
        for way, row in about["ways"].items():
            cells = [row.get(name) or about["rules alone"][name] for name in SHOWN]
            lines.append(f"| {graph} | {way} | " + " | ".join(_shown(cell["mrr"]) for cell in cells) + " |")
    shares = [
        f"{graph} {about['rules alone']['hidden, in valid or test']:,} of {about['rules alone']['hidden']:,}"
        for graph, about in results["test"].items()
    ]
    seeds = len(results["seeds"])
    about = f"Test MRR, mean ± standard deviation over {seeds} seeds (MLN and BLP have nothing random)."
    return "\n".join([*lines, "", f"{about} Hidden triples that valid or test holds: {', '.join(shares)}."])


def _shown(figure: float | dict[str, float]) -> str:
    return f"{figure['mean']:.3f} ± {figure['sd']:.3f}" if isinstance(figure, dict) else f"{figure:.3f}"


def write_table(results: dict[str, Any]) -> None:
    """Puts the table into the page, in place of the last."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}", encoding="utf-8")


def measured(seeds: list[int]) -> dict[str, Any]:
    """What is saved already by the same settings and seeds; further graphs join it."""
    if not SAVED.is_file():
        return {}
    old = json.loads(SAVED.read_text(encoding="utf-8"))
    same = all(old[key] == value for key, value in (("seeds", seeds), ("settings", SAME), ("ways", WAYS)))
    return dict(old["test"]) if same else {}


def main() -> None:
    """Measures, saves docs/results/baselines.json, and writes the table of docs/baselines.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--table", action="store_true", help="only write the table again, from the saved figures")
    options = parser.parse_args()
    if not options.table:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        test = measured(seeds)
        for name in options.datasets.split(","):
            graph = open_graph(name)
            about = test[name] = {"rules alone": rules_alone(graph), "ways": {}}
            for way in WAYS:
                about["ways"][way] = row = together([measure(graph, way, seed) for seed in seeds])
                mrr = {k: _shown(row[k]["mrr"]) for k in SHOWN if k in row}
                print(name, way, mrr, [r["RUGE chose"] for r in row["by_seed"]], file=sys.stderr, flush=True)
            save("baselines", {"seeds": seeds, "settings": SAME, "ways": WAYS, "test": test})
    write_table(json.loads(SAVED.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
