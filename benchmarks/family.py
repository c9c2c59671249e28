"""Test MRR on the demo family over five seeds: pLogicNet and pLogicNet*, compared with neural model and rules alone.

The neural model on observed facts is that of the first E-step, before it learns from rules.
"""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from plogicnet.config import Config
from plogicnet.evaluation.seeds import mean_and_sd
from plogicnet.graph import demo_family
from plogicnet.model import PLogicNet
from results import save

SEEDS = range(5)
ROWS = (
    "neural model on observed facts",
    "the same with constraint",
    "neural",
    "rules",
    "plogicnet",
    "plogicnet*",
)


def measure(seed: int) -> dict[str, float]:
    """Return the test MRR of every row for one seed, and the λ chosen on validation."""
    config = Config().with_preset("best/family").with_values({"seed": seed, "device": "cpu"})
    graph = demo_family(seed)
    first: Any = PLogicNet(config.with_values({"em.iterations": 1})).fit(graph).metrics["test"]
    model = PLogicNet(config).fit(graph)
    both: Any = model.metrics["test"]
    metrics = (first["neural"], first["plogicnet"], *(both[name] for name in ROWS[2:]))
    row = dict(zip(ROWS, (f["mrr"] for f in metrics), strict=True))
    return row | {"lambda": both["lambda"]}


def main() -> None:
    """Print the table and save docs/results/family.json."""
    measured = []
    for seed in SEEDS:
        measured.append(measure(seed))
        print(seed, {k: round(v, 4) for k, v in measured[-1].items()}, file=sys.stderr)
    table = Table("system", *(f"seed {s}" for s in SEEDS), "mean", "sd", title="test MRR on the demo family")
    summary: dict[str, dict[str, float]] = {}
    for name in (*ROWS, "lambda"):
        values = [m[name] for m in measured]
        summary[name] = mean_and_sd(values)
        table.add_row(name, *(f"{v:.3f}" for v in values), *(f"{v:.3f}" for v in summary[name].values()))
    Console().print(table)
    print(save("family", {"seeds": list(SEEDS), "test_mrr": summary, "by_seed": measured}))


if __name__ == "__main__":
    main()
